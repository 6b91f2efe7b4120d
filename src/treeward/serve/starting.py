"""What both listeners answer while the service loads: that it lives, how far it is, and that all else must wait."""

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from treeward.core.compile_progress import compile_progress
from treeward.serve import wire
from treeward.serve.keys import Access
from treeward.serve.replies import NOT_KEPT, Headers, Refused, Reply
from treeward.serve.settings import Settings

_PAGE = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>treeward is starting</title></head>
<body style="font-family: system-ui, sans-serif; margin: 4rem auto; max-width: 40rem">
<h1>treeward is starting</h1>
<p role="status">%s</p>
</body>
</html>
"""


class Stopped(Exception):
    """The service was told to end while it was loading."""


class Starting:
    """Knows how far the loading is. `report` is called by the thread that loads, all else by the event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self._access = settings, Access(settings)
        self.stopped = False
        """Whether the loading should end at its next report."""
        self._stage, self._share = "loading items", 0.0

    def report(self, stage: str, done: int, total: int) -> None:
        """Note the progress of a stage."""
        if self.stopped:
            raise Stopped
        self._stage, self._share = stage, done / total if total else 1.0

    @property
    def reason(self) -> str:
        """Why the service is not ready: "compiling, 40 %" or "reading events, 70 %"."""
        compiled = compile_progress.share
        stage, share = (self._stage, self._share) if compiled is None else ("compiling", compiled)
        return f"{stage}, {100 * share:.0f} %"

    def answer(self, method: str, path: str, headers: Headers) -> Reply:
        """Return the answer to a request."""
        try:
            self._access.check_host(headers)
        except Refused as refused:
            return refused.reply
        reason = self.reason
        if method == "GET" and path == "/livez":
            return Reply(200, wire.encode(wire.Health(True, "")))
        if method == "GET" and path == "/readyz":
            return Reply(503, wire.encode(wire.Health(False, reason)))
        problem = wire.Problem("starting", f"the service is starting: {reason}")
        return Reply(503, wire.encode(problem), ((b"retry-after", b"1"),))


class Gate:
    """The application of one listener: `starting` until there is another, also on connections that are open then."""

    def __init__(self, starting: Starting) -> None:
        self._starting = starting
        self.application: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self.application is not None:
            await self.application(scope, receive, send)
        elif scope["type"] == "http":
            headers = Headers(scope["headers"])
            reply = self._starting.answer(scope["method"], scope["path"], headers)
            page = scope["method"] == "GET" and scope["path"] == "/" and reply.status == 503
            body = _PAGE % self._starting.reason.encode() if page else reply.body
            made = Response(body, reply.status, media_type="text/html" if page else "application/json")
            made.raw_headers.extend((*NOT_KEPT, *reply.headers, (b"x-request-id", headers.request_id)))
            await made(scope, receive, send)
