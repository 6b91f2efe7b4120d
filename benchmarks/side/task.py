"""The task of every side: a world in a folder, and the interface of an arm. Needs numpy alone."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DRAWN = 50
"""How many items are drawn for a side that cannot look at all of them."""
ALPHA = 0.5
"""The width of LinUCB's bounds, everywhere."""


class Task(NamedTuple):
    """A catalogue, users whose chances of a click are known, and a log of earlier users shown random items."""

    vectors: NDArray[np.float32]
    chances: NDArray[np.float32]
    coins: NDArray[np.float64]
    log: NDArray[np.int64]
    """(events, 3): user (numbered after those of the task), item's row, click."""
    seed: int

    @property
    def users(self) -> int:
        return len(self.chances)

    @property
    def items(self) -> int:
        return len(self.vectors)

    @property
    def rounds(self) -> int:
        return self.coins.shape[1]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("vectors", "chances", "coins", "log"):
            np.save(folder / f"{name}.npy", getattr(self, name))
        (folder / "task.json").write_text(json.dumps({"seed": self.seed}))

    @classmethod
    def load(cls, folder: Path) -> "Task":
        arrays = (np.load(folder / f"{name}.npy") for name in ("vectors", "chances", "coins", "log"))
        return cls(*arrays, json.loads((folder / "task.json").read_text())["seed"])


class Arm:
    """A side in the comparison. Users are numbers from 0, items are rows; rewards are 0 or 1."""

    package = ""
    """The distribution whose version is reported."""
    every = 1
    """Rounds from one fit to the next."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.random = np.random.default_rng(task.seed + 1)

    def begin(self, turn: int) -> None:
        """Do the work between rounds, such as fitting again."""

    def choose(self, user: int) -> int:
        raise NotImplementedError

    def learn(self, user: int, row: int, reward: float) -> None:
        raise NotImplementedError

    def drawn(self) -> NDArray[np.int64]:
        """Return the rows of a shortlist, drawn from all items."""
        return self.random.choice(self.task.items, min(DRAWN, self.task.items), replace=False)


class Once(Arm):
    """An arm that shows no item twice to a user: it chooses among items drawn from those the user has not seen."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.seen: list[set[int]] = [set() for _ in range(task.users)]

    def unseen(self, user: int) -> list[int]:
        """Return the rows of a shortlist, drawn from all items that the user has not seen."""
        found: list[int] = []
        while not found:
            found = [row for row in self.drawn().tolist() if row not in self.seen[user]]
        return found


class Profiled(Arm):
    """An arm with one model per item; its context is the mean vector of what the user liked so far, and a constant."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.sums = np.zeros((task.users, task.vectors.shape[1]))

    def profile(self, user: int) -> NDArray[np.float64]:
        mean = self.sums[user]
        return np.concatenate([[1.0], mean / max(float(np.linalg.norm(mean)), 1e-9)])[None]

    def note(self, user: int, row: int, reward: float) -> None:
        self.sums[user] += reward * self.task.vectors[row]


Result = dict[str, Any]
