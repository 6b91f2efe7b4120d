"""How commands call a running service: what goes wrong on the way is one line, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from treeward.core.errors import ExtraMissing, TreewardError

if TYPE_CHECKING:
    from treeward.client import Client


@contextmanager
def calling(
    command: str, address: str, key: str | None, *, timeout: float = 3_600, tries: int = 1
) -> "Iterator[Client]":
    """Return a client for a while; `command` is who needs it, should the extra be missing."""
    try:
        import httpx

        from treeward.client import Client, ServiceError
    except ImportError as error:
        raise ExtraMissing.of(command, error.name, "serve") from error
    try:
        with Client(address, key=key, timeout=timeout, tries=tries) as client:
            yield client
    except (ServiceError, httpx.TransportError, httpx.InvalidURL) as error:
        lacks = " (--key, or TW_KEY in the environment)" if getattr(error, "status", None) == 401 else ""
        raise TreewardError(f"{address}: {error}{lacks}") from error
