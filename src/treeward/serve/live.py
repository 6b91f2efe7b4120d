"""What the service did: second by second during the last quarter of an hour, and in larger parts since its start."""

from collections import deque
from time import time
from typing import NamedTuple

import numpy as np

from treeward.serve import wire
from treeward.serve.groups import GROUPED, GROUPS
from treeward.serve.metrics import STEPS, Metrics
from treeward.serve.service import Served

_KEPT, _PERIODS = 900, 240
_FOUND = 5
"""An item counts as found once it has earned the largest reward this often."""
_RECOMMEND, _FEEDBACK = "/v1/recommend", "/v1/feedback"


class _Totals(NamedTuple):
    """Totals since the start."""

    decisions: int
    bold: int
    rewards: int
    earned: float
    commits: int
    refused: int
    covered: int
    recommend: list[int]
    """Histogram of response times of recommend ..."""
    feedback: list[int]
    """... and of feedback."""
    by_group: tuple[float, ...]
    """Decisions and rewards' sum of users who are explored for, and of those held out; over all workers."""


class Periods:
    """What happened since the start, in parts of equal length: when there are too many, every two become one."""

    def __init__(self, most: int) -> None:
        self._most, self._length, self._count = most, 1, 0
        self._rows: list[wire.Period] = []

    def add(self, row: wire.Period) -> None:
        """Add what happened since the last row."""
        rows = self._rows
        if self._count % self._length:
            rows[-1] = _joined(rows[-1], row)
        else:
            if len(rows) == self._most:
                rows[:] = [_joined(rows[i], rows[i + 1]) for i in range(0, self._most, 2)]
                self._length *= 2
            rows.append(row)
        self._count += 1

    def columns(self) -> dict[str, list[float]]:
        """Return them as columns, the last part as far as it has come."""
        rows = list(self._rows)
        return {name: [getattr(row, name) for row in rows] for name in wire.Period.__struct_fields__}


def _joined(one: wire.Period, next: wire.Period) -> wire.Period:
    return wire.Period(
        next.time, one.explored + next.explored, round(one.explored_earned + next.explored_earned, 6),
        one.held_out + next.held_out, round(one.held_out_earned + next.held_out_earned, 6), next.covered,
    )  # fmt: skip


class Live:
    """Keeps one row per second."""

    def __init__(self, served: Served, metrics: Metrics) -> None:
        self._served, self._metrics = served, metrics
        self._rows: deque[wire.Second] = deque(maxlen=_KEPT)
        self._periods = Periods(_PERIODS)
        self._first = self._before = self._totals()
        self._since = self._then = time()

    def sample(self) -> None:
        """Add a row of what happened since the last one."""
        now, totals, before = time(), self._totals(), self._before
        seconds = max(now - self._then, 1e-3)
        store = self._served.store
        asked = [new - old for new, old in zip(totals.recommend, before.recommend, strict=True)]
        given = [new - old for new, old in zip(totals.feedback, before.feedback, strict=True)]
        self._rows.append(
            wire.Second(
                round(now, 3),
                round(sum(asked) / seconds, 2),
                round(sum(given) / seconds, 2),
                totals.refused - before.refused,
                totals.decisions - before.decisions,
                totals.bold - before.bold,
                totals.rewards - before.rewards,
                round(totals.earned - before.earned, 6),
                totals.covered,
                percentile(asked, 0.5),
                percentile(asked, 0.99),
                percentile(given, 0.99),
                store.status().waiting,
                totals.commits - before.commits,
            )
        )
        explored, explored_earned, held_out, held_out_earned = (
            round(new - old, 6) for new, old in zip(totals.by_group, before.by_group, strict=True)
        )
        self._periods.add(
            wire.Period(round(now, 3), int(explored), explored_earned, int(held_out), held_out_earned, totals.covered)
        )
        self._before, self._then = totals, now

    def since(self, after: float, reason: str) -> wire.LiveView:
        """Return the rows after a time, as columns, and the totals."""
        rows = [row for row in list(self._rows) if row.time > after]
        columns = {name: [getattr(row, name) for row in rows] for name in wire.Second.__struct_fields__}
        explorer, totals = self._served.explorer, self._totals()
        status = explorer.store.status()
        return wire.LiveView(
            columns, totals.decisions, totals.rewards, totals.earned, status.users,
            len(explorer), status.problem is None, reason,
        )  # fmt: skip

    def overview(self) -> wire.Overview:
        """Return what was done since the start."""
        explorer, totals = self._served.explorer, self._totals()
        counts, high = self._served.service.groups.counts, self._served.settings.reward_high
        decisions, rewards, earned = (sum(counts.total(name, group) for group in GROUPS) for name in GROUPED)
        found_at = max(0.0, _FOUND * high)
        return wire.Overview(
            round(self._since, 3), self._periods.columns(), int(decisions), int(rewards), round(earned, 6),
            explorer.store.status().users, len(explorer), totals.covered,
            max(0, totals.covered - self._first.covered),
            explorer.inspect.items_earning(found_at) if found_at else 0, found_at,
        )  # fmt: skip

    def _totals(self) -> _Totals:
        counts = self._served.service.groups.counts
        service, store = self._served.service, self._served.store
        totals = service.explorer.inspect.totals()
        return _Totals(
            service.decisions, service.bold, totals.rewards, totals.earned, store.status().commits,
            self._metrics.refused(), totals.items, self._metrics.times(_RECOMMEND), self._metrics.times(_FEEDBACK),
            tuple(counts.total(name, group) for group in GROUPS for name in ("decisions", "earned")),
        )  # fmt: skip


def percentile(counts: list[int], share: float) -> float | None:
    """Return the milliseconds within which a share of requests was answered; None: there were no requests."""
    total = sum(counts)
    if not total:
        return None
    edges = [0.0, *STEPS, 2 * STEPS[-1]]
    upto = np.concatenate([[0], np.cumsum(counts)])
    at = min(int(np.searchsorted(upto, share * total, side="left")), len(counts))
    inside = (share * total - upto[at - 1]) / max(counts[at - 1], 1)
    return round(float(1e3 * (edges[at - 1] + inside * (edges[at] - edges[at - 1]))), 3)
