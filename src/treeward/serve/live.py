"""What the service did, second by second, during the last quarter of an hour."""

from collections import deque
from time import time
from typing import NamedTuple

import numpy as np

from treeward.serve import wire
from treeward.serve.metrics import STEPS, Metrics
from treeward.serve.service import Served

_KEPT = 900
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


class Live:
    """Keeps one row per second."""

    def __init__(self, served: Served, metrics: Metrics) -> None:
        self._served, self._metrics = served, metrics
        self._rows: deque[wire.Second] = deque(maxlen=_KEPT)
        self._before = self._totals()
        self._then = time()

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

    def _totals(self) -> _Totals:
        service, store = self._served.service, self._served.store
        totals = service.explorer.inspect.totals()
        return _Totals(
            service.decisions, service.bold, totals.rewards, totals.earned, store.status().commits,
            self._metrics.refused(), totals.items, self._metrics.times(_RECOMMEND), self._metrics.times(_FEEDBACK),
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
