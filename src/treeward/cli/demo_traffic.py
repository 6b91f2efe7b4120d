"""Simulated visitors of a running service: they ask for an item, and click or do not, as their world says."""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from threading import Event
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from treeward.client import Client
from treeward.core import rng
from treeward.core.progress import Progress, Stage, silent
from treeward.simulate import World

_REMEMBERED = 100_000


class Visit(NamedTuple):
    """One visit."""

    clicked: bool
    asked: float
    """Seconds until the item arrived."""
    told: float
    """Seconds until the reward was on disk."""


class Visitors:
    """The users of a world as visitors of a service: a few come often, most rarely.

    Parameters
    ----------
    url
        Where the service listens.
    world
        The users and their tastes; the first `users` of it come.
    seed
        Determines who comes when, and who clicks.
    """

    def __init__(self, url: str, world: World, users: int, seed: int) -> None:
        self._client, self._world, self._users, self._seed = Client(url, timeout=30.0), world, users, seed
        self._number = 0
        self.visits: deque[Visit] = deque(maxlen=_REMEMBERED)
        """The latest visits."""

    def come(self, count: int | None, stop: Event, *, pause: float = 0.0, progress: Progress = silent) -> None:
        """Make `count` visits, or visits until `stop` is set, with a pause after each."""
        stage = Stage(progress, "visitors", count) if count is not None else None
        while not stop.is_set() and (count is None or count > 0):
            self.visits.append(self._visit(self._number))
            self._number += 1
            if stage is not None and count is not None:
                stage.step()
                count -= 1
            stop.wait(pause)

    def crowd(self) -> dict[str, Any]:
        """Return what the service learned from all visitors."""
        return self._client.crowd()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _visit(self, number: int) -> Visit:
        who, luck = rng.uniforms(self._seed, rng.stream("visit", number), 2)
        user = int(self._users * who**3)
        start = perf_counter()
        [choice] = self._client.recommend(f"visitor-{user}")
        asked = perf_counter()
        row = self._world.catalogue.row(choice["item"])
        clicked = bool(luck < self._world.chances([user], [row])[0])
        self._client.feedback(choice["decision_id"], float(clicked))
        return Visit(clicked, asked - start, perf_counter() - asked)


class Summary(NamedTuple):
    """Visits in figures; times in milliseconds."""

    visits: int
    clicks: int
    median: float
    """Until an item arrived, half the time."""
    slowest: float
    """Until an item arrived, in 99 of 100 visits."""
    told: float
    """Until a reward was on disk, in 99 of 100 visits."""

    @classmethod
    def of(cls, visits: Iterable[Visit]) -> "Summary":
        """Summarise visits, of which there is at least one."""
        visits = list(visits)
        asked, told = (1e3 * np.array([getattr(one, name) for one in visits]) for name in ("asked", "told"))
        return cls(
            len(visits), sum(one.clicked for one in visits),
            float(np.median(asked)), float(np.quantile(asked, 0.99)), float(np.quantile(told, 0.99)),
        )  # fmt: skip


def rates(visits: Iterable[Visit], at_a_time: int) -> list[tuple[int, int, float]]:
    """Return clicks per visit for groups of `at_a_time` visits: the first visit, one past the last, and the rate.

    A last group of less than half the size is merged with the one before it.
    """
    clicked = np.array([one.clicked for one in visits], dtype=np.float64)
    edges = [*range(0, len(clicked), at_a_time), len(clicked)]
    if len(edges) > 2 and 2 * (edges[-1] - edges[-2]) < at_a_time:
        del edges[-2]
    return [(first, last, float(clicked[first:last].mean())) for first, last in pairwise(edges)]
