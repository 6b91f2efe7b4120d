"""Reports of past experiments: pages in a folder, which are listed, and opened by links that expire."""

import os
import re
import secrets
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from html import unescape
from importlib.metadata import version
from pathlib import Path
from time import time
from urllib.parse import quote

from treeward.core.errors import UnknownId
from treeward.serve import wire

PLOTLY = f"plotly-{version('plotly')}.js"
"""Name of the plotting library, with its version, so that browsers may keep it for good."""
_OPEN_FOR = 600
_HEAD = 1 << 16
_TITLE = re.compile(rb"<title>([^<]*)</title>", re.IGNORECASE)
_MOST = 500


def plotly() -> bytes:
    """Return the plotting library, which plotly's package contains."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


class Reports:
    """The pages in a folder, and one level below it; without a folder there are none."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self._secret = secrets.token_bytes(32)

    def listed(self) -> wire.ReportList:
        """Return all reports, the latest first."""
        found = []
        for name, path in self._paths().items():
            with suppress(OSError):  # it was deleted meanwhile
                found.append(wire.Report(name, _title(path) or name, round(path.stat().st_mtime, 3)))
        return wire.ReportList(self._folder is not None, sorted(found, key=lambda one: -one.modified)[:_MOST])

    def link(self, name: str) -> wire.ReportLink:
        """Return a link by which anybody can open a report during the next ten minutes."""
        self._path(name)
        until = int(time()) + _OPEN_FOR
        return wire.ReportLink(f"/reports/{quote(name, safe='')}?until={until}&ticket={self._ticket(name, until)}")

    def read(self, name: str, until: int, ticket: str) -> bytes:
        """Return a report, given a link's ticket. Its copy of the plotting library is replaced by a link to ours."""
        if not compare_digest(ticket.encode(), self._ticket(name, until).encode()) or until < time():
            raise UnknownId("this link has expired: open the report from the list again")
        body = self._path(name).read_bytes()
        return body.replace(
            b"<script>" + plotly() + b"</script>", b'<script src="/assets/%s"></script>' % PLOTLY.encode()
        )

    def _paths(self) -> dict[str, Path]:
        if self._folder is None:
            return {}
        found = {}
        for path in sorted([*self._folder.glob("*.html"), *self._folder.glob("*/*.html")]):
            name = str(path.relative_to(self._folder))
            inside = path.resolve().is_relative_to(self._folder.resolve())  # a symbolic link may lead anywhere
            if inside and path.is_file() and os.access(path, os.R_OK) and name.isprintable():
                found[name] = path
        return found

    def _path(self, name: str) -> Path:
        # Looked up in the list, never joined to a path: no name leads out of the folder.
        found = self._paths().get(name)
        if found is None:
            raise UnknownId(f"there is no report {name[:80]!r}")
        return found

    def _ticket(self, name: str, until: int) -> str:
        return blake2b(f"{until}\n{name}".encode(errors="replace"), key=self._secret, digest_size=16).hexdigest()


def _title(path: Path) -> str:
    with path.open("rb") as file:
        found = _TITLE.search(file.read(_HEAD))
    return unescape(found[1].decode(errors="replace")).strip() if found else ""
