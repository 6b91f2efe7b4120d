"""Vowpal Wabbit: contextual bandits with action-dependent features.

A user's name crossed with the item's vector (``-q UI``) gives every user a linear model, in addition to one that all
users share.
"""

from typing import Any

import numpy as np
from task import Arm, Once, Task

OPTIONS = "--cb_explore_adf -q UI --quiet"


class Wabbit(Arm):
    """Every item an action. Items are parsed once and used again, which makes no difference but a fifth of the time."""

    package = "vowpalwabbit"
    options = f"{OPTIONS} --squarecb --gamma_scale 1000"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import vowpalwabbit
        from vowpalwabbit.pyvw import LabelType

        self.vw, self.kind = vowpalwabbit.Workspace(f"{self.options} --random_seed {task.seed}"), LabelType
        self.lines = ["|I " + " ".join(f"{j}:{v:.6g}" for j, v in enumerate(row)) for row in task.vectors.tolist()]
        self.parsed = [self.example(line) for line in self.lines]

    def example(self, line: str) -> Any:
        return self.vw.example(line, self.kind.CONTEXTUAL_BANDIT)

    def candidates(self) -> list[int]:
        return list(range(self.task.items))

    def choose(self, user: int) -> int:
        self.rows = self.candidates()
        self.examples = [self.example(f"shared |U u{user}"), *(self.parsed[row] for row in self.rows)]
        chances = np.asarray(self.vw.predict(self.examples))
        self.at = int(self.random.choice(len(chances), p=chances / chances.sum()))
        self.chance = float(chances[self.at])
        return self.rows[self.at]

    def learn(self, user: int, row: int, reward: float) -> None:
        self.examples[self.at + 1] = self.example(f"0:{-reward}:{self.chance} {self.lines[row]}")
        self.vw.learn(self.examples)


class Shortlisted(Wabbit):
    """50 items drawn a decision are the actions."""

    options = f"{OPTIONS} --squarecb --gamma_scale 300"

    def candidates(self) -> list[int]:
        return [int(row) for row in self.drawn()]


class Large(Wabbit):
    """Every item an action, thinned out by VW's own algorithm for many actions."""

    options = f"{OPTIONS} --epsilon 0.05 --large_action_space --max_actions 20"


class Visited(Once):
    """For a stream of visits: 50 items that the user has not seen are the actions.

    An item has its vector, crossed with the user's name, and its own name, which all users share.
    Exploration was chosen on another world, among 1 to 10,000.
    """

    package = "vowpalwabbit"
    options = f"{OPTIONS} --squarecb --gamma_scale 10000"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import vowpalwabbit
        from vowpalwabbit.pyvw import LabelType

        self.vw = vowpalwabbit.Workspace(f"{self.options} --random_seed {task.seed % 2**31}")
        self.kind = LabelType.CONTEXTUAL_BANDIT
        self.lines = [
            f"|I {' '.join(f'{j}:{v:.6g}' for j, v in enumerate(row))} |N n{at}"
            for at, row in enumerate(task.vectors.tolist())
        ]

    def choose(self, user: int) -> int:
        self.rows = self.unseen(user)
        self.examples = [self.vw.example(line, self.kind) for line in
                         (f"shared |U u{user}", *(self.lines[row] for row in self.rows))]  # fmt: skip
        chances = np.asarray(self.vw.predict(self.examples))
        self.at = int(self.random.choice(len(chances), p=chances / chances.sum()))
        self.chance = float(chances[self.at])
        return self.rows[self.at]

    def learn(self, user: int, row: int, reward: float) -> None:
        self.seen[user].add(row)
        self.examples[self.at + 1] = self.vw.example(f"0:{-reward}:{self.chance} {self.lines[row]}", self.kind)
        self.vw.learn(self.examples)


class VisitedLarge(Visited):
    """The same, thinned out by VW's own algorithm for many actions."""

    options = f"{OPTIONS} --squarecb --gamma_scale 10000 --large_action_space --max_actions 20"
