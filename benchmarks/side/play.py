"""One side of the comparison, in an interpreter of its own: ``python play.py MODULE:CLASS TASK OUT LIMIT``.

Reads the task's folder, runs all rounds, one decision at a time, and writes the results as JSON.
"""

import importlib
import importlib.metadata
import json
import sys
import time
from pathlib import Path

import numpy as np
from task import Arm, Result, Task

PATIENCE = 15.0
"""Seconds after which it is clear whether a side will make it."""


def play(arm: Arm, task: Task, limit: float) -> Result:
    """Play round by round, so that all users are equally far; give up as soon as `limit` seconds will not suffice."""
    earned, clicks = np.zeros(task.users), np.zeros(task.users)
    begun, done, total = time.perf_counter(), 0, task.users * task.rounds
    for turn in range(task.rounds):
        arm.begin(turn)
        for user in range(task.users):
            row = arm.choose(user)
            chance = float(task.chances[user, row])
            click = float(task.coins[user, turn] < chance)
            arm.learn(user, row, click)
            earned[user] += chance
            clicks[user] += click
            done += 1
            spent = time.perf_counter() - begun
            # Whoever fits now and then spends as much again at every fit, at least.
            whole = spent / done * total if turn + 1 >= arm.every else spent * -(-task.rounds // arm.every)
            if spent > min(PATIENCE, limit) and whole > limit and done < total / 2:
                return {"each": whole / total, "decisions": done, "gave_up": whole}
    spent = time.perf_counter() - begun
    return {"each": spent / done, "decisions": done, "earned": earned.tolist(), "clicks": clicks.tolist()}


def main(name: str, folder: str, out: str, limit: str) -> None:
    module, _, kind = name.partition(":")
    task = Task.load(Path(folder))
    start = time.perf_counter()
    made = getattr(importlib.import_module(module), kind)
    arm = made(task)
    told = {"setup": time.perf_counter() - start, "version": importlib.metadata.version(made.package or "numpy")}
    Path(out).write_text(json.dumps(told | play(arm, task, float(limit))))


if __name__ == "__main__":
    main(*sys.argv[1:])
