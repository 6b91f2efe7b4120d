"""A PostgreSQL database: its connections, and errors when it cannot be reached. Needs the extra `postgres`."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict

from treeward.core.errors import StoreError

Answer = TypeVar("Answer")
Connection = psycopg.Connection[tuple[Any, ...]]
Rollback = psycopg.Rollback
logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # the caller gets the error
_CLASHED = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""Conflicts with another transaction: a second attempt may succeed."""
_TRIES = 3
_SOON = 1.0
"""Seconds to wait for a connection while the database is known to be unreachable."""
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, psycopg_pool.PoolTimeout)


class Database:
    """A pool of connections, which replaces lost ones.

    Parameters
    ----------
    url
        Where, as ``postgresql://user@host/database``.
    connections
        At most this many at a time.
    timeout
        Seconds to wait for one before a call is refused; at most one second while the database is unreachable.
    """

    def __init__(self, url: str, connections: int, timeout: float) -> None:
        self.problem: StoreError | None = None
        """Why the last call did not reach the database, if it did not."""
        self._timeout, self._name = timeout, "PostgreSQL"
        pool = None
        try:
            where = _read(url)
            # Never the password.
            self._name = f"PostgreSQL {where.get('dbname', '')} at {where.get('host', 'localhost')}"
            # One attempt per call: the pool's own attempts get rarer the longer a database is unreachable.
            pool = psycopg_pool.ConnectionPool(
                url, min_size=1, max_size=connections, timeout=timeout, open=False, name="treeward",
                reconnect_timeout=0.0,
                kwargs={"autocommit": True, "connect_timeout": where.get("connect_timeout", max(2, round(timeout)))},
            )  # fmt: skip
            pool.open(wait=True, timeout=timeout)
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            if pool is not None:
                pool.close()
            raise StoreError(f"{self._name}: cannot be reached ({_reason(error)})") from error
        self._pool = pool

    def __str__(self) -> str:
        return self._name

    def do(self, work: Callable[[Connection], Answer]) -> Answer:
        """Run some work with a connection; raise `StoreError` if the database cannot be reached."""
        try:
            answer = self._tried(work)
        except _CLASHED as error:
            raise StoreError(f"{self}: {_reason(error)}") from error
        except _LOST as error:
            self.problem = StoreError(f"{self}: cannot be reached ({_reason(error)})")
            raise self.problem from error
        except psycopg.Error as error:
            raise StoreError(f"{self}: {_reason(error)}") from error
        self.problem = None
        return answer

    def _tried(self, work: Callable[[Connection], Answer]) -> Answer:
        timeout = self._timeout if self.problem is None else min(self._timeout, _SOON)
        for _ in range(_TRIES - 1):
            with suppress(*_CLASHED), self._pool.connection(timeout=timeout) as connection:
                return work(connection)
        with self._pool.connection(timeout=timeout) as connection:
            return work(connection)

    def rows(self, query: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self.do(lambda connection: connection.execute(query, given, binary=True).fetchall())

    def probe(self) -> None:
        """After a problem, find out whether the database can be reached again; replace lost connections."""
        if self.problem is not None:
            with suppress(StoreError):
                self._pool.check()
                self.rows("SELECT 1")

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def _read(url: str) -> dict[str, Any]:
    """Return the parts of an address; refuse one in which a password would be read, and shown, as another part."""
    place = url.partition("://")[2].partition("?")[0]
    if any(sign in place[: max(place.rfind("@"), 0)] for sign in " /@#"):
        raise StoreError("PostgreSQL: the password in the address must be percent-encoded, or better in PGPASSWORD")
    with suppress(psycopg.ProgrammingError):  # its message contains parts of the address
        found = conninfo_to_dict(url)
        if all(not part or part.isdecimal() for part in str(found.get("port", 0)).split(",")):
            return found
    raise StoreError(
        "PostgreSQL: cannot be reached (the address cannot be read; write postgresql://user@host:port/database, "
        "with a password percent-encoded, or better in PGPASSWORD)"
    )


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
