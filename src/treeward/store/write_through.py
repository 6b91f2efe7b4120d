"""`WriteThroughStore`: a durable store of your own in two methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from treeward.core.errors import StoreFailed
from treeward.store.base import Status, read_all
from treeward.store.memory import Change, MemoryStore


class WriteThroughStore(MemoryStore, ABC):
    """Answers from memory and writes every change; a subclass says how changes are written, and read again.

    Every write is finished before a call returns, one at a time. After a failed write every call that changes something
    raises `StoreFailed` until the store is opened again: what memory holds might not be what was written.
    """

    _failed: BaseException | None = None

    @abstractmethod
    def load(self) -> Iterable[Change]:
        """Return the changes that were written, in order; none for a new store."""

    @abstractmethod
    def write(self, change: Change) -> None:
        """Write a change behind the ones before it; it must be safe when this returns.

        If a user was `erased`, write `everything` in place of what was written before: nothing of them may be left.
        """

    def everything(self) -> Iterator[Change]:
        """Return changes that make this store, as it is now, out of a new one."""
        yield Change(metadata=dict(self._values))
        for user, events in read_all(self):
            yield Change([user], [len(events)], events)

    def _load(self) -> Iterable[Change]:
        return self.load()

    def _refuse(self) -> None:
        if self._failed is not None:
            raise StoreFailed(f"{type(self).__name__}: takes no more writes: {self._failed}")

    def _write(self, change: Change, within: float | None) -> int:
        if not (change.users or change.metadata or change.removed):
            return 0
        try:
            self.write(change)
        except BaseException as error:
            self._failed = error
            if not isinstance(error, Exception):
                raise
            raise StoreFailed(f"{type(self).__name__}: could not write: {error}") from error
        return 0

    def status(self, *, probe: bool = False) -> Status:
        """Return whether a write failed."""
        return Status(len(self._logs), self._failed if isinstance(self._failed, Exception) else None)

    def close(self) -> None:
        """Take no more writes; a subclass releases its file as well."""
        with self._lock:
            self._failed = self._failed or StoreFailed("it is closed")
