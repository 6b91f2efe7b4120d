"""Changes to a catalogue, as numbered pages in the store: items that were added, changed or removed.

Of two processes that write the same page, the first one wins. All processes apply the pages in the same order.
"""

import io
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import polars as pl

from treeward.core.errors import StoreVersion
from treeward.data.catalogue import Catalogue, Id
from treeward.store.base import EventStore
from treeward.store.numbers import pack_ids

VERSION = 1
_BEGIN = "change/"
_FIELD = "="
GONE, WHOLE, VECTOR = 0, 1, 2
"""Items were removed; were added, or replaced with all their columns; got other vectors."""
AT_ONCE = 1_000
"""Items of one page at most."""


class Page(NamedTuple):
    """Changes of one kind, made in one call."""

    kind: int
    items: Catalogue
    """The items; of removed items, only the ids."""
    time: int
    """Seconds since 1970."""

    def packed(self) -> bytes:
        """Return it as bytes."""
        table = self.items.table.rename({name: _FIELD + name for name in self.items.table.columns if name != "id"})
        if self.kind != GONE:
            shape = pl.Array(pl.Float32, self.items.dim)
            table = table.with_columns(pl.Series("vector", self.items.vectors, dtype=shape))
        held = io.BytesIO()
        table.write_ipc(held, compression="lz4")
        return np.array([VERSION, self.kind, self.time], dtype="<i8").tobytes() + held.getvalue()

    @classmethod
    def unpacked(cls, where: EventStore, number: int, content: bytes) -> "Page":
        """Return a page from its bytes."""
        version, kind, time = np.frombuffer(content[:24], dtype="<i8").tolist() if len(content) >= 24 else (0, 0, 0)
        if version != VERSION or kind not in (GONE, WHOLE, VECTOR):
            raise StoreVersion(f"{where!r}: page {number} of the catalogue's changes is of another version ({version})")
        table = pl.read_ipc(io.BytesIO(content[24:]))
        vectors = table["vector"].to_numpy() if kind != GONE else None
        fields = table.select("id", pl.col(f"^{_FIELD}.*$"))
        return cls(kind, Catalogue.of_table(fields.rename(lambda name: name.removeprefix(_FIELD)), vectors), time)


def gone(ids: Sequence[Id], time: int) -> Page:
    """Return a page that removes items."""
    return Page(GONE, Catalogue(list(ids)), time)


def last_page(store: EventStore) -> int:
    """Return how many pages were written."""
    names = store.metadata.list(_BEGIN)
    return int(names[-1][0].removeprefix(_BEGIN)) if names else 0


def write_page(store: EventStore, number: int, content: bytes) -> bool:
    """Write a page, unless another process has written one of that number; return whether it was written."""
    return store.metadata.put({_name(number): content}, new=True)


def pages_after(store: EventStore, number: int) -> list[tuple[int, Page]]:
    """Return the pages after one."""
    found = []
    for name, content in store.metadata.list(_BEGIN, _name(number)):
        at = int(name.removeprefix(_BEGIN))
        found.append((at, Page.unpacked(store, at, content)))
    return found


def first_page(store: EventStore, catalogue: Catalogue) -> int:
    """Return how many pages a catalogue includes: as it says itself or, if it is new to the store, all so far.

    A store remembers the catalogues it has seen, so that the same one includes the same pages after a restart.
    """
    last = last_page(store)
    if catalogue.pages or not last:
        return catalogue.pages
    known = store.metadata.get(_seen(catalogue))
    if known is None:
        made, known_pages = catalogue.made_at, last
        if made is not None:
            known_pages = max((number for number, page in pages_after(store, 0) if page.time < made), default=0)
        remember(store, catalogue, known_pages)
        return known_pages
    return int(known)


def remember(store: EventStore, catalogue: Catalogue, pages: int) -> None:
    """Let a store remember how many pages a catalogue includes."""
    store.metadata.put({_seen(catalogue): str(pages).encode()}, new=True)


def _seen(catalogue: Catalogue) -> str:
    digest = blake2b(pack_ids(catalogue.ids), digest_size=16)
    digest.update(np.ascontiguousarray(catalogue.vectors).data)
    return f"catalogue/{digest.hexdigest()}"


def _name(number: int) -> str:
    return f"{_BEGIN}{number:012d}"
