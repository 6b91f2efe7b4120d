"""Rows of events in a SQLite file: each with a checksum over all it says."""

import sqlite3
import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import kernel
from treeward.core.progress import Progress, Stage
from treeward.store.events import EVENT

_ROW = struct.Struct("<qq")
_ROWS_AT_ONCE = 100_000


class Block(NamedTuple):
    """Some rows of events, in order."""

    seq: NDArray[np.int64]
    user: NDArray[np.int64]
    packed: bytes
    damaged: int | None
    """The first row that is not what was written."""


def read_blocks(file: sqlite3.Connection, progress: Progress) -> Iterator[Block]:
    """Return all rows of events; the rows of a block before its damaged one are whole."""
    [[last]] = file.execute("SELECT coalesce(max(seq), 0) FROM events").fetchall()
    # The last number is only for the progress: in a torn file it may be wrong, and every row must be looked at.
    stage = Stage(progress, "reading events", 1 + int(last) // _ROWS_AT_ONCE)
    cursor = file.execute("SELECT seq, user, event, crc FROM events ORDER BY seq")
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        sound = next((i for i, row in enumerate(rows) if not _is_whole(row)), len(rows))
        damaged = rows[sound][0] if sound < len(rows) else None
        seq, user, packed, crc = zip(*rows[:sound], strict=True) if sound else ((), (), (), ())
        block = Block(np.array(seq, dtype=np.int64), np.array(user, dtype=np.int64), b"".join(packed), damaged)
        bad = _first_bad(block, np.array(crc, dtype=np.int64))
        if bad < sound:
            block = Block(block.seq[:bad], block.user[:bad], block.packed[: bad * EVENT.itemsize], int(block.seq[bad]))
        stage.step()
        yield block
    stage.finish()


def _is_whole(row: tuple[object, ...]) -> bool:
    return isinstance(row[2], bytes) and len(row[2]) == EVENT.itemsize and type(row[1]) is int and type(row[3]) is int


def _first_bad(block: Block, crc: NDArray[np.int64]) -> int:
    rows = np.empty((len(crc), _ROW.size + EVENT.itemsize), dtype=np.uint8)
    rows[:, :8], rows[:, 8:16] = block.seq.view(np.uint8).reshape(-1, 8), block.user.view(np.uint8).reshape(-1, 8)
    rows[:, 16:] = np.frombuffer(block.packed, dtype=np.uint8).reshape(-1, EVENT.itemsize)
    return int(_compare(rows, crc, _TABLE))


def _table() -> NDArray[np.uint32]:
    """Return what a byte does to a CRC-32."""
    made = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        made = np.where(made & 1, (made >> np.uint32(1)) ^ np.uint32(0xEDB88320), made >> np.uint32(1))
    return made


_TABLE = _table()


@kernel
def _compare(rows: NDArray[np.uint8], crc: NDArray[np.int64], table: NDArray[np.uint32]) -> int:
    """Return the first row whose CRC-32 differs, or how many rows there are."""
    for i in range(len(rows)):
        value = np.uint32(0xFFFFFFFF)
        for j in range(rows.shape[1]):
            value = table[(value ^ rows[i, j]) & np.uint32(255)] ^ (value >> np.uint32(8))
        if np.int64(value ^ np.uint32(0xFFFFFFFF)) != crc[i]:
            return i
    return len(rows)


def pack_rows(
    first: int, owners: list[int], counts: list[int] | None, packed: bytes
) -> Iterator[tuple[int, int, bytes, int]]:
    """Return the rows of packed events: one for each owner, or as many as `counts` says."""
    size, seq = EVENT.itemsize, first
    for owner, count in zip(owners, counts or [1] * len(owners), strict=True):
        for _ in range(count):
            at = (seq - first) * size
            event = packed[at : at + size]
            yield seq, owner, event, crc32(event, crc32(_ROW.pack(seq, owner)))
            seq += 1
