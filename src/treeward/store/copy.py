"""Copying everything from one store to another, while the first may still be written to.

A user's events only grow at the end, and a store knows how many it has: what a copy lacks is what comes after that
many. So a copy that was interrupted goes on where it stopped, and a copy of a store in use catches up in rounds until
nothing is missing.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from treeward.core.errors import InvalidArgument, StoreError
from treeward.core.progress import Progress, Stage, silent
from treeward.store.base import EventStore, count_users, join
from treeward.store.events import EVENT
from treeward.store.identities import Identities
from treeward.store.numbers import ITEMS, SNAPSHOTS

ROUNDS = 8
"""How often a copy tries to catch up with a store that is written to."""
_KEY = "copy"
"""In a copy's metadata: the epoch of the source it has reached, and whether it is complete. Empty once it served."""


class Copied(NamedTuple):
    """The result of a copy."""

    users: int
    """How many the copy has."""
    events: int
    """How many were copied this time."""
    complete: bool
    """Whether the copy is complete and was compared; if not, the source was written to all the time."""


def copy(source: EventStore, target: EventStore, progress: Progress = silent, *, rounds: int = ROUNDS) -> Copied:
    """Make one store equal to another: events, items, trees, open decisions, users who were forgotten or merged.

    Parameters
    ----------
    source
        The store to copy; it is only read, and may be in use.
    target
        A new store, or a copy of the same source that has not served traffic.
    progress
        Called with (stage, done, total).
    rounds
        How often to try to catch up.
    """
    if is_incomplete(source):
        raise StoreError(f"{source!r}: a copy that lacks events; `treeward store copy` finishes it")
    copied, seen = 0, _refuse_others(source, target)
    _check_names(source, target)
    for _ in range(rounds):
        metadata = dict(source.metadata.list())
        _follow(Identities(metadata), target, seen)
        seen = _take(target, metadata, complete=False)
        new = _copy_events(source, target, progress)
        copied += new
        if not new and _compare(source, target, seen, progress):
            metadata = dict(source.metadata.list())
            if int(metadata["epoch"]) == seen:
                _take(target, metadata, complete=True)
                target.flush()
                return Copied(count_users(target), copied, True)
    target.flush()
    return Copied(count_users(target), copied, False)


def is_incomplete(store: EventStore) -> bool:
    """Return whether a store is a copy that lacks events: it must not serve traffic."""
    value = store.metadata.get(_KEY)
    return bool(value) and not json.loads(value or b"{}")["complete"]


def mark_served(store: EventStore) -> None:
    """Record that a store serves traffic: a copy that did cannot be resynchronised."""
    if store.metadata.get(_KEY):
        store.metadata.put({_KEY: b""})


def _refuse_others(source: EventStore, target: EventStore) -> int:
    """Return the epoch of the source that a copy has reached; refuse what is no copy of it, or served traffic."""
    value, same = target.metadata.get(_KEY), target.identities.secret == source.identities.secret
    if value:
        if not same:
            raise StoreError(f"{target!r}: a copy of another store")
        _refuse_numbers(source, target)
        return int(json.loads(value)["epoch"])
    new = {key for key, _ in target.metadata.list()} == set(Identities.first())
    if same or not new or next(target.users(), None):
        what = "has served traffic since it was copied" if same else "holds events of its own"
        raise StoreError(f"{target!r}: {what}; only a new store can become a copy")
    return source.identities.epoch


def _refuse_numbers(source: EventStore, target: EventStore) -> None:
    """Refuse a copy that gave numbers of its own to items or trees: its events would be about other ones."""
    for prefix in (ITEMS, SNAPSHOTS):
        # The source's last: it may give new numbers at any time, and never takes one back.
        mine = {key for key, _ in target.metadata.list(prefix)}
        if mine - {key for key, _ in source.metadata.list(prefix)}:
            raise StoreError(f"{target!r}: has numbered items or trees of its own since it was copied; use a new store")


def _check_names(source: EventStore, target: EventStore) -> None:
    """Refuse users whose names the target cannot hold, before anything is copied."""
    for users in source.users():
        try:
            target.extend(users, np.zeros(len(users), dtype=np.int64), np.zeros(0, dtype=EVENT))
        except InvalidArgument as error:
            raise StoreError(f"{target!r}: cannot hold all users of {source!r}: {error}; nothing was copied") from error


def _take(target: EventStore, metadata: Mapping[str, bytes], *, complete: bool) -> int:
    """Write the source's metadata into the copy, and return the epoch that it has reached."""
    epoch, there = int(metadata["epoch"]), dict(target.metadata.list())
    reached = json.dumps({"epoch": epoch, "complete": complete}).encode()
    # The epoch is always among them: with it the target reads its identities again.
    changed: dict[str, bytes | None] = dict.fromkeys(there.keys() - metadata.keys())
    changed |= {key: value for key, value in metadata.items() if key == "epoch" or there.get(key) != value}
    target.metadata.put({**changed, _KEY: reached})
    return epoch


def _follow(identities: Identities, target: EventStore, seen: int) -> None:
    """Erase users from the copy who were forgotten or merged since an epoch, even if they are there again."""
    # This begins epochs in the copy; the source's metadata, which is written next, corrects that.
    for users in target.users():
        for user in users:
            if identities.moved_since(user, seen):
                target.move(user, None)


def _copy_events(source: EventStore, target: EventStore, progress: Progress) -> int:
    """Add what the target lacks; return how many events that were."""
    stage, new = Stage(progress, "copying users", count_users(source)), 0
    for users in source.users():
        have = target.counts(users)
        lacking = source.read(users, have)
        counts = np.array([len(events) for events in lacking], dtype=np.int64)
        if counts.any():
            target.extend(users, counts, join(lacking), have)
            new += int(counts.sum())
        stage.step(len(users))
    stage.finish()
    return new


def _compare(source: EventStore, target: EventStore, seen: int, progress: Progress) -> bool:
    """Compare every event; return whether the target lacks nothing now, and refuse what differs.

    A user who was forgotten or merged since the epoch `seen` may differ, and follows in the next round.
    """
    users_of_source = count_users(source)
    stage, same = Stage(progress, "comparing users", users_of_source), True
    for users in source.users():
        for user, theirs, mine in zip(users, source.read(users), target.read(users), strict=True):
            alike = mine.tobytes() == theirs[: len(mine)].tobytes()
            if not alike and not source.identities.moved_since(user, seen):
                raise StoreError(f"{target!r}: the events of {user!r:.60} are not those of {source!r}: use a new store")
            same &= alike and len(mine) == len(theirs)
        stage.step(len(users))
    stage.finish()
    return same and users_of_source == count_users(target)
