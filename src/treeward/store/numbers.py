"""Numbers for items and trees, which events hold in place of ids and digests: pages of a store's metadata.

Pages are compare-and-set: of several processes that give new numbers at the same time, the first writes its page, the
others read it and try again with the next one.
"""

import io
from threading import RLock
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument, StoreDamaged, StoreError
from treeward.store.base import EventStore
from treeward.store.events import NAMELESS
from treeward.store.metadata import Metadata, page_key, page_number

ITEMS = "items/"
"""Of pages with the ids of items; a key has the number of the first."""
SNAPSHOTS = "snapshot/"
"""Of digests of trees, and of contexts; a key has the number."""


def number_items(store: EventStore, ids: pl.Series) -> NDArray[np.int32]:
    """Return the numbers that events have for items, giving new ones to items not seen before; a number is final."""
    numbers = _known(store)
    with numbers.lock:
        return numbers.of_items(store, ids)


def number_snapshot(store: EventStore, digest: str) -> int:
    """Return the number that events have for a tree, giving a new one to a tree not seen before."""
    numbers = _known(store)
    with numbers.lock:
        return numbers.of_snapshot(store, digest)


def item_ids(store: EventStore) -> pl.Series:
    """Return the ids of all items that have a number, in the order of their numbers."""
    pages = [unpack_ids(value, f"{store}: the items from number {page_number(key)} on")
             for key, value in store.metadata.list(ITEMS)]  # fmt: skip
    return pl.concat(pages) if pages else pl.Series("id", [], dtype=pl.String)


def snapshot_digests(store: EventStore) -> list[str]:
    """Return the digests of all trees and contexts that have a number, in the order of their numbers."""
    return [value.decode() for _, value in store.metadata.list(SNAPSHOTS)]


def pack_ids(ids: pl.Series) -> bytes:
    """Return ids as bytes, with a checksum."""
    packed = io.BytesIO()
    ids.rename("id").to_frame().write_ipc(packed, compression="lz4")
    return crc32(packed.getvalue()).to_bytes(4, "little") + packed.getvalue()


def unpack_ids(value: bytes, what: str) -> pl.Series:
    """Return the ids that `pack_ids` packed; `what` is named in the error."""
    if crc32(value[4:]) != int.from_bytes(value[:4], "little"):
        raise StoreDamaged(f"{what}: not what was written")
    return pl.read_ipc(io.BytesIO(value[4:]))["id"]


class _Numbers:
    """What this process has read of a store's numbers; other processes may give new ones at any time."""

    def __init__(self) -> None:
        self.lock = RLock()
        # The first catalogue's rows are the numbers: a dictionary would cost 100 bytes per item and more.
        self._items: dict[int | str, int] | pl.Series = pl.Series("id", [], dtype=pl.String)
        self._items_page = ""
        self._snapshots: dict[str, int] = {}

    def of_items(self, store: EventStore, ids: pl.Series) -> NDArray[np.int32]:
        while True:
            self._read_items(store)
            self._check_kind(store, ids)
            if isinstance(self._items, pl.Series):
                if len(self._items) == 0 and len(ids):
                    if not self._write_items(store.metadata, ids):
                        continue
                    self._items = ids
                if ids is self._items or ids.equals(self._items):
                    return np.arange(len(ids), dtype=np.int32)
            known = self._as_dictionary()
            fresh = list(dict.fromkeys(id for id in ids if id not in known))
            if not fresh:
                return np.fromiter((known[id] for id in ids), dtype=np.int32, count=len(ids))
            if self._write_items(store.metadata, pl.Series("id", fresh, dtype=ids.dtype)):
                known.update(zip(fresh, range(len(known), len(known) + len(fresh)), strict=True))

    def _read_items(self, store: EventStore) -> None:
        for key, value in store.metadata.list(ITEMS, self._items_page):
            page = unpack_ids(value, f"{store}: the items from number {page_number(key)} on")
            if len(self._items) == 0:
                self._items = page
            else:
                known = self._as_dictionary()
                known.update(zip(page, range(len(known), len(known) + len(page)), strict=True))
            self._items_page = key

    def _write_items(self, metadata: Metadata, fresh: pl.Series) -> bool:
        key = page_key(ITEMS, len(self._items))
        written = metadata.put({key: pack_ids(fresh)}, new=True)
        if written:
            self._items_page = key
        return written

    def _as_dictionary(self) -> dict[int | str, int]:
        if isinstance(self._items, pl.Series):
            self._items = {id: number for number, id in enumerate(self._items)}
        return self._items

    def _check_kind(self, store: EventStore, ids: pl.Series) -> None:
        if len(self._items) and len(ids):
            first = self._items[0] if isinstance(self._items, pl.Series) else next(iter(self._items))
            kinds = {True: "integers", False: "strings"}
            if isinstance(first, int) != ids.dtype.is_integer():
                rule = f"with item ids that are {kinds[isinstance(first, int)]}, as in the store"
                raise InvalidArgument(type(store).__name__, "catalogue", rule, kinds[ids.dtype.is_integer()])

    def of_snapshot(self, store: EventStore, digest: str) -> int:
        known = self._snapshots
        while digest not in known:
            last = page_key(SNAPSHOTS, len(known) - 1) if known else ""
            for key, value in store.metadata.list(SNAPSHOTS, last):
                known[value.decode()] = page_number(key)
            if digest not in known:
                number = len(known)
                if number >= NAMELESS:
                    raise StoreError(f"{store}: holds as many trees and contexts as there are numbers for")
                if store.metadata.put({page_key(SNAPSHOTS, number): digest.encode()}, new=True):
                    known[digest] = number
        return known[digest]


_of: WeakKeyDictionary[EventStore, _Numbers] = WeakKeyDictionary()
_lock = RLock()


def _known(store: EventStore) -> _Numbers:
    # Reading a million ids takes a while, and several explorers may use one store: read once per store, not per caller.
    with _lock:
        return _of.setdefault(store, _Numbers())
