"""Events in a SQLite file: a row holds the events of one commit, packed, with a checksum over all it says."""

import io
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import polars as pl

from treeward.core.errors import StoreDamaged
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import AnyArray
from treeward.store.events import EVENT
from treeward.store.heads import Head

RECORD = np.dtype([("user", "<i8"), ("event", EVENT)])
"""An event and the number of its user; 0: it was erased."""
_FIRST = [("user", "<i8"), ("item", "<i4"), ("node", "<i4"), ("reward", "<f8"), ("nonce", "<i8"), ("snapshot", "<u2"),
          ("kind", "u1")]  # fmt: skip
_FORMER = {1: np.dtype(_FIRST), 2: np.dtype([*_FIRST, ("time", "<u4")]), 3: np.dtype([*_FIRST, ("time", "<u4")])}
"""What a record was in files of earlier versions."""
_SEQ = struct.Struct("<q")
_MOST = 50_000
_AT_ONCE = 1_000
ADD_MOVE = "INSERT OR REPLACE INTO moves VALUES (?, ?, ?, ?, ?)"
SET = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
_ADD = "INSERT INTO events VALUES (?, ?, ?)"


class Row(NamedTuple):
    """A row as it was read."""

    seq: int
    """The number of its first event."""
    records: AnyArray
    whole: bool
    """Whether it is what was written; if not, `records` is empty."""


def checksum(seq: int, records: bytes) -> int:
    """Return what a row must have for a checksum."""
    return crc32(records, crc32(_SEQ.pack(seq)))


def seal(*values: object) -> tuple[object, ...]:
    """Return values with a checksum behind them."""
    return (*values, crc32(repr(values).encode(errors="surrogatepass")))


def unseal(path: object, what: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values without their checksum, if it is theirs."""
    if seal(*row[:-1])[-1] != row[-1]:
        raise StoreDamaged(f"{path}: {what} is not what was written; restore a backup")
    return row[:-1]


def add(file: sqlite3.Connection, seq: int, records: bytes) -> int:
    """Write records from number `seq` on, and return the next number."""
    size = RECORD.itemsize * _MOST
    for start in range(0, len(records), size):
        part = records[start : start + size]
        file.execute(_ADD, (seq, part, checksum(seq, part)))
        seq += len(part) // RECORD.itemsize
    return seq


def read(file: sqlite3.Connection, progress: Progress) -> Iterator[Row]:
    """Return all rows, in order."""
    # The last number is only for the progress: in a torn file it may be wrong, and every row must be looked at.
    [[last]] = file.execute("SELECT count(*) FROM (SELECT 1 FROM events LIMIT 10000000)").fetchall()
    stage = Stage(progress, "reading events", 1 + int(last) // _AT_ONCE)
    [[version]] = file.execute("PRAGMA user_version").fetchall()
    layout = _FORMER.get(int(version), RECORD)
    cursor = file.execute("SELECT seq, records, crc FROM events ORDER BY seq")
    while rows := cursor.fetchmany(_AT_ONCE):
        yield from (_row(layout, *row) for row in rows)
        stage.step()
    stage.finish()


def _row(layout: np.dtype[np.void], seq: int, records: object, crc: object) -> Row:
    if not isinstance(records, bytes) or len(records) % layout.itemsize or checksum(seq, records) != crc:
        return Row(seq, np.zeros(0, dtype=RECORD), False)
    held = np.frombuffer(records, dtype=layout)
    if layout != RECORD:
        former, held = held, np.zeros(len(held), dtype=RECORD)
        held["user"] = former["user"]
        for name in (layout.names or ())[1:]:
            held["event"][name] = former[name]
    return Row(seq, held, True)


def renew(file: sqlite3.Connection) -> None:
    """Write every row as this version does; a row that is not what was written stays, to be found as such."""
    for row in list(read(file, silent)):
        if row.whole:
            packed = row.records.tobytes()
            put = (packed, checksum(row.seq, packed), row.seq)
            file.execute("UPDATE events SET records = ?, crc = ? WHERE seq = ?", put)


def erase(file: sqlite3.Connection, users: Iterable[int], after: int, count: int) -> int | None:
    """Wipe users' events from the `count` rows that follow row `after`; return the last looked at, None at the end."""
    found = file.execute(
        "SELECT seq, records FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (after, count)
    ).fetchall()
    gone = np.array(list(users), dtype=np.int64)
    for seq, packed in found:
        records = np.frombuffer(packed, dtype=RECORD).copy()
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


def read_items(path: object, first: int, packed: bytes, crc: int) -> pl.Series:
    """Return item ids from a number on."""
    if crc32(packed) != crc:
        raise StoreDamaged(f"{path}: the list of items from number {first} is not what was written")
    return pl.read_ipc(io.BytesIO(packed))["id"]


def pack_items(first: int, ids: pl.Series) -> tuple[int, bytes, int]:
    """Return item ids from a number on as `read_items` takes them."""
    packed = io.BytesIO()
    ids.rename("id").to_frame().write_ipc(packed, compression="lz4")
    return first, packed.getvalue(), crc32(packed.getvalue())


def write_head(file: sqlite3.Connection, head: Head) -> None:
    """Write a head in place of what there is."""
    for table in ("moves", "items", "snapshots"):
        file.execute(f"DELETE FROM {table}")
    file.executemany(ADD_MOVE, [seal(sealed, *move) for sealed, move in head.moves])
    file.executemany("INSERT INTO snapshots VALUES (?, ?, ?)", [seal(*one) for one in enumerate(head.snapshots)])
    if len(head.items):
        file.execute("INSERT INTO items VALUES (?, ?, ?)", pack_items(0, head.items))
    file.execute("DELETE FROM meta WHERE name LIKE 'note/%'")
    told = {"secret": head.secret, "epoch": head.epoch, "begun": head.begun, "unfinished": int(head.unfinished)}
    notes = {f"note/{name}": content for name, content in head.notes.items()}
    file.executemany(SET, [seal(name, value) for name, value in (told | notes).items()])


def write_kept(file: sqlite3.Connection, kept: list[tuple[int, int, int, bytes]]) -> None:
    """Write remembered states in place of what there is."""
    file.execute("DELETE FROM kept")
    file.executemany("INSERT INTO kept VALUES (?, ?, ?, ?)", kept)
