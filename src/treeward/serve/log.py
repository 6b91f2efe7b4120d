"""The log: a line a request and a line a problem, as JSON on stderr; never a body, a key or a user."""

import sys
from contextlib import suppress
from time import time
from traceback import extract_tb
from typing import Any

from treeward.serve import wire

_LINE = b'{"time":%.3f,"id":"%s","method":%s,"route":"%s","status":%d,"ms":%.2f,"key":%s}\n'


class Log:
    """Collects lines, and writes them when told to: whoever reads them may be slow."""

    def __init__(self) -> None:
        self._lines: list[bytes | tuple[float, bytes, str, str, int, float, str]] = []

    def request(self, request_id: bytes, method: str, route: str, status: int, seconds: float, caller: str) -> None:
        """Add a request; put into words only when it is written, since this runs between two requests."""
        self._lines.append((time(), request_id, method, route, status, seconds, caller))

    def note(self, told: dict[str, Any]) -> None:
        """Add anything else."""
        self._lines.append(wire.encode({"time": round(time(), 3), **told}) + b"\n")

    def problem(self, error: Exception, request_id: bytes) -> None:
        """Add an error nobody thought of: its kind and the lines of ours that it went through."""
        where = " < ".join(
            f"{frame.name}:{frame.lineno}"
            for frame in reversed(extract_tb(error.__traceback__))
            if "treeward" in frame.filename
        )
        self.note({"error": type(error).__name__, "at": where, "request_id": request_id.decode()})

    def flush(self) -> None:
        """Write what there is."""
        lines, self._lines = self._lines, []
        if lines:
            with suppress(OSError, ValueError):
                sys.stderr.buffer.write(b"".join(line if isinstance(line, bytes) else _said(*line) for line in lines))
                sys.stderr.buffer.flush()


def _said(when: float, request_id: bytes, method: str, route: str, status: int, seconds: float, caller: str) -> bytes:
    name, key = wire.encode(method), wire.encode(caller)
    return _LINE % (when, request_id, name, route.encode(), status, seconds * 1e3, key)
