"""Opening a store by where it is: memory, a file, or a database."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from treeward.core.errors import ExtraMissing, InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.store.base import EventStore
from treeward.store.memory import MemoryStore
from treeward.store.sqlite import SQLiteStore

_DATABASE = re.compile(r"postgres(ql)?://")


def is_database(where: str) -> bool:
    """Tell whether that is a database, not a file."""
    return _DATABASE.match(where) is not None


def without_password(where: str) -> str:
    """Return where a store is, to be shown to people."""
    return re.sub(r"(?<=://)([^:/@]*):.*@", r"\1:...@", re.sub(r"(password=)[^&]*", r"\1...", where))


def check_file(where: str) -> None:
    """Refuse an address that is of no database we know: as a file's name it would be told, password and all."""
    if re.match(r"[a-z][a-z0-9+.-]+:/", where):
        raise InvalidArgument("store", "place", "a file, memory, or postgresql://user@host/database", "another address")


def open_store(where: str, progress: Progress = silent, *, create: bool = True) -> EventStore:
    """Open ``memory``, a ``postgresql://`` database, or a file."""
    if where == "memory":
        return MemoryStore()
    if not is_database(where):
        check_file(where)
        return SQLiteStore(where, create=create, progress=progress)
    try:
        from treeward.store.postgres import PostgresStore
    except ImportError as error:
        raise ExtraMissing.of("a postgresql:// store", error.name, "postgres") from error
    return PostgresStore(where, create=create)


@contextmanager
def opened_store(where: str, progress: Progress = silent, *, create: bool = True) -> Iterator[EventStore]:
    """Open a store, and close it at the end; see `abandon` for what happens on an error."""
    store = open_store(where, progress, create=create)
    try:
        yield store
    except BaseException:
        abandon(store)
        raise
    store.close()


def abandon(store: EventStore) -> None:
    """Close a store after an error; remove its file if it was created in this process and has no events."""
    if isinstance(store, SQLiteStore):
        store.abandon()
    else:
        store.close()
