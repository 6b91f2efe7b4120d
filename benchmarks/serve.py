"""Measure the service: ``python benchmarks/serve.py [--soak MINUTES] [--against CHECKOUT] [--only NAMES]``.

The load comes from `wrk` on the same machine, with one thread and 100 connections. Where wrk is not installed, it comes
from benchmarks/load.py, which is slower itself; the table says so. Every rate is compared with a FastAPI endpoint that
returns a constant body, measured in the same run. granian with a constant body shows the limit of this machine.

- recommend: 1M items in 64 dimensions, the crowd on; 5,000 users whose states are in memory; and the same with a fifth
  of the requests for users whose 100 events have to be replayed.
- feedback: rewards that are on disk when they are answered, next to what one sync of the disk takes.
- overload: three times the rate that can be answered.
- start: from `treeward serve` to /livez and /readyz with 200,000 items, with an empty and a warm cache of kernels.
- store: 100 events per commit, compared with a raw append and fdatasync of the same batches.
- restart: 10M events of 1M users.
- soak (only with --soak): growth of memory, and p99.9.

`--against` measures recommend also with the source of another checkout, such as the previous release. `--only` takes
names of the list above, separated by commas. Prints a table and writes bench-out/serve.json; exits 1 if a target is
missed.
"""

import argparse
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

import load
import treeward as tw
import wrk
from treeward.data.synthetic import synthetic_catalogue
from treeward.state.user_states import seat_bytes
from treeward.store.events import EVENT, REWARD
from treeward.store.numbers import number_items

TREEWARD = str(Path(sys.executable).with_name("treeward"))
Row = tuple[str, str, str, bool]
ITEMS, DIM, EVENTS = 1_000_000, 64, 100
AT_HAND, ABSENT = 5_000, 100_000
CONNECTIONS, SECONDS = 100, 10

FASTAPI = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
app = FastAPI()
class Ask(BaseModel):
    user: str
CHOICE = {"decision_id": "x" * 80, "item": 1, "slot": 0, "mean": 0.5, "width": 0.1, "propensity": 0.01, "path": [1, 2]}
BODY = {"items": [CHOICE]}
@app.post("/v1/recommend")
async def recommend(ask: Ask):
    return BODY
uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="error")
"""
GRANIAN = """
import asyncio, sys
from granian.constants import Interfaces
from granian.server.embed import Server
BODY = b'{"items":[{"decision_id":"' + b"x" * 80 + b'","item":1,"slot":0,"mean":0.5,"width":0.1}]}'
HEADERS = [("content-type", "application/json")]
async def app(scope, protocol):
    await protocol()
    protocol.response_bytes(200, HEADERS, BODY)
asyncio.run(Server(app, port=int(sys.argv[1]), interface=Interfaces.RSGI, log_enabled=False).serve())
"""


class Measured(NamedTuple):
    """What a load of some seconds showed; times in seconds."""

    rate: float
    p50: float
    p99: float
    p999: float
    wrong: int
    cpu: float
    """The server's processor time per request."""

    def __str__(self) -> str:
        said = f"{self.rate:,.0f}/s, p50 {self.p50 * 1e3:.1f}, p99 {self.p99 * 1e3:.1f}, p99.9 {self.p999 * 1e3:.1f} ms"
        return f"{said}, {self.cpu * 1e6:.0f} us CPU{f', {self.wrong:,} failed' if self.wrong else ''}"


def processor_time(pid: int) -> float:
    """Return the seconds that a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(folder: Path, url: str, pid: int, bodies: list[bytes], seconds: float, *, once: bool = False) -> Measured:
    """Load a service by wrk, or without it by load.py."""
    before = processor_time(pid)
    if wrk.available():
        found = wrk.drive(folder, url, bodies, CONNECTIONS, seconds, once=once)
        answered, rate, wrong = found.requests, found.rate, found.wrong + found.broken
        times = found.p50, found.p99, found.p999
    else:
        base, _, path = url.removeprefix("http://").partition("/")
        slow = load.drive(f"http://{base}", f"/{path}", bodies, CONNECTIONS, seconds, keep=once)
        answered, rate = sum(slow.statuses.values()), slow.rate
        wrong, times = answered - slow.requests, (slow.p50, slow.p99, slow.p999)
    return Measured(rate, *times, wrong, (processor_time(pid) - before) / max(1, answered))


def fill(path: Path, catalogue: tw.Catalogue, users: int, events: int) -> None:
    """Make a store with that many users, each with that many rewards."""
    random = np.random.default_rng(0)
    store = tw.SQLiteStore(path)
    number_items(store, catalogue.ids)
    for first in range(0, users, 50_000):
        count = min(50_000, users - first)
        made = np.zeros(count * events, dtype=EVENT)
        made["item"], made["node"], made["kind"] = random.integers(len(catalogue), size=len(made)), -1, REWARD
        made["reward"] = random.random(len(made)) < 0.2
        store.extend([f"u{i}" for i in range(first, first + count)], np.full(count, events), made)
    store.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def status_of(url: str) -> int:
    """Return the status of an answer; 0 if nothing listens."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextmanager
