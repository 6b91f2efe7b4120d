"""Measure the service: ``python benchmarks/serve.py [--soak MINUTES]``.

A catalogue of 1M items in 64 dimensions, 100,000 users with 100 events each, a cache for a fifth of them, users drawn
by a Zipf law, 100 keep-alive connections, the load generator on the same machine. The baseline of the same run is a
FastAPI endpoint that returns a constant body. Also measured: durable feedback, the store compared with a raw append and
fdatasync of the same batches, a restart with 10M events of 1M users, and overload at three times the capacity.

Prints a table and writes bench-out/serve.json; exits 1 if a target is missed.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.state.user_states import seat_bytes
from treeward.store.events import EVENT, REWARD
from treeward.store.numbers import number_items

HERE = Path(__file__).parent
TREEWARD = str(Path(sys.executable).with_name("treeward"))
Row = tuple[str, str, str, bool]
ITEMS, DIM, USERS, EVENTS = 1_000_000, 64, 100_000, 100

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


def fill(path: Path, items: int, users: int, events: int, catalogue: tw.Catalogue) -> None:
    """Make a store with that many users, each with that many events."""
    random = np.random.default_rng(0)
    store = tw.SQLiteStore(path)
    number_items(store, catalogue.ids)
    for first in range(0, users, 50_000):
        count = min(50_000, users - first)
        made = np.zeros(count * events, dtype=EVENT)
        made["item"], made["node"], made["kind"] = random.integers(items, size=len(made)), -1, REWARD
        made["reward"] = random.random(len(made)) < 0.2
        store.extend([f"u{i}" for i in range(first, first + count)], np.full(count, events), made)
    store.close()


@contextmanager
def running(folder: Path, items: Path, *options: str):
    process = subprocess.Popen(
        [TREEWARD, "serve", str(items), "--port", "0", "--admin-port", "-1", *options],
        stdout=subprocess.PIPE, stderr=(folder / "stderr").open("ab"), text=True, cwd=folder,
    )  # fmt: skip
    found = None
    for line in process.stdout:
        if found := re.search(r"Serving at (\S+) ", line):
            break
    if not found:
        raise SystemExit((folder / "stderr").read_text())
    try:
        yield found[1], process
    finally:
        process.terminate()
        process.wait()


def generate(url: str, path: str, bodies: list[bytes], connections: int, seconds: float, rate: float = 0) -> dict:
    """Load from a process of its own."""
    made = subprocess.run(
        [sys.executable, str(HERE / "load.py"), url + path, str(connections), str(seconds), str(rate)],
        input="\n".join(body.decode() for body in bodies), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(made.stdout)


def zipf_users(count: int, users: int) -> list[bytes]:
    random = np.random.default_rng(1)
    weights = 1 / np.arange(1, users + 1)
    who = random.choice(users, size=count, p=weights / weights.sum())
    return [b'{"user":"u%d"}' % user for user in who]


def recommend(url: str) -> list[Row]:
    bodies = zipf_users(200_000, USERS)
    generate(url, "/v1/recommend", bodies, 100, 5)
    ours = generate(url, "/v1/recommend", bodies, 100, 15)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(FASTAPI)
        script.flush()
        other = subprocess.Popen([sys.executable, script.name, "8977"])
        time.sleep(3)
        generate("http://127.0.0.1:8977", "/v1/recommend", bodies[:1000], 100, 2)
        theirs = generate("http://127.0.0.1:8977", "/v1/recommend", bodies, 100, 10)
        other.terminate()
        other.wait()
    ratio = ours["rate"] / theirs["rate"]
    wrong = {code: n for code, n in ours["statuses"].items() if code != "200"}
    said = f"{ours['p99'] * 1e3:.1f} ms (median {ours['p50'] * 1e3:.1f} ms{', ' + str(wrong) if wrong else ''})"
    return [
        ("recommend: p99 at 100 connections", said, "<= 10 ms", ours["p99"] <= 0.010 and not wrong),
        (
            "recommend: rate, against FastAPI's constant body",
            f"{ratio:.1f}x ({ours['rate']:,.0f}/s, FastAPI {theirs['rate']:,.0f}/s, p99 {theirs['p99'] * 1e3:.1f} ms)",
            ">= 3x",
            ratio >= 3,
        ),
    ]


def feedback(url: str) -> list[Row]:
    sys.path.insert(0, str(HERE))
    from load import drive

    asked = drive(url, "/v1/recommend", zipf_users(60_000, USERS), 100, 60, keep=True)
    ids = [json.loads(body)["items"][0]["decision_id"] for body in asked.bodies]
    bodies = [json.dumps({"decision_id": id, "reward": float(i % 5 == 0)}).encode() for i, id in enumerate(ids)]
    told = drive(url, "/v1/feedback", bodies, 100, 120, keep=True)
    said = f"{told.p99 * 1e3:.1f} ms (median {told.p50 * 1e3:.1f} ms)"
    fresh = sum(b"recorded" in body for body in told.bodies)
    return [
        ("feedback, on disk: p99 at 100 connections", said, "<= 15 ms", told.p99 <= 0.015),
        (
            "feedback, on disk: rate",
            f"{told.rate:,.0f}/s ({fresh:,} of {len(bodies):,} recorded)",
            ">= 2,000/s",
            told.rate >= 2_000 and fresh == len(bodies),
        ),
    ]


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
        start = time.perf_counter()
        store.append(users, events)
        took["store"] += time.perf_counter() - start
        packed = events.tobytes()
        start = time.perf_counter()
        os.write(raw, packed)
        os.fdatasync(raw)
        took["raw"] += time.perf_counter() - start
    os.close(raw)
    store.close()
    share = took["raw"] / took["store"]
    said = f"{share:.0%} ({batch * rounds / took['store']:,.0f} and {batch * rounds / took['raw']:,.0f} events/s)"
    return [(f"store alone, {batch} events a commit, of raw append", said, ">= 80%", share >= 0.8)]


def restart(folder: Path) -> list[Row]:
    catalogue = synthetic_catalogue(100_000, dim=32, seed=0)
    catalogue.save(folder / "many-items")
    tw.ItemTree.build(catalogue.vectors, seed=0).save(folder / "many-tree")
    fill(folder / "many.db", 100_000, 1_000_000, 10, catalogue)
    options = ("--tree", str(folder / "many-tree"), "--store", str(folder / "many.db"))
    start = time.perf_counter()
    with running(folder, folder / "many-items", *options) as (_, process):
        took = time.perf_counter() - start
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1e6
    return [
        ("restart with 10M events of 1M users", f"{took:.1f} s", "<= 30 s", took <= 30),
        ("the same: memory at most", f"{peak:.2f} GB", "<= 6 GB", peak <= 6),
    ]


def overload(folder: Path, items: Path, options: tuple[str, ...]) -> list[Row]:
    bodies = zipf_users(100_000, USERS)
    with running(folder, items, *options, "--set", "max_waiting=100") as (url, _):
        generate(url, "/v1/recommend", bodies, 100, 3)
        normal = generate(url, "/v1/recommend", bodies, 100, 8)
        more = generate(url, "/v1/recommend", bodies, 600, 8, 3 * normal["rate"])
    codes = more["statuses"]
    ok = set(codes) <= {"200", "429", "503"} and more["p99"] <= 2 * normal["p99"]
    said = f"p99 {more['p99'] * 1e3:.1f} ms, {normal['p99'] * 1e3:.1f} ms normally; answers {codes}"
    return [("three times the rate, 100 may wait: accepted p99", said, "<= 2x, 200/429/503 only", ok)]


def soak(url: str, process, minutes: float) -> list[Row]:
    bodies = zipf_users(200_000, USERS)

    def memory() -> float:
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1e6

    generate(url, "/v1/recommend", bodies, 50, 60)
    before, end = memory(), time.time() + minutes * 60
    while time.time() < end:
        generate(url, "/v1/recommend", bodies, 50, 30)
    after = memory()
    drift = after / before - 1
    return [(f"soak, {minutes:g} minutes: memory drift", f"{drift:+.1%} ({before:.2f} GB)", "< 5 %", drift < 0.05)]


def main() -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    folder = Path(tempfile.mkdtemp())
    rows: list[Row] = []
    try:
        catalogue = synthetic_catalogue(ITEMS, dim=DIM, seed=0)
        catalogue.save(folder / "items")
        tree = tw.ItemTree.build(catalogue.vectors, seed=0)
        tree.save(folder / "tree")
        each = seat_bytes(tw.Beam().plan(tree, catalogue))
        memory = max(1, each * USERS // 5 >> 20)
        fill(folder / "events.db", ITEMS, USERS, EVENTS, catalogue)
        del catalogue, tree
        options = (
            "--tree", str(folder / "tree"), "--store", str(folder / "events.db"), "--set", f"memory={memory}",
        )  # fmt: skip
        with running(folder, folder / "items", *options) as (url, process):
            rows += [*recommend(url), *feedback(url)]
            if "--soak" in sys.argv:
                rows += soak(url, process, float(sys.argv[sys.argv.index("--soak") + 1]))
        rows += overload(folder, folder / "items", options)
        rows += store_alone(folder)
        rows += restart(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:52} {measured:64} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "serve.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
