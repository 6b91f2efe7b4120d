"""`EventStore`: what every store of events promises. `treeward.testing.check_store` tells whether one keeps it.

A user's state is the ordered list of their events and nothing else, so a store is all there is to keep safe.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.types import AnyArray
from treeward.store.events import Kept
from treeward.store.heads import Head
from treeward.store.users import User, spelled

__all__ = ["EventStore", "User", "spelled"]


class EventStore(Protocol):
    """Keeps every user's events in the order they came. Calls may come from several threads."""

    @property
    def remote(self) -> bool:
        """Whether others may write to it as well, and every question takes a while."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether it is a copy that lacks events (see `adopt`): nobody is served from it."""
        ...

    def append(
        self,
        users: Sequence[User],
        events: AnyArray,
        known: NDArray[np.int64] | None = None,
        *,
        within: float | None = None,
        epoch: int | None = None,
    ) -> NDArray[np.bool_]:
        """Add one event a user, all in one step, and return which were added.

        A reward for a decision (a nonce other than 0) that this user has a reward for already is not added again. A
        change is added only if the decision has `known` rewards and changes so far, where that is given. They are safe
        when this returns or, with `within`, so many seconds later. With `epoch`, nothing at all is added if users were
        forgotten or merged since then: who asks must find out anew whose events these are.
        """
        ...

    def flush(self) -> None:
        """Return when everything added so far is safe."""
        ...

    def extend(
        self, users: Sequence[User], counts: NDArray[np.int64], events: AnyArray, after: Sequence[int] | None = None
    ) -> None:
        """Add many events: the first counts[0] are for the first user, and so on; nothing is looked for twice.

        With `after`, nothing at all is added, and that is an error, unless the users have just so many events.
        """
        ...

    def count(self, user: User) -> int:
        """Return how many events a user has; 0 for somebody unknown."""
        ...

    def counts(self, users: Sequence[User]) -> list[int]:
        """Return how many events each user has."""
        ...

    def read(self, user: User, after: int = 0) -> AnyArray:
        """Return a copy of a user's events, in order, without the first `after`."""
        ...

    def newer(self, users: Sequence[User], after: Sequence[int]) -> list[AnyArray]:
        """Return each user's events, without the first so many, as they all were at one moment.

        `epoch` is that moment's then: if it changed, whose events these are must be found out anew.
        """
        ...

    def rewards_of(self, user: User, nonce: int) -> list[float]:
        """Return the reward of a user's decision and the changes made to it since; nothing if there is none yet."""
        ...

    def rewards_of_each(self, decisions: Sequence[tuple[User, int]]) -> list[list[float]]:
        """Return the rewards of decisions, each a user and a nonce, and the changes made to them since."""
        ...

    def size(self) -> int:
        """Return how many users have events."""
        ...

    def look(self) -> None:
        """Notice what nobody tells, such as a file that was removed; called every second or so."""
        ...

    def users(self) -> Iterator[User]:
        """Return everybody who has events."""
        ...

    def chunks(self) -> Iterator[AnyArray]:
        """Return everybody's events, many users' at a time: a user's in order, users in any."""
        ...

    def read_all(self) -> Iterator[tuple[User, AnyArray]]:
        """Return everybody's events."""
        ...

    def alone(self) -> AbstractContextManager[object]:
        """Keep others in this process from adding events for a moment."""
        ...

    def forget(self, user: User, *, wait: bool = True) -> int:
        """Remove all there is of a user and return how many events that were; their decisions become unknown.

        Nobody finds them from now on; they are gone from the disk when this returns, or at the next `flush`.
        """
        ...

    def merge(self, source: User, target: User, *, wait: bool = True) -> int:
        """Put one user's events behind another's and return how many; open decisions move along."""
        ...

    @property
    def epoch(self) -> int:
        """How many users were forgotten or merged so far."""
        ...

    def resolve(self, user: User, epoch: int) -> User | None:
        """Return who a user of that epoch is now: the same, the one they were merged with, or None if forgotten."""
        ...

    def number_items(self, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers that events have for items, giving new ones to items not seen before."""
        ...

    def number_snapshot(self, digest: str) -> int:
        """Return the number that events have for a tree, giving a new one to a tree not seen before."""
        ...

    def keep(self, user: User, kept: Kept) -> None:
        """Remember a user's state, if there is room, and the user was not forgotten or merged since; only a cache."""
        ...

    def kept(self, user: User) -> Kept | None:
        """Return what `keep` remembered last."""
        ...

    def kept_each(self, users: Sequence[User]) -> list[Kept | None]:
        """Return what `keep` remembered of each."""
        ...

    def secret(self) -> bytes:
        """Return the key that decision ids are sealed with: made once, the same as long as the store lives."""
        ...

    def head(self) -> Head:
        """Return all there is but events and remembered states, as it was at one moment."""
        ...

    def adopt(self, head: Head) -> None:
        """Take over another store's head, to hold its events; refused where there are events of one's own."""
        ...

    def note(self, name: str) -> bytes | None:
        """Return what `take_note` kept under a name, by whichever process."""
        ...

    def take_note(self, name: str, content: bytes, *, new: bool = False) -> bool:
        """Keep something under a name, in place of what was there; safe when this returns.

        With `new`, only if nothing was there: return whether it was kept.
        """
        ...

    def notes(self, begin: str, after: str = "") -> list[tuple[str, bytes]]:
        """Return the notes whose names begin so and come after `after`, by name."""
        ...

    def begin(self) -> int:
        """Return how many times this was called before: two users of one store never draw the same nonces."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
