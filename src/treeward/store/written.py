"""`WrittenStore`: a store of your own in two methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import StoreFailed
from treeward.core.types import AnyArray
from treeward.store.heads import Head
from treeward.store.memory import MemoryStore
from treeward.store.users import User


class Added(NamedTuple):
    """Events that some users got."""

    users: Sequence[User]
    counts: NDArray[np.int64]
    """How many each of them got."""
    events: AnyArray
    """One user's after another's."""


class WrittenStore(MemoryStore, ABC):
    """Answers from memory and writes down what changes; a subclass says how, and how that is read again.

    Every write is finished before a call returns, one at a time. When one fails, nothing is taken any more until the
    store is opened again: what memory holds might not be what was written.

    Parameters
    ----------
    kept_bytes
        As for `MemoryStore`; remembered states are not written.
    """

    def __init__(self, *, kept_bytes: int = 256 << 20) -> None:
        super().__init__(kept_bytes=kept_bytes)
        self._failed: BaseException | None = None
        new = True
        for part in self.load():
            if isinstance(part, Head):
                super().adopt(part)
                new = False
            else:
                super().extend(*part)
        if new:
            self.write([self.head()])

    @abstractmethod
    def load(self) -> Iterable[Head | Added]:
        """Return what was written, in that order; nothing for a new store."""

    @abstractmethod
    def write(self, parts: Iterable[Head | Added], *, anew: bool = False) -> None:
        """Write parts behind what was written before; they must be safe when this returns.

        A head takes the place of those before it; events come behind those that users have. With `anew`, the parts take
        the place of everything: somebody was forgotten or merged, and nothing of their events may be left.
        """

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            if self._failed is not None:
                raise StoreFailed(f"{type(self).__name__}: takes nothing any more: {self._failed}")
            yield

    def _put(self, parts: Iterable[Head | Added], *, anew: bool = False) -> None:
        """Write; whatever goes wrong there, what is acknowledged from now on might not be written."""
        try:
            self.write(parts, anew=anew)
        except BaseException as error:
            self._failed = error
            if not isinstance(error, Exception):
                raise
            raise StoreFailed(f"{type(self).__name__}: could not write: {error}") from error

    def _write_all(self) -> None:
        everything = (Added([user], np.array([len(events)]), events) for user, events in self.read_all())
        self._put(chain([self.head()], everything), anew=True)

    def append(
        self,
        users: Sequence[User],
        events: AnyArray,
        known: NDArray[np.int64] | None = None,
        *,
        within: float | None = None,
        epoch: int | None = None,
    ) -> NDArray[np.bool_]:
        """Add one event a user, all in one step, and return which were added."""
        with self._writing():
            new = super().append(users, events, known, epoch=epoch)
            owners = [user for user, fresh in zip(users, new.tolist(), strict=True) if fresh]
            if owners:
                self._put([Added(owners, np.ones(len(owners), dtype=np.int64), events[new])])
            return new

    def extend(
        self, users: Sequence[User], counts: NDArray[np.int64], events: AnyArray, after: Sequence[int] | None = None
    ) -> None:
        """Add many events: the first counts[0] are for the first user, and so on."""
        with self._writing():
            super().extend(users, counts, events, after)
            if len(events):
                self._put([Added(users, counts, events)])

    def forget(self, user: User, *, wait: bool = True) -> int:
        """Remove all there is of a user, and return how many events that were."""
        with self._writing():
            gone = super().forget(user)
            self._write_all()
            return gone

    def merge(self, source: User, target: User, *, wait: bool = True) -> int:
        """Put one user's events behind another's and return how many."""
        with self._writing():
            moved = super().merge(source, target)
            self._write_all()
            return moved

    def number_items(self, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers that events have for items, giving new ones to items not seen before."""
        with self._writing():
            before = len(self._items)
            numbers = super().number_items(ids)
            if len(self._items) > before:
                self._put([self.head()])
            return numbers

    def number_snapshot(self, digest: str) -> int:
        """Return the number that events have for a tree, giving a new one to a tree not seen before."""
        with self._writing():
            before = len(self._snapshots)
            number = super().number_snapshot(digest)
            if number == before:
                self._put([self.head()])
            return number

    def adopt(self, head: Head) -> None:
        """Take over another store's head, to hold its events."""
        with self._writing():
            super().adopt(head)
            self._put([self.head()])

    def take_note(self, name: str, content: bytes, *, new: bool = False) -> bool:
        """Keep something under a name; with `new`, only if nothing was there."""
        with self._writing():
            kept = super().take_note(name, content, new=new)
            if kept:
                self._put([self.head()])
            return kept

    def begin(self) -> int:
        """Return how many times this was called before, ever."""
        with self._writing():
            begun = super().begin()
            self._put([self.head()])
            return begun

    def close(self) -> None:
        """Take nothing any more; a subclass lets go of its file as well."""
        with self._lock:
            self._failed = self._failed or StoreFailed("it is closed")
