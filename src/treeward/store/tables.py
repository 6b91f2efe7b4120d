"""The tables of a store in PostgreSQL: made once, and the numbers of items and trees in them."""

import secrets
from importlib.resources import files

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import StoreError, StoreVersion
from treeward.store.database import Connection
from treeward.store.events import NAMELESS, Kept
from treeward.store.heads import Head
from treeward.store.moves import Move
from treeward.store.numbers import Numbers
from treeward.store.rows import pack_items, read_items
from treeward.store.users import spelled

VERSION = 2
_LOCK = 0x74726565
"""What callers hold who make the tables, or number items and trees: one at a time, of all processes."""


def prepare(db: Connection, where: str, *, create: bool) -> tuple[bytes, bool]:
    """Make the tables if they are not there; return the store's secret, and whether it is a copy that lacks events."""
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
            raise StoreVersion(
                f"{where}: of version {version}; this treeward knows {VERSION}: use the one that wrote it"
            )
        [[secret]] = db.execute("SELECT bytes FROM treeward.meta WHERE name = 'secret'").fetchall()
        [[unfinished]] = db.execute(
            "SELECT coalesce(max(number), 0) FROM treeward.meta WHERE name = 'unfinished'"
        ).fetchall()
        return bytes(secret), bool(unfinished)


class Items:
    """The numbers of items as far as this process has read them; others may give new ones at any time."""

    def __init__(self) -> None:
        self._known = Numbers("PostgresStore")
        self._sound = True

    def number(self, db: Connection, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers of items, giving new ones to items not seen before."""
        if not self._sound:  # numbers were given here that never got to the database
            self._known = Numbers("PostgresStore")
        self._sound = False
        with db.transaction():
            _alone(db)
            rows = db.execute(
                "SELECT first, ids, crc FROM treeward.items WHERE first >= %b ORDER BY first", (len(self._known),)
            ).fetchall()
            if rows and len(self._known) == 0:
                self._known.load(pl.concat([read_items("PostgreSQL", *row) for row in rows]))
            else:
                for row in rows:
                    self._known.of(read_items("PostgreSQL", *row))
            before = len(self._known)
            numbers = self._known.of(ids)
            fresh = ids.filter(pl.Series(numbers >= before))
            if len(fresh):
                db.execute("INSERT INTO treeward.items VALUES (%b, %b, %b)", pack_items(before, fresh))
        self._sound = True
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
        if number >= NAMELESS:
            raise StoreError("PostgreSQL: holds as many trees and contexts as there are numbers for")
        return int(number)


def keep(db: Connection, name: bytes, epoch: int, kept: Kept) -> None:
    """Remember a user's state, if nobody was forgotten or merged since `epoch`."""
    with db.transaction():
        [[now]] = db.execute("SELECT number FROM treeward.meta WHERE name = 'epoch' FOR SHARE").fetchall()
        if now == epoch:
            db.execute(
                "INSERT INTO treeward.kept SELECT id, %b, %b, %b FROM treeward.users WHERE name = %b "
                "ON CONFLICT (user_id) DO UPDATE SET events = excluded.events, epoch = excluded.epoch, "
                "state = excluded.state",
                (kept.events, kept.epoch, kept.state, name),
            )


def merge(db: Connection, old: bytes, new: bytes) -> int:
    """Put one user's events behind another's and return how many."""
    db.execute("INSERT INTO treeward.users (name) VALUES (%b) ON CONFLICT DO NOTHING", (new,))
    rows = db.execute(
        "SELECT name, id, events FROM treeward.users WHERE name IN (%b, %b) ORDER BY name FOR UPDATE", (old, new)
    ).fetchall()
    held = {name: (id, count) for name, id, count in rows}
    if old not in held:
        return 0
    (gone, count), (kept, before) = held[old], held[new]
    db.execute("UPDATE treeward.events SET user_id = %b, seq = seq + %b WHERE user_id = %b", (kept, before, gone))
    db.execute("UPDATE treeward.users SET events = events + %b WHERE id = %b", (count, kept))
    remove(db, gone)
    return int(count)


def remove(db: Connection, user: int) -> None:
    """Remove all there is of a user."""
    for table, column in (("events", "user_id"), ("kept", "user_id"), ("users", "id")):
        db.execute(f"DELETE FROM treeward.{table} WHERE {column} = %b", (user,))


def head(db: Connection, moves: list[tuple[bytes, Move]], epoch: int) -> Head:
    """Return all there is but events and remembered states."""
    meta = {name: (number, content) for name, number, content in db.execute("SELECT * FROM treeward.meta").fetchall()}
    parts = db.execute("SELECT first, ids, crc FROM treeward.items ORDER BY first").fetchall()
    items = pl.concat([read_items("PostgreSQL", *row) for row in parts]) if parts else pl.Series("id", [], pl.String)
    trees = [row[0] for row in db.execute("SELECT digest FROM treeward.snapshots ORDER BY number").fetchall()]
    unfinished = bool(meta.get("unfinished", (0, None))[0])
    notes = {name[5:]: bytes(content) for name, (_, content) in meta.items() if name.startswith("note/")}
    return Head(bytes(meta["secret"][1]), epoch, moves, items, trees, meta["begun"][0], notes, unfinished)


def adopt(db: Connection, where: str, head: Head) -> None:
    """Write a head in place of what there is."""
    with db.transaction():
        _alone(db)
        [[secret]] = db.execute("SELECT bytes FROM treeward.meta WHERE name = 'secret'").fetchall()
        [[events]] = db.execute("SELECT EXISTS (SELECT 1 FROM treeward.users)").fetchall()
        if events and bytes(secret) != head.secret:
            raise StoreError(f"{where}: holds events of its own; only a new store can become a copy")
        for table in ("moves", "items", "snapshots"):
            db.execute(f"DELETE FROM treeward.{table}")
        for sealed, move in head.moves:
            whom = None if move.target is None else spelled(move.target)
            db.execute("INSERT INTO treeward.moves VALUES (%b, %b, %b, %b)", (sealed, move.at, whom, move.since))
        for number, digest in enumerate(head.snapshots):
            db.execute("INSERT INTO treeward.snapshots VALUES (%b, %s)", (number, digest))
        if len(head.items):
            db.execute("INSERT INTO treeward.items VALUES (%b, %b, %b)", pack_items(0, head.items))
        db.execute("UPDATE treeward.meta SET bytes = %b WHERE name = 'secret'", (head.secret,))
        db.execute("UPDATE treeward.meta SET number = %b WHERE name = 'epoch'", (head.epoch,))
        db.execute("UPDATE treeward.meta SET number = greatest(number, %b) WHERE name = 'begun'", (head.begun,))
        db.execute("DELETE FROM treeward.meta WHERE name LIKE 'note/%%'")
        for name, content in head.notes.items():
            db.execute("INSERT INTO treeward.meta VALUES (%s, NULL, %b)", (f"note/{name}", content))
        db.execute(
            "INSERT INTO treeward.meta VALUES ('unfinished', %b, NULL) "
            "ON CONFLICT (name) DO UPDATE SET number = excluded.number",
            (int(head.unfinished),),
        )


def _alone(db: Connection) -> None:
    db.execute("SELECT pg_advisory_xact_lock(%b)", (_LOCK,))
