"""Call a running service: complete its address, and turn every failure into one sentence."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treeward.core.errors import ExtraMissing, InvalidArgument, TreewardError

if TYPE_CHECKING:
    from treeward.client import Client

_ADDRESS = re.compile(r"(?:https?://\S+|\[[0-9a-fA-F:]+\]:\d+|[\w.-]*:\d+)/?")
_NEEDS = {
    "public": "the public address of a service (its setting port), such as localhost:8000",
    "admin": "the admin address of a service (its setting admin_port), such as localhost:8001",
}

Public = Annotated[
    str,
    typer.Argument(help="Public address of the service, e.g. localhost:8000.", metavar="SERVICE", show_default=False),
]
Admin = Annotated[
    str,
    typer.Argument(help="Admin address of the service, e.g. localhost:8001.", metavar="SERVICE", show_default=False),
]
Key = Annotated[
    str | None,
    typer.Option(envvar="TREEWARD_KEY", help="An admin key, if the service has keys.", show_default=False),
]


def is_address(text: str) -> bool:
    """Return whether a text is the address of a service, such as localhost:8001, and not a path that exists."""
    return bool(_ADDRESS.fullmatch(text)) and not Path(text).exists()


@contextmanager
def remote(
    command: str, listener: str, address: str, key: str | None, *, timeout: float = 3_600, tries: int = 1
) -> "Iterator[Client]":
    """Yield a client of a service's `listener`, which is public or admin; errors name the `command`."""
    if not is_address(address):
        raise InvalidArgument(command, "SERVICE", _NEEDS[listener], address)
    key = (key or "").strip()  # a file with a secret often ends in a line break
    if not (key.isascii() and key.isprintable()):
        raise TreewardError(f"{command}: --key (or TREEWARD_KEY) must be printable ASCII")  # the key stays unsaid
    try:
        import httpx

        from treeward.client import Client, ServiceError
    except ImportError as error:
        raise ExtraMissing.of(f"treeward {command}", error.name, "serve") from error
    # ":8001" alone means this machine
    url = address if "://" in address else f"http://{'127.0.0.1' if address.startswith(':') else ''}{address}"
    try:
        with Client(url, key=key, timeout=timeout, tries=tries) as client:
            yield client
    except (ServiceError, httpx.TransportError, httpx.InvalidURL) as error:
        status = getattr(error, "status", None)
        needs = f". `treeward {command}` needs {_NEEDS[listener]}"
        if status == 401:
            raise TreewardError(f"{url}: {error} (--key, or TREEWARD_KEY in the environment)") from error
        if isinstance(error, httpx.TransportError):
            raise TreewardError(f"{url}: no service answers ({error}){needs}") from error
        if status in (404, 405):
            other = {"public": "is an admin address", "admin": "is a public address"}[listener]
            what = other if getattr(error, "error", "") == "other_port" else f"has no such route ({error})"
            raise TreewardError(f"{url} {what}{needs}") from error
        raise TreewardError(f"{url}: {error}") from error