def running(folder: Path, items: Path, *options: str, source: Path | None = None) -> Iterator[tuple[str, int]]:
    """Run `treeward serve`, of this checkout or another one; yield its address and process id."""
    env = {**os.environ, **({"PYTHONPATH": str(source / "src")} if source else {})}
    process = subprocess.Popen(
        [TREEWARD, "serve", str(items), "--port", "0", "--admin-port", "-1", *options],
        stdout=subprocess.PIPE, stderr=(folder / "stderr").open("ab"), text=True, cwd=folder, env=env,
    )  # fmt: skip
    found = None
    for line in process.stdout or ():
        if found := re.search(r"Serving at (\S+) ", line):
            break
    if not found:
        raise SystemExit((folder / "stderr").read_text())
    try:
        yield found[1], process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def constant(script: str) -> Iterator[tuple[str, int]]:
    """Run a server with a constant body."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", script, str(port)])
    try:
        while not status_of(f"http://127.0.0.1:{port}/"):
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1/recommend", process.pid
    finally:
        process.kill()
        process.wait()


def named(users: np.ndarray) -> list[bytes]:
    return [b'{"user":"u%d"}' % user for user in users]


def requests() -> tuple[list[bytes], list[bytes]]:
    """Return requests for users at hand, and those of which a fifth is for users who come once in 100,000."""
    random = np.random.default_rng(1)
    hand = random.integers(AT_HAND, size=200_000)
    mixed = hand.copy()
    mixed[::5] = AT_HAND + np.arange(len(mixed[::5])) % ABSENT
    return named(hand), named(mixed)


class Shop(NamedTuple):
    """What the services of a run serve."""

    folder: Path
    options: tuple[str, ...]

    @property
    def items(self) -> Path:
        return self.folder / "items"


def shop(folder: Path) -> Shop:
    catalogue = synthetic_catalogue(ITEMS, dim=DIM, seed=0)
    catalogue.save(folder / "items")
    tree = tw.ItemTree.build(catalogue.vectors, seed=0)
    tree.save(folder / "tree")
    fill(folder / "events.db", catalogue, AT_HAND + ABSENT, EVENTS)
    # Room for twice the users at hand, so that a user who comes once in 100,000 requests is gone by then.
    memory = seat_bytes(tw.Beam(prior=tw.Crowd.empty(catalogue)).plan(tree, catalogue)) * 2 * AT_HAND >> 20
    options = "--tree", str(folder / "tree"), "--store", str(folder / "events.db"), "--set", f"memory={memory}"
    return Shop(folder, options)


def recommend(made: Shop, against: Path | None) -> list[Row]:
    hand, mixed = requests()
    found: dict[str, Measured] = {}

    def of_service(name: str, source: Path | None = None) -> None:
        with running(made.folder, made.items, *made.options, source=source) as (url, pid):
            warm = named(np.arange(AT_HAND))
            measured(made.folder, f"{url}/v1/recommend", pid, warm, 3)
            found[name] = measured(made.folder, f"{url}/v1/recommend", pid, hand, SECONDS)
            found[f"{name}, a fifth absent"] = measured(made.folder, f"{url}/v1/recommend", pid, mixed, SECONDS)

    with constant(FASTAPI) as (url, pid):
        measured(made.folder, url, pid, hand, 2)
        found["FastAPI"] = measured(made.folder, url, pid, hand, SECONDS)
    of_service("treeward")
    if against is not None:
        of_service("previous", against)
    with constant(GRANIAN) as (url, pid):
        found["granian"] = measured(made.folder, url, pid, hand, 5)
    base = found["FastAPI"].rate
    rows = [("FastAPI, constant body", str(found["FastAPI"]), "1x", True)]
    for name, least, most in (("treeward", 4.5, 0.008), ("treeward, a fifth absent", 2.7, 0.012)):
        one = found[name]
        reached = one.rate >= least * base and one.p99 <= most and not one.wrong
        target = f">= {least}x, p99 <= {most * 1e3:.0f} ms"
        rows.append((f"recommend: {name}", f"{one.rate / base:.1f}x: {one}", target, reached))
    for name in ("previous", "previous, a fifth absent", "granian"):
        if name in found:
            rows.append((f"recommend: {name}", f"{found[name].rate / base:.1f}x: {found[name]}", "", True))
    return rows


def sync_time(folder: Path) -> float:
    """Return the median seconds of an append of 4 KB and its sync."""
    file, took = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY | os.O_APPEND), []
    for _ in range(300):
        os.write(file, bytes(4096))
        start = time.perf_counter()
        os.fdatasync(file)
        took.append(time.perf_counter() - start)
    os.close(file)
    return float(np.median(took))


def feedback(made: Shop) -> list[Row]:
    random = np.random.default_rng(2)
    with running(made.folder, made.items, *made.options) as (url, pid):
        asks = named(random.integers(AT_HAND, size=120_000))
        asked = load.drive(url, "/v1/recommend", asks, CONNECTIONS, 120, keep=True)
        ids = [json.loads(body)["items"][0]["decision_id"] for body in asked.bodies]
        bodies = [json.dumps({"decision_id": id, "reward": float(i % 5 == 0)}).encode() for i, id in enumerate(ids)]
        told = measured(made.folder, f"{url}/v1/feedback", pid, bodies, 60, once=True)
        again = load.drive(url, "/v1/feedback", bodies[:1000], CONNECTIONS, 60, keep=True)
    kept = sum(b'"duplicate":true' in body for body in again.bodies)
    disk = sync_time(made.folder)
    said = f"{told}; the disk's sync takes {disk * 1e3:.2f} ms; {kept:,} of 1,000 found again"
    reached = told.rate >= 10_000 and (told.p99 <= 0.015 or disk >= 0.002) and not told.wrong and kept == 1000
    return [("feedback, on disk", said, ">= 10,000/s, p99 <= 15 ms", reached)]


def overload(made: Shop) -> list[Row]:
    hand, _ = requests()
    with running(made.folder, made.items, *made.options, "--set", "max_waiting=100") as (url, _):
        _generate(url, hand, 100, 3)
        normal = _generate(url, hand, 100, 8)
        more = _generate(url, hand, 600, 8, 3 * normal["rate"])
    codes = more["statuses"]
    ok = set(codes) <= {"200", "429", "503"} and more["p99"] <= 2 * normal["p99"]
    said = f"{more['p99'] / normal['p99']:.1f}x: {more['p99'] * 1e3:.1f} and {normal['p99'] * 1e3:.1f} ms; {codes}"
    return [("three times the rate, 100 may wait: accepted p99", said, "<= 2x, 200/429/503 only", ok)]


def _generate(url: str, bodies: list[bytes], connections: int, seconds: float, rate: float = 0) -> dict:
    """Load by load.py, which can keep to a rate, from a process of its own."""
    script = str(Path(__file__).with_name("load.py"))
    told = subprocess.run(
        [sys.executable, script, f"{url}/v1/recommend", str(connections), str(seconds), str(rate)],
        input=b"\n".join(bodies), capture_output=True, check=True,
    )  # fmt: skip
    return json.loads(told.stdout)


def start(folder: Path) -> list[Row]:
    """Time a start with an empty and with a warm cache of kernels."""
    catalogue = synthetic_catalogue(200_000, dim=DIM, seed=0)
    catalogue.save(folder / "start-items")
    tw.ItemTree.build(catalogue.vectors, seed=0).save(folder / "start-tree")
    rows = []
    for name, most in (("empty", 25), ("warm", 3)):
        port, env = free_port(), {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
        words = [TREEWARD, "serve", str(folder / "start-items"), "--tree", str(folder / "start-tree"), "--store",
                 str(folder / f"start-{name}.db"), "--port", str(port), "--admin-port", "-1"]  # fmt: skip
        begun = time.perf_counter()
        process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=(folder / "stderr").open("ab"))
        alive = 0.0
        while status_of(f"http://127.0.0.1:{port}/readyz") != 200:
            if not alive and status_of(f"http://127.0.0.1:{port}/livez") == 200:
                alive = time.perf_counter() - begun
            time.sleep(0.1)
        ready = time.perf_counter() - begun
        process.terminate()
        process.wait()
        said, target = f"/livez after {alive:.1f} s, /readyz after {ready:.1f} s", f"<= 1 s, <= {most} s"
        rows.append((f"start with 200,000 items, {name} cache", said, target, alive <= 1 and ready <= most))
    return rows


def store_alone(folder: Path) -> list[Row]:
    """Compare the store with a raw append and fdatasync of the same batches, taken in turn."""
    batch, rounds = 100, 300
    events = np.zeros(batch, dtype=EVENT)
    events["kind"] = REWARD
    store = tw.SQLiteStore(folder / "alone.db")
    raw = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    random = np.random.default_rng(0)
    names = [f"u{i}" for i in range(20_000)]
    before = np.zeros(100 * len(names), dtype=EVENT)
    before["item"], before["kind"] = random.integers(ITEMS, size=len(before)), REWARD
    before["nonce"], before["reward"] = random.integers(2**47, size=len(before)) << 16, random.random(len(before))
    store.extend(names, np.full(len(names), 100), before)
    took = {"store": 0.0, "raw": 0.0}
    for _ in range(rounds):
        users = [names[i] for i in random.choice(len(names), batch, replace=False)]
        events["nonce"] = random.integers(2**47, size=batch) << 16
        begun = time.perf_counter()
        store.append(users, events)
        took["store"] += time.perf_counter() - begun
        packed = events.tobytes()
        begun = time.perf_counter()
        os.write(raw, packed)
        os.fdatasync(raw)
        took["raw"] += time.perf_counter() - begun
    os.close(raw)
    store.close()
    share = took["raw"] / took["store"]
    said = f"{share:.0%} ({batch * rounds / took['store']:,.0f} and {batch * rounds / took['raw']:,.0f} events/s)"
    return [(f"store alone, {batch} events per commit, of raw append", said, ">= 80%", share >= 0.8)]


def restart(folder: Path) -> list[Row]:
    catalogue = synthetic_catalogue(100_000, dim=32, seed=0)
    catalogue.save(folder / "many-items")
    tw.ItemTree.build(catalogue.vectors, seed=0).save(folder / "many-tree")
    fill(folder / "many.db", catalogue, 1_000_000, 10)
    options = ("--tree", str(folder / "many-tree"), "--store", str(folder / "many.db"))
    begun = time.perf_counter()
    with running(folder, folder / "many-items", *options) as (_, pid):
        took, peak = time.perf_counter() - begun, _memory(pid, "VmHWM")
    return [
        ("restart with 10M events of 1M users", f"{took:.1f} s", "<= 30 s", took <= 30),
        ("the same: memory at most", f"{peak:.2f} GB", "<= 6 GB", peak <= 6),
    ]


def _memory(pid: int, which: str) -> float:
    """Return gigabytes of memory: VmRSS now, VmHWM at most."""
    found = re.search(rf"{which}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1e6 if found else 0.0


def soak(made: Shop, minutes: float) -> list[Row]:
    """Recommend for a while. Each decision is an event of 35 bytes in memory, which is not counted as growth."""
    _, mixed = requests()
    with running(made.folder, made.items, *made.options, "--set", "repeats=true") as (url, pid):
        measured(made.folder, f"{url}/v1/recommend", pid, mixed, 60)
        before, decided, worst, wrong = _memory(pid, "VmRSS"), 0.0, 0.0, 0
        end = time.time() + minutes * 60
        while time.time() < end:
            one = measured(made.folder, f"{url}/v1/recommend", pid, mixed, 30)
            decided, worst, wrong = decided + 30 * one.rate, max(worst, one.p999), wrong + one.wrong
        after = _memory(pid, "VmRSS")
    log = decided * EVENT.itemsize / 1e9
    drift = (after - log) / before - 1
    said = f"{drift:+.1%} of {before:.2f} GB, besides {log:.2f} GB of events ({decided:,.0f} decisions, {wrong} failed)"
    return [
        (f"soak, {minutes:g} minutes: growth of memory", said, "<= 5 %", drift <= 0.05 and not wrong),
        ("the same: worst p99.9 of 30 seconds", f"{worst * 1e3:.1f} ms", "", True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--only", default="", metavar="NAMES")
    given = parser.parse_args()
    wanted = given.only.split(",") if given.only else ["recommend", "feedback", "overload", "start", "store", "restart"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    print(f"load by {'wrk' if wrk.available() else 'load.py, since wrk is not installed'}", flush=True)
    folder = Path(tempfile.mkdtemp())
    rows: list[Row] = []
    try:
        if {"recommend", "feedback", "overload"} & set(wanted) or given.soak:
            made = shop(folder)
            parts = {
                "recommend": lambda: recommend(made, given.against),
                "feedback": lambda: feedback(made),
                "overload": lambda: overload(made),
            }
            for name, part in parts.items():
                rows += _shown(part()) if name in wanted else []
            rows += _shown(soak(made, given.soak)) if given.soak else []
        for name, part in (("start", start), ("store", store_alone), ("restart", restart)):
            rows += _shown(part(folder)) if name in wanted else []
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "serve.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


def _shown(rows: list[Row]) -> list[Row]:
    for what, measured, target, reached in rows:
        print(
            f"{'ok  ' if reached else 'MISS'}  {what:48} {measured}{f'; target {target}' if target else ''}", flush=True
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
