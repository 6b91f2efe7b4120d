"""The log: one line of JSON per request and per problem, on stderr; never a body, a key or a user."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import time
from traceback import extract_tb
from types import TracebackType
from typing import Any

from treeward.serve import wire

_LINE = b'{"time":%.3f,"id":"%s","method":%s,"route":"%s","status":%d,"ms":%.2f,"key":%s}\n'


class Log:
    """Collects lines, and writes them only in `flush`: the reader of stderr may be slow."""

    def __init__(self) -> None:
        self._lines: list[bytes | tuple[float, bytes, str, str, int, float, str]] = []

    def request(self, request_id: bytes, method: str, route: str, status: int, seconds: float, caller: str) -> None:
        """Add a request; it is formatted only when it is written, since this runs between two requests."""
        self._lines.append((time(), request_id, method, route, status, seconds, caller))

    def note(self, told: dict[str, Any]) -> None:
        """Add anything else."""
        self._lines.append(wire.encode({"time": round(time(), 3), **told}) + b"\n")

    def problem(self, error: BaseException, request_id: bytes) -> None:
        """Add an unexpected error: its type, and the lines of treeward that it went through."""
        where = _where(error.__traceback__)
        self.note({"error": type(error).__name__, "at": where, "request_id": request_id.decode()})

    def flush(self) -> None:
        """Write the collected lines."""
        lines, self._lines = self._lines, []
        if lines:
            with suppress(OSError, ValueError):
                sys.stderr.buffer.write(
                    b"".join(line if isinstance(line, bytes) else _line_of(*line) for line in lines)
                )
                sys.stderr.buffer.flush()


class _Handler(logging.Handler):
    """Turns log records of libraries into lines."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record; of an exception only its type and place, since its message may contain data of a caller."""
        kind, _, trace = record.exc_info or (None, None, None)
        if kind is not None:
            self._log.note({"error": kind.__name__, "at": _where(trace), "logger": record.name})
        else:
            words = str(record.msg).strip().splitlines() or [""]
            self._log.note({"error": words[0][:200], "logger": record.name})


@contextmanager
def capturing(log: Log) -> Iterator[None]:
    """Write everything that libraries, threads and the interpreter would print as lines of a log."""
    root, handler, hooks = logging.getLogger(), _Handler(log), (threading.excepthook, sys.unraisablehook)
    before, root.handlers = root.handlers, [handler]
    logging.captureWarnings(True)

    def uncaught(found: Any) -> None:
        """Add an exception that nothing caught, in a thread or a destructor."""
        kind = "?" if found.exc_type is None else found.exc_type.__name__
        log.note({"error": kind, "at": _where(found.exc_traceback)})

    threading.excepthook = sys.unraisablehook = uncaught
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        logging.captureWarnings(False)
        root.handlers = before
        log.flush()


def _where(trace: TracebackType | None) -> str:
    """Return the lines of treeward that an error went through, the last first."""
    frames = [] if trace is None else reversed(extract_tb(trace))
    return " < ".join(f"{frame.name}:{frame.lineno}" for frame in frames if "treeward" in frame.filename)


def _line_of(
    when: float, request_id: bytes, method: str, route: str, status: int, seconds: float, caller: str
) -> bytes:
    name, key = wire.encode(method), wire.encode(caller)
    return _LINE % (when, request_id, name, route.encode(), status, seconds * 1e3, key)
