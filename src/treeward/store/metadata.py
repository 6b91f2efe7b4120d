"""Metadata of a store: keys and values for everything but events, such as its secret and the numbers of its items."""

from collections.abc import Mapping
from typing import Protocol

_STARTS = "start/"


class Metadata(Protocol):
    """Values by key. Every store keeps its own `secret`, `epoch` and `identity/...` there."""

    def get(self, key: str) -> bytes | None:
        """Return a value; None if there is none."""
        ...

    def put(self, values: Mapping[str, bytes | None], *, new: bool = False, epoch: int | None = None) -> bool:
        """Write values in place of older ones, all or none, and return whether that was done. None removes a key.

        They are safe when this returns. With `new`, nothing is written if any key has a value. Of several processes
        that write one new key at the same time, exactly one succeeds. With `epoch`, nothing is written if a user was
        forgotten or merged since that epoch of the store.
        """
        ...

    def list(self, prefix: str = "", after: str = "", most: int | None = None) -> list[tuple[str, bytes]]:
        """Return the keys that begin with `prefix` and sort after `after`, with their values, by key.

        With `most`, only the first so many.
        """
        ...


def page_key(prefix: str, number: int) -> str:
    """Return a key that sorts by its number."""
    return f"{prefix}{number:012d}"


def page_number(key: str) -> int:
    """Return the number in such a key."""
    return int(key[-12:])


def begin(metadata: Metadata) -> int:
    """Return how often this was called before: no two callers, in any process, get the same number."""
    while True:
        pages = metadata.list(_STARTS)
        number = page_number(pages[-1][0]) + 1 if pages else 0
        if metadata.put({page_key(_STARTS, number): b""}, new=True):
            return number
