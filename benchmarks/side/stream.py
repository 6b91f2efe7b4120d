"""One side in a stream of visits, in an interpreter of its own: ``python stream.py MODULE:CLASS TASK OUT LIMIT``.

The task's folder is that of `task.Task`, where a coin is a user's luck on a visit, with ``visits.npy``: the users in
the order of their visits. No item is shown to a user twice. Feedback comes at once, before the next visit.
"""

import importlib
import importlib.metadata
import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from task import Arm, Result, Task

PATIENCE = 15.0
"""Seconds after which it is clear whether a side will make it."""


def play(arm: Arm, task: Task, visits: NDArray[np.int64], limit: float) -> Result:
    """Serve all visits in order; give up as soon as `limit` seconds will not suffice."""
    clicks = np.zeros(len(visits))
    came = np.zeros(task.users, dtype=np.int64)
    begun = time.perf_counter()
    for at, user in enumerate(visits.tolist()):
        row = arm.choose(user)
        click = float(task.coins[user, came[user]] < task.chances[user, row])
        arm.learn(user, row, click)
        came[user] += 1
        clicks[at] = click
        spent = time.perf_counter() - begun
        whole = spent / (at + 1) * len(visits)
        if spent > min(PATIENCE, limit) and whole > limit and at < len(visits) / 2:
            return {"each": whole / len(visits), "visits": at + 1, "gave_up": whole}
    late = clicks[2 * len(clicks) // 3 :]
    each = (time.perf_counter() - begun) / len(visits)
    return {"each": each, "visits": len(visits), "clicks": float(clicks.mean()), "last": float(late.mean())}


def main(name: str, folder: str, out: str, limit: str) -> None:
    module, _, kind = name.partition(":")
    task, visits = Task.load(Path(folder)), np.load(Path(folder) / "visits.npy")
    made = getattr(importlib.import_module(module), kind)
    told = {"version": importlib.metadata.version(made.package or "numpy")}
    Path(out).write_text(json.dumps(told | play(made(task), task, visits, float(limit))))


if __name__ == "__main__":
    main(*sys.argv[1:])
