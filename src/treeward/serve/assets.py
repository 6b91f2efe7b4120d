"""The files of the page, compressed once and kept; nothing in them is secret."""

import gzip
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from importlib.resources import files
from typing import NamedTuple

PLOTLY = f"plotly-{version('plotly')}.js"
"""Named by its version, so that a browser may keep it for ever."""
_KINDS = {"html": b"text/html", "css": b"text/css", "js": b"text/javascript", "svg": b"image/svg+xml"}


class Asset(NamedTuple):
    """A file as it is sent."""

    body: bytes
    packed: bytes
    """The same, compressed."""
    kind: bytes
    tag: bytes
    """Changes with the body."""
    fixed: bool
    """It never changes under this name."""


def plotly() -> bytes:
    """Return the plotting library that plotly's package brings along."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


def asset(name: str) -> Asset | None:
    """Return a file of the page; None: there is no such file."""
    return _read(name) if name == PLOTLY or name in _names() else None


@cache
def _names() -> frozenset[str]:
    return frozenset(one.name for one in files("treeward.serve").joinpath("page").iterdir())


@cache
def _read(name: str) -> Asset:
    if name == PLOTLY:
        return _made(plotly(), b"text/javascript", fixed=True)
    body = files("treeward.serve").joinpath("page", name).read_bytes()
    return _made(body.replace(b"%plotly%", PLOTLY.encode()), _KINDS[name.rpartition(".")[2]], fixed=False)


def _made(body: bytes, kind: bytes, *, fixed: bool) -> Asset:
    tag = b'"%s"' % blake2b(body, digest_size=12).hexdigest().encode()
    return Asset(body, gzip.compress(body, 6, mtime=0), kind + b"; charset=utf-8", tag, fixed)
