"""`EventStore`: what every store of events promises; `treeward.testing.check_store` checks that one keeps it.

A user's state is the ordered list of their events and nothing else, so a store is all there is to keep safe. The
functions below the class answer further questions by the same few calls, for every store.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from treeward.core.types import AnyArray
from treeward.store.events import EVENT
from treeward.store.identities import Identities, User, spelled
from treeward.store.metadata import Metadata

__all__ = ["EventStore", "Status", "User", "spelled"]


class Status(NamedTuple):
    """The condition of a store."""

    users: int
    """How many have events; in a shared store, as counted within the last minute."""
    problem: Exception | None = None
    """Why it takes no writes at present; None: it does."""
    waiting: int = 0
    """Writes that are not on disk yet."""
    commits: int = 0
    """Transactions committed since it was opened."""


@runtime_checkable
class EventStore(Protocol):
    """Keeps every user's events in the order they came. Calls may come from several threads."""

    @property
    def shared(self) -> bool:
        """Whether other processes may write to it too, so that every call takes a while."""
        ...

    @property
    def metadata(self) -> Metadata:
        """Keys and values: everything in a store but events."""
        ...

    @property
    def identities(self) -> Identities:
        """Which users were forgotten or merged, as of the latest answer of the store."""
        ...

    def append(
        self, users: Sequence[User], events: AnyArray, known: NDArray[np.int64] | None = None,
        *, within: float | None = None, epoch: int | None = None,
    ) -> NDArray[np.bool_]:  # fmt: skip
        """Add one event per user, all in one step, and return which were added.

        A reward for a decision (a nonce other than 0) that has a reward already is not added. A change is added only if
        the decision has `known` rewards and changes so far, where that is given. The events are safe when this returns
        or, with `within`, that many seconds later. With `epoch`, nothing is added if a user was forgotten or merged
        since that epoch: the caller must resolve its users again.
        """
        ...

    def extend(
        self, users: Sequence[User], counts: NDArray[np.int64], events: AnyArray, after: Sequence[int] | None = None
    ) -> None:
        """Add many events without looking for duplicates: the first counts[0] are for the first user, and so on.

        All are added or none, and none if a user's name is one that this store cannot hold. With `after`, raise
        `StoreError` unless the users have exactly that many events.
        """
        ...

    def counts(self, users: Sequence[User]) -> list[int]:
        """Return how many events each user has; 0 for an unknown one."""
        ...

    def read(
        self, users: Sequence[User], after: Sequence[int] | None = None, nonces: Sequence[int] | None = None
    ) -> list[AnyArray]:
        """Return copies of each user's events, in order, as they all were at one moment.

        With `after`, each user's first `after` events are left out. With `nonces`, only the reward and the changes of
        that one decision of each user are returned. `identities` is at least as new as the events.
        """
        ...

    def users(self) -> Iterator[list[User]]:
        """Return the users who have events, many at a time."""
        ...

    def move(self, source: User, target: User | None) -> AnyArray:
        """Put one user's events behind another's, or erase them if there is no target; return these events.

        A new epoch begins: open decisions follow to the target, or become unknown. Every call sees this at once.
        Metadata about the user, which `Identities.owner_key` leads to, follows as well, or becomes empty.
        Nothing of an erased user is left on the disk when the next `flush` of the same thread returns.
        """
        ...

    def flush(self) -> None:
        """Return when everything so far is safe, and users whom this thread erased have left no trace."""
        ...

    def status(self, *, probe: bool = False) -> Status:
        """Return the store's condition; with `probe`, look for external changes first, such as a deleted file.

        A service probes every second or so. Only a probe may wait for a disk or a network.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def everyone(store: EventStore) -> Iterator[User]:
    """Return all users who have events."""
    return chain.from_iterable(store.users())


def count_users(store: EventStore) -> int:
    """Return how many users have events."""
    return sum(map(len, store.users()))


def read_all(store: EventStore) -> Iterator[tuple[User, AnyArray]]:
    """Return every user with their events."""
    return (pair for users in store.users() for pair in zip(users, store.read(users), strict=True))


def read_chunks(store: EventStore) -> Iterator[AnyArray]:
    """Return all events, those of many users at a time; the events of one user are together and in order."""
    return (join(store.read(users)) for users in store.users())


def join(parts: Sequence[AnyArray]) -> AnyArray:
    """Return events in one array."""
    # numpy compares the fields of structured arrays one by one before it joins them: bytes are joined at once.
    return np.frombuffer(b"".join(parts), dtype=EVENT)  # type: ignore[arg-type]


def read_rewards(store: EventStore, decisions: Sequence[tuple[User, int]]) -> list[list[float]]:
    """Return the reward of each decision, a user and a nonce, and the changes made to it since."""
    found = store.read([user for user, _ in decisions], nonces=[nonce for _, nonce in decisions])
    return [events["reward"].tolist() for events in found]


def forget(store: EventStore, user: User) -> int:
    """Erase a user, also from the disk, and return how many events they had."""
    gone = len(store.move(user, None))
    store.flush()
    return gone


def merge(store: EventStore, source: User, target: User) -> int:
    """Put one user's events behind another's, and return how many."""
    moved = len(store.move(source, target))
    store.flush()
    return moved
