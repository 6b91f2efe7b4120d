"""A client of the service, sync and async. Needs httpx; imports nothing else of treeward.

    from treeward.client import Client

    with Client("http://127.0.0.1:8000", key="tw_...") as client:
        [choice] = client.recommend("ada")
        client.feedback(choice["decision_id"], 1.0)

A request is sent again after a failed connection or a 429 or 503, waiting longer each time. That is safe: feedback is
sent with the same decision id, so it counts once; a recommendation that got lost on its way was shown to nobody.
"""

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

User = str | int
Item = str | int


class ServiceError(Exception):
    """The service said no: `status`, `error` (a name to act on) and `message` (a sentence to read)."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(f"{status} {error}: {message}")
        self.status, self.error, self.message = status, error, message


class _Calls:
    """What both clients share: bodies, answers, and when to try again."""

    def __init__(self, url: str, key: str | None, timeout: float, tries: int) -> None:
        self._options: dict[str, Any] = {
            "base_url": url,
            "timeout": timeout,
            "headers": {"authorization": f"Bearer {key}"} if key else {},
        }
        self._tries = tries

    @staticmethod
    def _slices(items: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
        """Return items in as many bodies as they need."""
        longest = max((len(one.get("vector", ())) for one in items), default=0)
        most = max(1, min(1_000, 900_000 // (12 * longest + 100)))
        return [list(items[first : first + most]) for first in range(0, len(items), most)]

    @staticmethod
    def _ask(user: User, n: int, exclude: Iterable[Item], allow: Iterable[Item] | None,
             where: Mapping[str, Any] | None, diverse: bool, fallback: Iterable[Item],
             context: Mapping[str, Any] | None) -> dict[str, Any]:  # fmt: skip
        body: dict[str, Any] = {"user": user, "n": n, "exclude": list(exclude), "fallback": list(fallback)}
        if diverse:
            body["diverse"] = True
        if allow is not None:
            body["allow"] = list(allow)
        if where is not None:
            body["where"] = dict(where)
        if context is not None:
            body["context"] = dict(context)
        return body

    @staticmethod
    def _read(answer: httpx.Response) -> Any:
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if answer.status_code != 200:
            raise ServiceError(answer.status_code, body.get("error", "?"), body.get("message", answer.text[:200]))
        return body

    def _pause(self, attempt: int, answer: httpx.Response | None, problem: httpx.TransportError | None) -> float | None:
        """Return how long to wait before another try; None: the answer stands. Raise the problem of the last try."""
        if answer is not None and answer.status_code not in (429, 503):
            return None
        if attempt + 1 >= self._tries:
            if problem is not None:
                raise problem
            return None
        after = answer.headers.get("retry-after") if answer is not None else None
        return float(after) if after is not None else random.uniform(0.5, 1) * min(0.05 * 2**attempt, 2.0)


class Client(_Calls):
    """The service, from a program that waits for its answers.

    Parameters
    ----------
    url
        Where it listens.
    key
        The API key, if it has any.
    timeout
        Seconds to wait for an answer.
    tries
        How often a request is sent at most.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 5.0, tries: int = 5) -> None:
        super().__init__(url, key, timeout, tries)
        self._http = httpx.Client(**self._options)

    def recommend(
        self,
        user: User,
        n: int = 1,
        *,
        exclude: Iterable[Item] = (),
        allow: Iterable[Item] | None = None,
        where: Mapping[str, Any] | None = None,
        diverse: bool = False,
        fallback: Iterable[Item] = (),
        context: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return n items for a user, each with its decision_id."""
        body = self._ask(user, n, exclude, allow, where, diverse, fallback, context)
        items: list[dict[str, Any]] = self._send("POST", "/v1/recommend", body)["items"]
        return items

    def feedback(self, decision_id: str, reward: float) -> dict[str, Any]:
        """Say what came of a decision; it is on disk when this returns."""
        told: dict[str, Any] = self._send("POST", "/v1/feedback", {"decision_id": decision_id, "reward": reward})
        return told

    def feedback_many(self, rewards: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
        """Say what came of many decisions; return a status and a body for each."""
        rows = [{"decision_id": id, "reward": reward} for id, reward in rewards]
        told: list[dict[str, Any]] = self._send("POST", "/v1/feedback/batch", {"rewards": rows})["rows"]
        return told

    def user(self, user: User) -> dict[str, Any]:
        """Return what is known of a user."""
        told: dict[str, Any] = self._send("GET", _path_of(user), None)
        return told

    def lift(self) -> dict[str, Any]:
        """Return what exploring is worth compared with those held out, and when that was counted (`as_of`)."""
        told: dict[str, Any] = self._send("GET", "/v1/lift", None)
        return told

    def crowd(self) -> dict[str, Any]:
        """Return what everybody taught so far: the edition, its age, the items that rose most."""
        told: dict[str, Any] = self._send("GET", "/v1/crowd", None)
        return told

    def put_items(self, items: Sequence[Mapping[str, Any]]) -> int:
        """Add items, or change what is known of them, and return how many; each has `item`, `vector` and `columns`.

        They can be recommended when this returns. What is not given of an item that is known stays as it is.
        """
        return sum(self._send("PUT", "/v1/items", {"items": part})["changed"] for part in self._slices(items))

    def remove_items(self, items: Sequence[Item]) -> int:
        """Take items away: none is recommended once this has returned. Return how many were there."""
        parts = [list(items[first : first + 1_000]) for first in range(0, len(items), 1_000)]
        return sum(self._send("DELETE", "/v1/items", {"items": part})["changed"] for part in parts)

    def forget(self, user: User) -> int:
        """Erase a user; return how many events that were."""
        return int(self._send("DELETE", _path_of(user), None)["events"])

    def health(self, *, users: int = 100, compare: bool = True) -> dict[str, Any]:
        """Return how well the tree still fits its items; asked of the admin address."""
        query = f"users={users}&compare={'true' if compare else 'false'}"
        told: dict[str, Any] = self._send("GET", f"/admin/tree?{query}", None)
        return told

    def snapshot(self) -> dict[str, Any]:
        """Return what is served, and what was before; to be asked of the admin address."""
        told: dict[str, Any] = self._send("GET", "/admin/snapshot", None)
        return told

    def swap(
        self, items: str = "", tree: str = "", prior: str = "", features: str = "", *, back: bool = False
    ) -> dict[str, Any]:
        """Serve other items, or another tree of them, or what was served before; to be asked of the admin address."""
        named = {"items": items, "tree": tree, "prior": prior, "features": features}
        body: dict[str, Any] = {"back": True} if back else named
        told: dict[str, Any] = self._send("POST", "/admin/snapshot", body)
        return told

    def ready(self) -> bool:
        """Tell whether the service takes requests."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _send(self, method: str, path: str, body: Any) -> Any:
        attempt = 0
        while True:
            answer, problem = None, None
            try:
                answer = self._http.request(method, path, json=body)
            except httpx.TransportError as error:
                problem = error
            pause = self._pause(attempt, answer, problem)
            if pause is None and answer is not None:
                return self._read(answer)
            time.sleep(pause or 0.0)
            attempt += 1

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient(_Calls):
    """The service, from a program that does other things meanwhile; takes what `Client` takes."""

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 5.0, tries: int = 5) -> None:
        super().__init__(url, key, timeout, tries)
        self._http = httpx.AsyncClient(**self._options)

    async def recommend(
        self,
        user: User,
        n: int = 1,
        *,
        exclude: Iterable[Item] = (),
        allow: Iterable[Item] | None = None,
        where: Mapping[str, Any] | None = None,
        diverse: bool = False,
        fallback: Iterable[Item] = (),
        context: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return n items for a user, each with its decision_id."""
        body = self._ask(user, n, exclude, allow, where, diverse, fallback, context)
        items: list[dict[str, Any]] = (await self._send("POST", "/v1/recommend", body))["items"]
        return items

    async def feedback(self, decision_id: str, reward: float) -> dict[str, Any]:
        """Say what came of a decision; it is on disk when this returns."""
        told: dict[str, Any] = await self._send("POST", "/v1/feedback", {"decision_id": decision_id, "reward": reward})
        return told

    async def feedback_many(self, rewards: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
        """Say what came of many decisions; return a status and a body for each."""
        rows = [{"decision_id": id, "reward": reward} for id, reward in rewards]
        told: list[dict[str, Any]] = (await self._send("POST", "/v1/feedback/batch", {"rewards": rows}))["rows"]
        return told

    async def user(self, user: User) -> dict[str, Any]:
        """Return what is known of a user."""
        told: dict[str, Any] = await self._send("GET", _path_of(user), None)
        return told

    async def lift(self) -> dict[str, Any]:
        """Return what exploring is worth compared with those held out, and when that was counted (`as_of`)."""
        told: dict[str, Any] = await self._send("GET", "/v1/lift", None)
        return told

    async def crowd(self) -> dict[str, Any]:
        """Return what everybody taught so far: the edition, its age, the items that rose most."""
        told: dict[str, Any] = await self._send("GET", "/v1/crowd", None)
        return told

    async def put_items(self, items: Sequence[Mapping[str, Any]]) -> int:
        """Add items, or change what is known of them; return how many."""
        parts = self._slices(items)
        return sum([(await self._send("PUT", "/v1/items", {"items": part}))["changed"] for part in parts])

    async def remove_items(self, items: Sequence[Item]) -> int:
        """Take items away; return how many were there."""
        parts = [list(items[first : first + 1_000]) for first in range(0, len(items), 1_000)]
        return sum([(await self._send("DELETE", "/v1/items", {"items": part}))["changed"] for part in parts])

    async def forget(self, user: User) -> int:
        """Erase a user; return how many events that were."""
        return int((await self._send("DELETE", _path_of(user), None))["events"])

    async def ready(self) -> bool:
        """Tell whether the service takes requests."""
        try:
            return (await self._http.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def _send(self, method: str, path: str, body: Any) -> Any:
        attempt = 0
        while True:
            answer, problem = None, None
            try:
                answer = await self._http.request(method, path, json=body)
            except httpx.TransportError as error:
                problem = error
            pause = self._pause(attempt, answer, problem)
            if pause is None and answer is not None:
                return self._read(answer)
            await asyncio.sleep(pause or 0.0)
            attempt += 1

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def _path_of(user: User) -> str:
    if isinstance(user, int):
        return f"/v1/users/int:{user}"
    plain = user.strip(".") and not user.startswith(("int:", "str:"))
    return "/v1/users/" + quote(user if plain else f"str:{user}", safe="")
