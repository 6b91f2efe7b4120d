"""The hot routes, recommend and feedback: decoded, answered in batches by a thread each, encoded."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from treeward.core.errors import InvalidArgument
from treeward.serve import wire
from treeward.serve.batch import Batcher, Full, Then
from treeward.serve.keys import Access
from treeward.serve.log import Log
from treeward.serve.metrics import Metrics
from treeward.serve.replies import CLOSE, Refused, Reply, problem
from treeward.serve.service import Served

Body = TypeVar("Body", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct)


class HotRoute(Batcher[Body, Answer]):
    """A hot route: its path, its bodies, and the batches in which they are answered. It needs the role `write`."""

    def __init__(
        self,
        path: str,
        kind: type[Body],
        work: Callable[[Sequence[Body]], Sequence[Answer | Exception]],
        most: int,
        at_once: int,
        *,
        slow: Callable[[Body], bool] = lambda body: False,
        prepare: Callable[[Sequence[Body]], None] = lambda bodies: None,
    ) -> None:
        name = "treeward-" + path.rpartition("/")[2]
        super().__init__(name, work, most, at_once, slow=slow, prepare=prepare)
        self.path, self._decoder = path, msgspec.json.Decoder(kind)

    def decode(self, body: bytes) -> Body:
        """Return a body as the route's type."""
        return decoded(self._decoder, body)


class HotPath:
    """Recommend and feedback, and what every request needs: access, refusals, metrics and the log."""

    def __init__(self, served: Served, access: Access, metrics: Metrics, log: Log) -> None:
        self.settings, self.access, self._metrics, self._log = served.settings, access, metrics, log
        most = self.settings.max_waiting
        self.recommend = HotRoute(
            "/v1/recommend", wire.RecommendRequest, lambda asks: served.service.recommend(asks), most, 256,
            slow=lambda asked: served.service.must_replay(asked),
            prepare=lambda asks: served.service.replay(asks),
        )  # fmt: skip
        self.feedback = HotRoute(
            "/v1/feedback", wire.FeedbackRequest, lambda all: served.service.feedback(all), most, 4096
        )
        self.routes: dict[tuple[bytes, bytes], HotRoute[Any, Any]] = {
            (b"POST", route.path.encode()): route for route in (self.recommend, self.feedback)
        }
        """By method and path."""
        self.busy = self.refusal(Full(), b"")
        """The answer if too many requests wait."""

    def start(self) -> None:
        """Begin to take requests; called on the event loop."""
        for route in self.routes.values():
            route.start()

    async def close(self) -> None:
        """Answer what is waiting, and take no more."""
        for route in self.routes.values():
            await asyncio.to_thread(route.close)

    def count(self, path: str, method: str, status: int, seconds: float, caller: str, request_id: bytes) -> None:
        """Count an answered request, and log it: never its body, its key or its user."""
        self._metrics.count(path, status, seconds)
        if self.settings.log == "json":
            self._log.request(request_id, method, path, status, seconds, caller)

    def refusal(self, error: Exception, request_id: bytes) -> Reply:
        """Return the answer to a request that failed; an unexpected error is logged, without its caller's data."""
        if isinstance(error, Refused):
            return error.reply
        try:
            status, told = problem(error)
        except Exception:
            self._log.problem(error, request_id)
            status, told = 500, wire.Problem("internal", "something went wrong here; the log says where")
        return Reply(status, wire.encode(told), ((b"retry-after", b"1"),) if status == 503 else ())

    def check(self, body: Any) -> None:
        """Refuse a request for more items than one request may have."""
        if isinstance(body, wire.RecommendRequest) and body.n > self.settings.max_batch:
            raise InvalidArgument("recommend", "n", f"at most {self.settings.max_batch}", body.n)

    def ask_then(self, route: HotRoute[Any, Any], body: bytes, then: "Then[Any]") -> None:
        """Put a request into its batch, and have `then` called with the answer or the exception."""
        asked = route.decode(body)
        self.check(asked)
        route.ask_then(asked, then)

    async def recommend_many(self, asks: Sequence[wire.RecommendRequest]) -> wire.BatchAnswer:
        """Answer many requests for items; together they may have as many items as one."""
        most = self.settings.max_batch
        self.check_rows("requests", asks)
        upto = accumulate(ask.n for ask in asks)
        few = [ask for ask, items in zip(asks, upto, strict=True) if items <= most]
        answers = await _all(self.recommend, few)
        late = InvalidArgument("batch", "n", f"at most {most} in all, this row's included", "more")
        return _rows([*answers, *[late] * (len(asks) - len(few))])

    async def feedback_many(self, rewards: Sequence[wire.FeedbackRequest]) -> wire.BatchAnswer:
        """Record many rewards."""
        self.check_rows("rewards", rewards)
        return _rows(await _all(self.feedback, rewards))

    def check_rows(self, name: str, rows: Sequence[object]) -> None:
        """Refuse a batch that is empty or too long."""
        if not 0 < len(rows) <= self.settings.max_batch:
            raise InvalidArgument("batch", name, f"1 to {self.settings.max_batch} rows", f"{len(rows)} rows")

    def too_large(self) -> Refused:
        """Return the refusal of a body over the limit."""
        return Refused(413, "too_large", f"a body may have {self.settings.max_body} bytes", CLOSE)

    def too_slow(self) -> Refused:
        """Return the refusal of a body that does not arrive."""
        return Refused(408, "timeout", f"the body took over {self.settings.body_timeout:g} s", CLOSE)


def decoded(decoder: msgspec.json.Decoder[Body], body: bytes) -> Body:
    """Return a JSON body as its type."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Refused(400, "invalid", str(error) or "the body is nested too deeply") from None


async def _all(batcher: Batcher[Body, Answer], many: Sequence[Body]) -> "list[Answer | BaseException]":
    return await asyncio.gather(*batcher.ask_many(many), return_exceptions=True) if many else []


def _rows(answers: Sequence[msgspec.Struct | BaseException]) -> wire.BatchAnswer:
    rows = []
    for answer in answers:
        if isinstance(answer, Exception):
            rows.append(wire.BatchRow(*problem(answer)))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            rows.append(wire.BatchRow(200, answer))
    return wire.BatchAnswer(rows)
