"""Moving everything from one store to another, while the first may still be written to.

A user's events only ever grow at the end, and a store knows how many it has: what a copy lacks is what comes after that
many. So a copy that was cut off goes on where it stopped, and one of a store in use is brought up again and again until
nothing is left to bring.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from treeward.core.errors import StoreError
from treeward.core.progress import Progress, Stage, silent
from treeward.store.base import EventStore, User
from treeward.store.events import EVENT

ROUNDS = 8
"""How often a copy tries to catch up with a store that is written to."""
_AT_ONCE = 500


class Copied(NamedTuple):
    """What a copy did."""

    users: int
    """How many the copy has."""
    events: int
    """How many were brought this time."""
    complete: bool
    """Whether the copy is whole and was compared; else the other store was written to all the while."""


def copy(source: EventStore, target: EventStore, progress: Progress = silent, *, rounds: int = ROUNDS) -> Copied:
    """Make one store what another is: events, items, trees, decisions that are open, who was forgotten or merged.

    Parameters
    ----------
    source
        Where from; it is only read, and may be in use.
    target
        Where to: a new store, or a copy of the same source that was begun. Nobody is served from it before it is whole.
    progress
        Called with (stage, done, total).
    rounds
        How often to try to catch up.
    """
    brought = 0
    target.adopt(source.head()._replace(unfinished=True))
    for _ in range(rounds):
        new, gone = _bring(source, target, progress)
        brought += new
        head = source.head()
        target.adopt(head._replace(unfinished=True))
        if not new and not gone and _agree(source, target, progress) and source.head().epoch == head.epoch:
            target.adopt(source.head()._replace(unfinished=False))
            target.flush()
            return Copied(target.size(), brought, True)
    target.flush()
    return Copied(target.size(), brought, False)


def _some(store: EventStore) -> Iterator[list[User]]:
    """Return everybody, some at a time."""
    users = list(store.users())
    for first in range(0, len(users), _AT_ONCE):
        yield users[first : first + _AT_ONCE]


def _bring(source: EventStore, target: EventStore, progress: Progress) -> tuple[int, int]:
    """Add what the target lacks, and remove who is gone; return how many events and users that were."""
    stage, new = Stage(progress, "copying users", source.size()), 0
    for some in _some(source):
        have = target.counts(some)
        lacking = source.newer(some, have)
        if any(len(events) for events in lacking):
            counts = np.array([len(events) for events in lacking], dtype=np.int64)
            target.extend(some, counts, _joined(lacking))
            new += int(counts.sum())
        stage.step(len(some))
    stage.finish()
    # Removing somebody from the copy begins an epoch there; the source's head takes its place.
    gone = [user for some in _some(target) for user, count in zip(some, source.counts(some), strict=True) if not count]
    for user in gone:
        target.forget(user, wait=False)
    return new, len(gone)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.frombuffer(b"".join(part.tobytes() for part in parts), dtype=EVENT)


def _agree(source: EventStore, target: EventStore, progress: Progress) -> bool:
    """Compare every event; tell whether the target lacks nothing now, and refuse what is not the same."""
    stage, same = Stage(progress, "comparing users", source.size()), True
    for some in _some(source):
        whole = [0] * len(some)
        for user, theirs, mine in zip(some, source.newer(some, whole), target.newer(some, whole), strict=True):
            if mine.tobytes() != theirs[: len(mine)].tobytes():
                raise StoreError(
                    f"{target}: the events of {user!r:.60} are not those of {source}: begin with a new store"
                )
            same &= len(mine) == len(theirs)
        stage.step(len(some))
    stage.finish()
    return same and source.size() == target.size()
