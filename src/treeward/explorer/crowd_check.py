"""Checks that the crowd's edition in a store follows from the store's events."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.item_sums import ItemSums, of_decisions
from treeward.core.errors import ArtefactCorrupt
from treeward.core.progress import Progress, silent
from treeward.core.types import AnyArray
from treeward.explorer.crowd_edition import CrowdEdition
from treeward.explorer.crowd_keeper import NOTE
from treeward.store.check import Report, check

_CLOSE = 1e-6
"""With a half-life, sums are equal only up to rounding."""


class _Recount:
    """All rewards, to be added up once the edition says with which half-life."""

    def __init__(self) -> None:
        self._pieces: list[AnyArray] = []

    def add(self, events: AnyArray) -> None:
        taught = events[of_decisions(events)]
        if len(taught):
            self._pieces.append(taught)

    def sums(self, half_life: float) -> tuple[ItemSums, int]:
        made = ItemSums(half_life or None)
        for events in self._pieces:
            made.add(events)
        return made, sum(map(len, self._pieces))


def check_with_crowd(path: str | Path, progress: Progress = silent) -> tuple[Report, str]:
    """Check a store, and the crowd's edition in it by adding up all rewards again.

    Returns
    -------
    Report, str
        What was found, and a sentence about the edition; none if the store has none.
    """
    recount = _Recount()
    report = check(path, progress, recount.add)
    content = report.metadata.get(NOTE)
    if content is None:
        return report, ""
    try:
        edition = CrowdEdition.unpacked(content)
    except ArtefactCorrupt as error:
        problem = f'the metadata "{NOTE}": {error}; a service makes another when it starts'
        return report._replace(problems=(*report.problems, problem)), ""
    if report.problems:  # events may be missing
        return report, ""
    sums, events = recount.sums(edition.half_life)
    epoch = int(report.metadata["epoch"])
    problems = _problems(edition, sums, events, epoch)
    new = events - edition.events
    since = "nothing came since" if not new else f"{new:,} rewards and changes came since"
    if edition.epoch != epoch:
        since = "users were erased or merged since"
    told = f"the crowd: edition {edition.number:,}, of {edition.rewards:,} rewards; {since}"
    named = tuple(f'the metadata "{NOTE}": {one}' for one in problems)
    return report._replace(problems=(*report.problems, *named)), told


def _problems(edition: CrowdEdition, sums: ItemSums, events: int, epoch: int) -> list[str]:
    """Return what is wrong with an edition, given the sums of the store's events."""
    if edition.epoch > epoch:
        return [f"it is of epoch {edition.epoch}, the store of {epoch}"]
    if edition.epoch < epoch:
        return []  # who was erased since is still in it, until a service makes the next one
    if edition.rewards > sums.rewards or edition.events > events:
        return [f"it knows {edition.rewards:,} rewards, the store has {sums.rewards:,}"]
    if edition.given:
        return []  # what the crowd began with is in its sums, and not in the store
    count, total = (_at(values, edition.numbers) for values in (sums.count, sums.total))
    more = np.flatnonzero(edition.times > count * (1 + _CLOSE)) if not edition.half_life else np.zeros(0, np.int64)
    if len(more):
        return [f"{len(more)} item(s) have more rewards in it than in the store, the first is number "
                f"{edition.numbers[more[0]]}"]  # fmt: skip
    if edition.events < events:
        return []
    close = _CLOSE if edition.half_life else 0.0
    for what, mine, theirs in (
        ("counts", edition.times, count),
        ("sums", edition.earned, total),
        ("squares", np.array([edition.squares]), np.array([sums.squares])),
    ):
        differ = np.flatnonzero(~np.isclose(mine, theirs, rtol=close, atol=close))
        if len(differ):
            return [f"{len(differ)} of its {what} are not the sums of the events"]
    return []


def _at(values: AnyArray, numbers: AnyArray) -> NDArray[np.float64]:
    """Return the values of some item numbers; 0 where there are none."""
    made = np.zeros(len(numbers))
    known = numbers < len(values)
    made[known] = values[numbers[known]]
    return made
