"""The tables of a store in PostgreSQL: made once, and the numbers of items and trees in them."""

import io
import secrets
from importlib.resources import files
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import StoreError, StoreVersion
from treeward.store.database import Connection
from treeward.store.numbers import Numbers
from treeward.store.rows import read_items

VERSION = 1
_LOCK = 0x74726565
"""What callers hold who make the tables, or number items and trees: one at a time, of all processes."""


def prepare(db: Connection, where: str, *, create: bool) -> bytes:
    """Make the tables if they are not there, and return the store's secret."""
    with db.transaction():
        _alone(db)
        [[there]] = db.execute("SELECT to_regclass('treeward.meta') IS NOT NULL").fetchall()
        if not there:
            if not create:
                raise StoreError(f"{where}: there is no store in this database")
            db.execute(files("treeward.store").joinpath("postgres.sql").read_bytes())
            db.execute("INSERT INTO treeward.meta VALUES ('secret', NULL, %b)", (secrets.token_bytes(32),))
        [[version]] = db.execute("SELECT number FROM treeward.meta WHERE name = 'version'").fetchall()
        if version != VERSION:
            raise StoreVersion(f"{where}: of version {version}; this treeward knows version {VERSION}")
        [[secret]] = db.execute("SELECT bytes FROM treeward.meta WHERE name = 'secret'").fetchall()
        return bytes(secret)


def number_items(db: Connection, ids: pl.Series) -> NDArray[np.int32]:
    """Return the numbers of items, giving new ones to items not seen before."""
    with db.transaction():
        _alone(db)
        known = Numbers("PostgresStore")
        rows = db.execute("SELECT first, ids, crc FROM treeward.items ORDER BY first").fetchall()
        if rows:
            known.load(pl.concat([read_items("PostgreSQL", *row) for row in rows]))
        before = len(known)
        numbers = known.of(ids)
        fresh = ids.filter(pl.Series(numbers >= before))
        if len(fresh):
            packed = io.BytesIO()
            fresh.rename("id").to_frame().write_ipc(packed, compression="lz4")
            row = (before, packed.getvalue(), crc32(packed.getvalue()))
            db.execute("INSERT INTO treeward.items VALUES (%b, %b, %b)", row)
        return numbers


def number_snapshot(db: Connection, digest: str) -> int:
    """Return the number of a tree, giving a new one to a tree not seen before."""
    with db.transaction():
        _alone(db)
        db.execute(
            "INSERT INTO treeward.snapshots SELECT coalesce(max(number), -1) + 1, %s FROM treeward.snapshots "
            "ON CONFLICT (digest) DO NOTHING",
            (digest,),
        )
        [[number]] = db.execute("SELECT number FROM treeward.snapshots WHERE digest = %s", (digest,)).fetchall()
        return int(number)


def _alone(db: Connection) -> None:
    db.execute("SELECT pg_advisory_xact_lock(%b)", (_LOCK,))
