"""A client of the service, sync and async. Needs httpx; imports nothing else of treeward.

    from treeward.client import Client

    with Client("http://127.0.0.1:8000", key="tw_...") as client:
        [choice] = client.recommend("ada")
        client.feedback(choice["decision_id"], 1.0)

A request is sent again after a failed connection or an answer of 429 or 503, waiting longer each time. That is safe:
feedback is sent with the same decision id, so it counts once; a recommendation that was lost on its way was not shown.
"""

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import quote

import httpx

User = str | int
Item = str | int
Answer = dict[str, Any]


class Filters(TypedDict, total=False):
    """What a request for items may say besides the user and their number."""

    exclude: Iterable[Item]
    """Items not to show."""
    allow: Iterable[Item] | None
    """The only items to show."""
    where: Mapping[str, Any] | None
    """A condition on the catalogue's columns: a value, a list of values, or {"min": ..., "max": ...}."""
    diverse: bool
    """Spread the items over the tree."""
    fallback: Iterable[Item]
    """The caller's own items, for users held out and in the mode `apprentice`."""
    context: Mapping[str, Any] | None
    """Facts about the request that the service's features use."""


class ServiceError(Exception):
    """The service refused: `status`, `error` (a name to act on) and `message` (a sentence to read)."""

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
    def _read(answer: httpx.Response) -> Answer:
        try:
            body: Answer = answer.json()
        except ValueError:
            body = {}
        if answer.status_code != 200:
            raise ServiceError(answer.status_code, body.get("error", "?"), body.get("message", answer.text[:200]))
        return body

    def _pause(self, attempt: int, answer: httpx.Response | None, problem: httpx.TransportError | None) -> float | None:
        """Return the seconds before another try; None: the answer stands. Raise the problem of the last try."""
        if answer is not None and answer.status_code not in (429, 503):
            return None
        if attempt + 1 >= self._tries:
            if problem is not None:
                raise problem
            return None
        after = answer.headers.get("retry-after") if answer is not None else None
        return float(after) if after is not None else random.uniform(0.5, 1) * min(0.05 * 2**attempt, 2.0)


