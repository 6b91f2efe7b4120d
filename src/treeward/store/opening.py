"""Opening a store by its address: ``memory``, a file, or ``NAME:PLACE`` with a name of `STORES`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from treeward.core.errors import ExtraMissing, InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.store import STORES
from treeward.store.base import EventStore
from treeward.store.sqlite import SQLiteStore


def _parse(address: str) -> tuple[str, str]:
    """Return the name of a store's kind, and its place; a place that is a URL is the whole address."""
    name, colon, place = address.partition(":")
    name = "postgresql" if name == "postgres" else name
    if address == "memory":
        return name, ""
    if name not in STORES or not colon:
        return "sqlite", address
    return name, address if place.startswith("//") else place


def is_database(address: str) -> bool:
    """Return whether that is a database, not a file."""
    name, place = _parse(address)
    return name != "sqlite" and place == address


def file_of(address: str) -> Path | None:
    """Return the file of a store that is one; refuse an unknown address, which may have a password in it."""
    name, place = _parse(address)
    if name == "memory" or is_database(address):
        return None
    if name == "sqlite" and re.match(r"[a-z][a-z0-9+.-]+:/", place):
        raise InvalidArgument("store", "place", "a file, memory, or postgresql://user@host/database", "another address")
    return Path(place)


def without_password(address: str) -> str:
    """Return an address that may be shown."""
    return re.sub(r"(?<=://)([^:/@]*):.*@", r"\1:...@", re.sub(r"(password=)[^&]*", r"\1...", address))


def open_store(address: str, progress: Progress = silent, *, create: bool = True) -> EventStore:
    """Open a store; `create` and `progress` are for those that take them."""
    file_of(address)
    name, place = _parse(address)
    try:
        kind: Any = STORES[name]
    except ImportError as error:
        if name != "postgresql":
            raise
        raise ExtraMissing.of("a postgresql:// store", error.name, "postgres") from error
    options = {"create": create, "progress": progress}
    takes = signature(kind).parameters
    made: EventStore = kind(*[place] * bool(place), **{name: options[name] for name in options if name in takes})
    return made


@contextmanager
def opened_store(address: str, progress: Progress = silent, *, create: bool = True) -> Iterator[EventStore]:
    """Open a store, and close it at the end; see `abandon` for what happens on an error."""
    store = open_store(address, progress, create=create)
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
