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
from treeward.store.heads import Head

ROUNDS = 8
"""How often a copy tries to catch up with a store that is written to."""
_AT_ONCE = 500
_NOTE = "copy"
"""Of a copy: up to which epoch of the source it has come, and that nobody was served from it."""


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
        Where to: a new store, or a copy of the same source from which nobody was served yet, nor is before it is whole.
    progress
        Called with (stage, done, total).
    rounds
        How often to try to catch up.
    """
    brought = 0
    seen = _refuse_strangers(source, target)
    for _ in range(rounds):
        head = source.head()
        _follow(source, target, seen)
        _take(target, head, unfinished=True)
        seen = head.epoch
        new = _bring(source, target, progress)
        brought += new
        if not new and _agree(source, target, seen, progress):
            after = source.head()
            if after.epoch == head.epoch:
                _take(target, after, unfinished=False)
                target.flush()
                return Copied(target.size(), brought, True)
    target.flush()
    return Copied(target.size(), brought, False)


def served(store: EventStore) -> None:
    """Note that a store that was a copy goes its own way from now on."""
    if store.note(_NOTE):
        store.take_note(_NOTE, b"")


def _refuse_strangers(source: EventStore, target: EventStore) -> int:
    """Return up to which epoch of the source a copy has come; refuse what is no copy of it, or was served from."""
    note = target.note(_NOTE)
    if note:
        if target.secret() != source.secret():
            raise StoreError(f"{target!r}: a copy of another store")
        return int(note)
    if target.size() or len(target.head().items) or target.secret() == source.secret():
        what = (
            "goes its own way since it was copied" if target.secret() == source.secret() else "holds events of its own"
        )
        raise StoreError(f"{target!r}: {what}; only a new store can become a copy")
    return source.epoch


def _take(target: EventStore, head: Head, *, unfinished: bool) -> None:
    notes = {**head.notes, _NOTE: str(head.epoch).encode()}
    target.adopt(head._replace(unfinished=unfinished, notes=notes))


def _follow(source: EventStore, target: EventStore, seen: int) -> None:
    """Remove from the copy who was forgotten or merged since an epoch, even if they are there again."""
    # Removing somebody begins an epoch in the copy; the source's head, which is taken next, puts that right.
    for some in _some(target):
        for user in some:
            if source.resolve(user, seen) != user:
                target.forget(user, wait=False)


def _some(store: EventStore) -> Iterator[list[User]]:
    """Return everybody, some at a time."""
    users = list(store.users())
    for first in range(0, len(users), _AT_ONCE):
        yield users[first : first + _AT_ONCE]


def _bring(source: EventStore, target: EventStore, progress: Progress) -> int:
    """Add what the target lacks; return how many events that were."""
    stage, new = Stage(progress, "copying users", source.size()), 0
    for some in _some(source):
        have = target.counts(some)
        lacking = source.newer(some, have)
        if any(len(events) for events in lacking):
            counts = np.array([len(events) for events in lacking], dtype=np.int64)
            target.extend(some, counts, _joined(lacking), have)
            new += int(counts.sum())
        stage.step(len(some))
    stage.finish()
    return new


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.frombuffer(b"".join(part.tobytes() for part in parts), dtype=EVENT)


def _agree(source: EventStore, target: EventStore, seen: int, progress: Progress) -> bool:
    """Compare every event; tell whether the target lacks nothing now, and refuse what is not the same.

    Who was forgotten or merged since the epoch `seen` is not the same person, and follows in the next round.
    """
    stage, same = Stage(progress, "comparing users", source.size()), True
    for some in _some(source):
        whole = [0] * len(some)
        for user, theirs, mine in zip(some, source.newer(some, whole), target.newer(some, whole), strict=True):
            alike = mine.tobytes() == theirs[: len(mine)].tobytes()
            if not alike and source.resolve(user, seen) == user:
                what = f"the events of {user!r:.60} are not those of {source}"
                raise StoreError(f"{target}: {what}: begin with a new store")
            same &= alike and len(mine) == len(theirs)
        stage.step(len(some))
    stage.finish()
    return same and source.size() == target.size()