class Client(_Calls):
    """The service, for a program that waits for its answers.

    Parameters
    ----------
    url
        Where it listens.
    key
        The API key, if the service has keys.
    timeout
        Seconds to wait for an answer.
    tries
        How often a request is sent at most.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 5.0, tries: int = 5) -> None:
        super().__init__(url, key, timeout, tries)
        self._http = httpx.Client(**self._options)

    def recommend(self, user: User, n: int = 1, **filters: Unpack[Filters]) -> list[Answer]:
        """Return n items for a user, each with its decision_id; `Filters` are optional."""
        items: list[Answer] = self._send("POST", "/v1/recommend", _request(user, n, filters))["items"]
        return items

    def feedback(self, decision_id: str, reward: float) -> Answer:
        """Give the reward of a decision; it is on disk when this returns."""
        return self._send("POST", "/v1/feedback", {"decision_id": decision_id, "reward": reward})

    def feedback_many(self, rewards: Sequence[tuple[str, float]]) -> list[Answer]:
        """Give the rewards of many decisions; return a status and a body for each."""
        rows: list[Answer] = self._send("POST", "/v1/feedback/batch", _rewards(rewards))["rows"]
        return rows

    def user(self, user: User) -> Answer:
        """Return what is known of a user."""
        return self._send("GET", _path_of(user))

    def lift(self) -> Answer:
        """Return the lift over users held out, and when it was computed (`as_of`)."""
        return self._send("GET", "/v1/lift")

    def crowd(self) -> Answer:
        """Return what was learned from all users: the edition, its age, the items that rose most."""
        return self._send("GET", "/v1/crowd")

    def put_items(self, items: Sequence[Mapping[str, Any]]) -> int:
        """Add or change items, each with `item`, `vector` and `columns`, and return how many.

        They can be recommended when this returns. Fields of a known item that are not given stay as they are.
        """
        return sum(self._send("PUT", "/v1/items", {"items": part})["changed"] for part in _item_parts(items))

    def remove_items(self, items: Sequence[Item]) -> int:
        """Remove items: none is recommended once this has returned. Return how many there were."""
        return sum(self._send("DELETE", "/v1/items", {"items": part})["changed"] for part in _parts(items, 1_000))

    def forget(self, user: User) -> int:
        """Erase a user; return how many events they had."""
        return int(self._send("DELETE", _path_of(user))["events"])

    def health(self, *, users: int = 100, compare: bool = True) -> Answer:
        """Return how well the tree still fits its items; to be asked of the admin address."""
        return self._send("GET", f"/admin/tree?users={users}&compare={'true' if compare else 'false'}")

    def snapshot(self) -> Answer:
        """Return the snapshot that is served, and the one before; to be asked of the admin address."""
        return self._send("GET", "/admin/snapshot")

    def swap(
        self, items: str = "", tree: str = "", prior: str = "", features: str = "", *, back: bool = False
    ) -> Answer:
        """Serve other items, or another tree of them, or the snapshot before; to be asked of the admin address."""
        named = {"items": items, "tree": tree, "prior": prior, "features": features}
        return self._send("POST", "/admin/snapshot", {"back": True} if back else named)

    def ready(self) -> bool:
        """Return whether the service takes requests."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _send(self, method: str, path: str, body: Any = None) -> Answer:
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
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient(_Calls):
    """The service, for a program that does other things meanwhile; takes the same parameters as `Client`."""

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 5.0, tries: int = 5) -> None:
        super().__init__(url, key, timeout, tries)
        self._http = httpx.AsyncClient(**self._options)

    async def recommend(self, user: User, n: int = 1, **filters: Unpack[Filters]) -> list[Answer]:
        """Return n items for a user, each with its decision_id; `Filters` are optional."""
        items: list[Answer] = (await self._send("POST", "/v1/recommend", _request(user, n, filters)))["items"]
        return items

    async def feedback(self, decision_id: str, reward: float) -> Answer:
        """Give the reward of a decision; it is on disk when this returns."""
        return await self._send("POST", "/v1/feedback", {"decision_id": decision_id, "reward": reward})

    async def feedback_many(self, rewards: Sequence[tuple[str, float]]) -> list[Answer]:
        """Give the rewards of many decisions; return a status and a body for each."""
        rows: list[Answer] = (await self._send("POST", "/v1/feedback/batch", _rewards(rewards)))["rows"]
        return rows

    async def user(self, user: User) -> Answer:
        """Return what is known of a user."""
        return await self._send("GET", _path_of(user))

    async def lift(self) -> Answer:
        """Return the lift over users held out, and when it was computed (`as_of`)."""
        return await self._send("GET", "/v1/lift")

    async def crowd(self) -> Answer:
        """Return what was learned from all users: the edition, its age, the items that rose most."""
        return await self._send("GET", "/v1/crowd")

    async def put_items(self, items: Sequence[Mapping[str, Any]]) -> int:
        """Add or change items; return how many."""
        return sum([(await self._send("PUT", "/v1/items", {"items": one}))["changed"] for one in _item_parts(items)])

    async def remove_items(self, items: Sequence[Item]) -> int:
        """Remove items; return how many there were."""
        parts = _parts(items, 1_000)
        return sum([(await self._send("DELETE", "/v1/items", {"items": one}))["changed"] for one in parts])

    async def forget(self, user: User) -> int:
        """Erase a user; return how many events they had."""
        return int((await self._send("DELETE", _path_of(user)))["events"])

    async def ready(self) -> bool:
        """Return whether the service takes requests."""
        try:
            return (await self._http.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def _send(self, method: str, path: str, body: Any = None) -> Answer:
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
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def _request(user: User, n: int, filters: Filters) -> Answer:
    kinds = {"exclude": list, "allow": list, "fallback": list, "where": dict, "context": dict, "diverse": bool}
    given: Mapping[str, Any] = filters
    if not given.keys() <= kinds.keys():
        raise TypeError(f"recommend takes {', '.join(kinds)}, not {', '.join(given.keys() - kinds.keys())}")
    return {"user": user, "n": n} | {name: kinds[name](one) for name, one in given.items() if one is not None}


def _rewards(rewards: Sequence[tuple[str, float]]) -> Answer:
    return {"rewards": [{"decision_id": id, "reward": reward} for id, reward in rewards]}


def _parts(items: Sequence[Any], most: int) -> list[list[Any]]:
    return [list(items[first : first + most]) for first in range(0, len(items), most)]


def _item_parts(items: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return items in as many parts as they need to fit into bodies of the default size."""
    longest = max((len(one.get("vector", ())) for one in items), default=0)
    return _parts(items, max(1, min(1_000, 900_000 // (12 * longest + 100))))


def _path_of(user: User) -> str:
    if isinstance(user, int):
        return f"/v1/users/int:{user}"
    plain = user.strip(".") and not user.startswith(("int:", "str:"))
    return "/v1/users/" + quote(user if plain else f"str:{user}", safe="")
