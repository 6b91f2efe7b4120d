"""What the path and the query of a request say."""

import re
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from treeward.core.errors import UnknownId
from treeward.data.catalogue import Id
from treeward.serve.routes import LONGEST_ARGUMENT, Refused, Route


def asked(route: Route, query: bytes) -> Any:
    """Return a route's query, as its type; a route without one passes over whatever there is."""
    if route.asks is None:
        return None
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), errors="strict")
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name is given twice")
        return msgspec.convert(dict(pairs), route.asks, strict=False)
    except ValueError as error:  # of msgspec's and of the parser's
        raise Refused(400, "invalid", f"the query: {error}") from None


def argument(text: str) -> str:
    """Return what stands in a path's braces."""
    if len(text) > 3 * LONGEST_ARGUMENT:
        raise Refused(404, "no_route", "nothing has a name that long")
    try:
        found = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Refused(400, "invalid", "the path is not UTF-8") from None
    if len(found) > LONGEST_ARGUMENT:
        raise Refused(404, "no_route", "nothing has a name that long")
    return found


def blank(pattern: str) -> list[str]:
    """Return the parts of a route's path, without what stands in braces."""
    return ["" if part.startswith("{") else part for part in pattern.split("/")]


def fits(pattern: str, path: str) -> bool:
    """Tell whether a path is one of a route's."""
    parts, given = pattern.split("/"), path.split("/")
    return len(parts) == len(given) and all(
        part == one or (part.startswith("{") and bool(one)) for part, one in zip(parts, given, strict=True)
    )


def parse_id(text: str, integers: bool, what: str) -> Id:
    """Return an id from a path, as its kind is."""
    if not integers:
        return text
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text):  # one way to write each
        raise UnknownId(f"there is no {what} {text[:40]!r}: ids are integers here")
    return int(text)
