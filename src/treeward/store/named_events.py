"""`NamedEvents`: decisions under names that callers chose, so that feedback may come by such a name.

A record is a value of the store's metadata: it survives restarts, and all replicas over one database share it. A name
is kept as a keyed hash only. A second key for each record leads from the user to it, so that `forget` finds it.
"""

from hashlib import blake2b

from treeward.store.base import EventStore, User, spelled

_RECORD, _OF_USER = "event/", "event-of/"
ERASED = b""
"""What is left of the record of a user who was forgotten: its name cannot be used again."""


class NamedEvents:
    """The records of a store. Safe to call from several threads and processes.

    Examples
    --------
    >>> from treeward.store.memory import MemoryStore
    >>> events = NamedEvents(MemoryStore())
    >>> events.add("order-7", "ada", b"shown"), events.add("order-7", "bob", b"other")
    (True, False)
    >>> events.get("order-7"), events.get("order-8")
    (b'shown', None)
    >>> events.forget("ada"), events.get("order-7")
    (1, b'')
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def get(self, name: str) -> bytes | None:
        """Return the record of a name; None if there is none, `ERASED` if its user was forgotten."""
        return self._store.metadata.get(_RECORD + self._hash(b"event", name.encode()))

    def add(self, name: str, user: User, record: bytes) -> bool:
        """Write a new record, and return whether the name had none yet; it is safe when this returns."""
        key, epoch = self._hash(b"event", name.encode()), self._store.identities.epoch
        values = {_RECORD + key: record, self._of(user) + key: b""}
        written = self._store.metadata.put(values, new=True)
        now = self._store.identities.resolve(user, epoch)
        if written and now is None:  # forgotten meanwhile
            self.forget(user)
        elif written and now is not None and now != user:  # merged meanwhile
            self.merge(user, now)
        return written

    def replace(self, name: str, record: bytes) -> None:
        """Write a record in place of the one there is, unless its user was forgotten."""
        if self.get(name):
            self._store.metadata.put({_RECORD + self._hash(b"event", name.encode()): record})

    def forget(self, user: User) -> int:
        """Erase the records of a user, and return how many there were."""
        keys = self._keys(user)
        if keys:
            self._store.metadata.put({_RECORD + key: ERASED for key in keys})
        return len(keys)

    def merge(self, source: User, target: User) -> None:
        """Let the records of one user be erased with another's."""
        keys = self._keys(source)
        if keys:
            self._store.metadata.put({self._of(target) + key: b"" for key in keys})

    def _keys(self, user: User) -> list[str]:
        prefix = self._of(user)
        return [key.removeprefix(prefix) for key, _ in self._store.metadata.list(prefix)]

    def _of(self, user: User) -> str:
        return f"{_OF_USER}{self._hash(b'event-of', spelled(user))}/"

    def _hash(self, purpose: bytes, what: bytes) -> str:
        return blake2b(what, key=self._store.identities.secret, person=purpose, digest_size=16).hexdigest()
