"""A load generator: keep-alive connections that send the next request when the last is answered.

On its own: ``python benchmarks/load.py URL CONNECTIONS SECONDS [RATE] < bodies``, one JSON body per line, used in turn.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import uvloop


class Load(NamedTuple):
    """The results of a run."""

    requests: int
    """Answered with 200; the times are theirs."""
    seconds: float
    p50: float
    p99: float
    p999: float
    statuses: dict[int, int]
    bodies: list[bytes]
    """Some answers."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class _Connection(asyncio.Protocol):
    """One caller: speaks just enough HTTP, because a real client takes longer than the service."""

    def __init__(
        self,
        make: Callable[[], bytes | None],
        times: list[float],
        statuses: dict[int, int],
        kept: list[bytes] | None,
        done: asyncio.Future[None],
        period: float,
    ) -> None:
        self.make, self.times, self.statuses, self.kept, self.done = make, times, statuses, kept, done
        self.period, self.next = period, time.perf_counter() + period * random.random()
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        request = self.make()
        if request is None:
            self.transport.close()
            return
        self.start = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.lower().find(b"content-length: ", 0, head)
        length = int(self.buffer[at + 16 : self.buffer.index(b"\r\n", at)])
        if len(self.buffer) < head + 4 + length:
            return
        status = int(self.buffer[9:12])
        if status == 200:
            self.times.append(time.perf_counter() - self.start)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if self.kept is not None:
            self.kept.append(self.buffer[head + 4 : head + 4 + length])
        self.buffer = self.buffer[head + 4 + length :]
        self.next = max(self.next + self.period, time.perf_counter())
        if self.period:
            asyncio.get_running_loop().call_later(self.next - time.perf_counter(), self.send)
        else:
            self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def _drive(host: str, port: int, path: str, bodies: Sequence[bytes], connections: int, seconds: float,
                 keep: bool, rate: float = 0.0) -> Load:  # fmt: skip
    loop = asyncio.get_running_loop()
    requests = [
        b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (path.encode(), len(body), body)
        for body in bodies
    ]
    times: list[float] = []
    statuses: dict[int, int] = {}
    kept: list[bytes] = []
    turn, end = 0, time.perf_counter() + seconds

    def make() -> bytes | None:
        nonlocal turn
        if time.perf_counter() > end or (keep and turn >= len(requests)):
            return None
        turn += 1
        return requests[(turn - 1) % len(requests)]

    start = time.perf_counter()
    period = connections / rate if rate else 0.0
    done = [loop.create_future() for _ in range(connections)]
    for future in done:
        await loop.create_connection(
            lambda future=future: _Connection(make, times, statuses, kept if keep else None, future, period), host, port
        )
    await asyncio.gather(*done)
    took = time.perf_counter() - start
    p50, p99, p999 = np.percentile(times, (50, 99, 99.9)) if times else (0.0, 0.0, 0.0)
    return Load(len(times), took, float(p50), float(p99), float(p999), statuses, kept)


def drive(
    url: str,
    path: str,
    bodies: Sequence[bytes],
    connections: int,
    seconds: float,
    *,
    keep: bool = False,
    rate: float = 0,
) -> Load:
    """Send bodies in turn over all connections, as fast as they are answered or at most `rate` per second.

    With `keep`, each body is sent once, and the answers are returned.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(host, int(port), path, bodies, connections, seconds, keep, rate))


if __name__ == "__main__":
    where, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    base, _, path = where.removeprefix("http://").partition("/")
    lines = [line.strip().encode() for line in sys.stdin]
    told = drive(base, "/" + path, lines, count, seconds, rate=float(sys.argv[4]) if len(sys.argv) > 4 else 0)
    print(json.dumps({**told._asdict(), "bodies": None, "rate": told.rate}))
