"""The tables of a store in PostgreSQL: made once, in one transaction."""

from collections.abc import Mapping
from importlib.resources import files

from treeward.core.errors import StoreError, StoreVersion
from treeward.store.database import Connection
from treeward.store.identities import Identities

VERSION = 3
_LOCK = 0x74726565
"""The advisory lock of the process that makes the tables."""


def prepare(db: Connection, where: str, *, create: bool) -> None:
    """Make the tables if they do not exist; refuse a store of another version."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%b)", (_LOCK,))
        [[tables, current]] = db.execute(
            "SELECT count(*), to_regclass('treeward.version') IS NOT NULL FROM pg_tables WHERE schemaname = 'treeward'"
        ).fetchall()
        if not tables:
            if not create:
                raise StoreError(f"{where}: there is no store in this database")
            db.execute(files("treeward.store").joinpath("postgres.sql").read_bytes())
            put_metadata(db, Identities.first())
            return
        [[version]] = db.execute("SELECT number FROM treeward.version").fetchall() if current else [["1 or 2"]]
        if version != VERSION:
            raise StoreVersion(
                f"{where}: its schema treeward is of version {version}; this treeward reads only version {VERSION}: "
                "use the treeward that wrote it, or another database"
            )


def put_metadata(db: Connection, values: Mapping[str, bytes | None], *, new: bool = False) -> int:
    """Write metadata in place of what there is or, with `new`, where nothing is; return how many values.

    A value of None removes what there is.
    """
    there = "NOTHING" if new else "UPDATE SET value = excluded.value"
    rows = sorted((key, value) for key, value in values.items() if value is not None)  # no two callers deadlock
    gone = sorted(key for key, value in values.items() if value is None)
    if gone:
        db.execute(
            "DELETE FROM treeward.metadata WHERE key IN "
            "(SELECT key FROM treeward.metadata WHERE key = ANY(%b::text[]) ORDER BY key FOR UPDATE)",
            (gone,),
        )
    return db.execute(
        f"INSERT INTO treeward.metadata SELECT * FROM unnest(%b::text[], %b::bytea[]) ON CONFLICT (key) DO {there}",
        ([key for key, _ in rows], [value for _, value in rows]),
    ).rowcount


def move(db: Connection, old: bytes, new: bytes | None) -> bytes:
    """Put one user's events behind another's, or erase them; return these events."""
    if new is not None:
        db.execute("INSERT INTO treeward.users (name) VALUES (%b) ON CONFLICT DO NOTHING", (new,))
    rows = db.execute(
        "SELECT name, id, events FROM treeward.users WHERE name IN (%b, %b) ORDER BY name FOR UPDATE", (old, new)
    ).fetchall()
    held = {name: (id, count) for name, id, count in rows}
    if old not in held:
        return b""
    gone, count = held[old]
    [[records]] = db.execute(
        "SELECT string_agg(record, ''::bytea ORDER BY seq) FROM treeward.events WHERE user_id = %b",
        (gone,),
        binary=True,
    ).fetchall()
    if new is None:
        db.execute("DELETE FROM treeward.events WHERE user_id = %b", (gone,))
    else:
        kept, before = held[new]
        db.execute("UPDATE treeward.events SET user_id = %b, seq = seq + %b WHERE user_id = %b", (kept, before, gone))
        db.execute("UPDATE treeward.users SET events = events + %b WHERE id = %b", (count, kept))
    db.execute("DELETE FROM treeward.users WHERE id = %b", (gone,))
    return bytes(records or b"")
