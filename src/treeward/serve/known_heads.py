"""Heads of requests that were parsed before, by their bytes: callers send the same ones again and again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from treeward.serve.hot import HotRoute
    from treeward.serve.settings import Key

_MOST, _LONGEST = 1024, 2048
"""How many heads are kept, and how many bytes one may have."""


class KnownHead(NamedTuple):
    """What a head means. The connection stays open after a request with such a head."""

    route: "HotRoute[Any, Any]"
    key: "Key"
    """The caller's key, which has the role that the route needs."""
    length: int
    """Bytes of the body that follows."""


class KnownHeads:
    """Remembers heads that a parser has read and that were let in. Only the bytes between them and the body are equal.

    It never grows beyond a few megabytes: when it is full, it is emptied.
    """

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}
        self.get = self._heads.get
        """Returns what a head means; None if it is not known."""

    def __len__(self) -> int:
        return len(self._heads)

    def learn(
        self,
        request: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        route: "HotRoute[Any, Any]",
        key: "Key",
    ) -> None:
        """Remember the head of a whole request, of which the parser made these headers and this body.

        A head with an id of its own will not come again. A body in chunks has no fixed length.
        """
        head, _, rest = request.partition(b"\r\n\r\n")
        names = [name for name, _ in headers]
        whole = rest == body and head.startswith(b"POST %s HTTP/1.1\r\n" % route.path.encode())
        if not whole or len(head) > _LONGEST or b"content-length" not in names or b"x-request-id" in names:
            return
        if len(self._heads) >= _MOST:
            self._heads.clear()
        self._heads[head] = KnownHead(route, key, len(body))
