"""Events in a SQLite file: a row holds the events of one commit, packed, with a checksum over all it says."""

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from treeward.core.errors import StoreDamaged
from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray
from treeward.store.events import EVENT

RECORD = np.dtype([("user", "<i8"), ("event", EVENT)])
"""An event and the number of its user; 0: it was erased."""
SCHEMA = (
    "CREATE TABLE metadata (key TEXT PRIMARY KEY, value BLOB, crc INTEGER) WITHOUT ROWID",
    "CREATE TABLE users (number INTEGER PRIMARY KEY, name, retired INTEGER NOT NULL, crc INTEGER)",
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, records BLOB NOT NULL, crc INTEGER NOT NULL)",
)
_SEQ = struct.Struct("<q")
MOST_BYTES = 50_000 * RECORD.itemsize
"""The size of the longest row."""
_AT_ONCE = 1_000


class Row(NamedTuple):
    """A row as it was read."""

    seq: int
    """The number of its first event."""
    records: AnyArray
    whole: bool
    """Whether it is what was written; if not, `records` is empty."""


def checksum(seq: int, records: bytes) -> int:
    """Return the checksum of a row."""
    return crc32(records, crc32(_SEQ.pack(seq)))


def seal(*values: object) -> tuple[object, ...]:
    """Return values with a checksum behind them."""
    return (*values, crc32(repr(values).encode(errors="surrogatepass")))


def unseal(path: object, what: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values without their checksum; raise `StoreDamaged` if it does not fit."""
    if seal(*row[:-1])[-1] != row[-1]:
        raise StoreDamaged(f"{path}: {what} is not what was written; restore a backup")
    return row[:-1]


def put_metadata(file: sqlite3.Connection, values: Mapping[str, bytes], removed: Iterable[str] = ()) -> None:
    """Write metadata in place of what there is, and remove some."""
    file.executemany("DELETE FROM metadata WHERE key = ?", [(key,) for key in removed])
    rows = [(key, value, crc32(value, crc32(key.encode()))) for key, value in values.items()]
    file.executemany("INSERT OR REPLACE INTO metadata VALUES (?, ?, ?)", rows)


def metadata_of(path: object, row: tuple[Any, ...]) -> tuple[str, bytes]:
    """Return a key and its value; raise `StoreDamaged` if the checksum does not fit."""
    key, value, crc = row
    if not isinstance(value, bytes) or crc32(value, crc32(str(key).encode(errors="replace"))) != crc:
        raise StoreDamaged(f'{path}: the metadata "{key}" is not what was written; restore a backup')
    return key, value


def add(file: sqlite3.Connection, seq: int, records: bytes) -> int:
    """Write records from number `seq` on, and return the next number."""
    for start in range(0, len(records), MOST_BYTES):
        part = records[start : start + MOST_BYTES]
        file.execute("INSERT INTO events VALUES (?, ?, ?)", (seq, part, checksum(seq, part)))
        seq += len(part) // RECORD.itemsize
    return seq


def read(file: sqlite3.Connection, progress: Progress) -> Iterator[Row]:
    """Return all rows, in order."""
    # The count is only for the progress: in a torn file it may be wrong, and every row must be read.
    [[last]] = file.execute("SELECT count(*) FROM (SELECT 1 FROM events LIMIT 10000000)").fetchall()
    stage = Stage(progress, "reading events", 1 + int(last) // _AT_ONCE)
    cursor = file.execute("SELECT seq, records, crc FROM events ORDER BY seq")
    while rows := cursor.fetchmany(_AT_ONCE):
        yield from (_row(*row) for row in rows)
        stage.step()
    stage.finish()


def _row(seq: int, records: object, crc: object) -> Row:
    if not isinstance(records, bytes) or len(records) % RECORD.itemsize or checksum(seq, records) != crc:
        return Row(seq, np.zeros(0, dtype=RECORD), False)
    return Row(seq, np.frombuffer(records, dtype=RECORD), True)


def erase(file: sqlite3.Connection, users: Iterable[int], after: int, count: int) -> int | None:
    """Wipe users' events from the `count` rows after row `after`; return the last row read, None at the end."""
    found = file.execute(
        "SELECT seq, records FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (after, count)
    ).fetchall()
    gone = np.array(list(users), dtype=np.int64)
    for seq, packed in found:
        records = np.frombuffer(bytearray(packed), dtype=RECORD)  # faster than a copy of the array
        theirs = np.isin(records["user"], gone)
        if not theirs.any():
            continue
        records[theirs] = np.zeros(1, dtype=RECORD)
        if (records["user"] == 0).all():
            file.execute("DELETE FROM events WHERE seq = ?", (seq,))
        else:
            wiped = records.tobytes()
            file.execute("UPDATE events SET records = ?, crc = ? WHERE seq = ?", (wiped, checksum(seq, wiped), seq))
    return int(found[-1][0]) if len(found) == count else None
