"""Measure a changing catalogue: ``python benchmarks/living.py [ITEMS]`` (1,000,000 by default, in 64 dimensions).

A service is under load: first without changes, then while 10,000 items are added and 10,000 removed (over HTTP, 1,000
at a time), then while another snapshot of all items is swapped in. The load is 32 keep-alive connections at a fixed
rate, about half of what the machine can do, the same in all three phases. Every answer is checked. The baseline is the
first phase of the same run. Then comes the explorer alone: the cost of a change, and of a decision with and without
free places.

Prints a table and writes bench-out/living.json; exits 1 if a target is missed.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import treeward as tw
from serve import HERE, Row, fill, running, zipf_users
from treeward.client import Client
from treeward.data.synthetic import synthetic_catalogue

DIM, USERS, EVENTS, CHANGES, AT_ONCE = 64, 20_000, 50, 10_000, 1_000
CONNECTIONS, RATE, CHECKED = 32, 1_000, 100_000


def load(url: str, seconds: float, rate: float = RATE) -> dict:
    """Load from a process of its own."""
    made = subprocess.run(
        [sys.executable, str(HERE / "load.py"), url + "/v1/recommend", str(CONNECTIONS), str(seconds), str(rate)],
        input="\n".join(body.decode() for body in zipf_users(50_000, USERS)), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return json.loads(made.stdout)


def during(url: str, seconds: float, work) -> tuple[dict, float]:
    """Return the results of the load during some other work, and how long that work took."""
    took, failed = [], []

    def act() -> None:
        try:
            start = time.perf_counter()
            work()
            took.append(time.perf_counter() - start)
        except Exception as error:
            failed.append(error)

    other = threading.Thread(target=act)
    threading.Timer(1.0, other.start).start()
    told = load(url, seconds)
    time.sleep(1)
    other.join()
    if failed:
        raise failed[0]
    return told, took[0]


def wrong(*loads: dict) -> int:
    return sum(count for told in loads for code, count in told["statuses"].items() if code != "200")


def main() -> int:
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="treeward-bench-") as name:
        folder = Path(name)
        shop = synthetic_catalogue(items, dim=DIM, seed=0)
        shop.save(folder / "items")
        tree = tw.ItemTree.build(shop.vectors, seed=0)
        tree.save(folder / "tree")
        tw.ItemTree.build(shop.vectors, seed=1).save(folder / "other")
        fill(folder / "events.db", items, USERS, EVENTS, shop)
        random = np.random.default_rng(0)
        vectors = shop.vectors[random.integers(items, size=CHANGES)] + 0.1 * random.standard_normal((CHANGES, DIM))
        new = [{"item": items + i, "vector": one.round(5).tolist()} for i, one in enumerate(vectors)]
        gone = random.choice(items, CHANGES, replace=False).tolist()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ("--tree", str(folder / "tree"), "--store", str(folder / "events.db"), "--admin-port", str(port),
                   "--set", "rebuild=0")  # fmt: skip
        with running(folder, folder / "items", *options) as (url, _):
            rows += service(folder, url, f"http://127.0.0.1:{port}", new, gone)
        rows += alone(shop, tree, vectors.astype(np.float32))
    width = max(len(row[0]) for row in rows)
    for what, said, target, met in rows:
        print(f"{what:<{width}}  {said:<60}  {target:<10}  {'ok' if met else 'MISSED'}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    (out / "living.json").write_text(json.dumps([list(row) for row in rows], indent=1))
    return 0 if all(row[3] for row in rows) else 1


def service(folder: Path, url: str, admin: str, new: list[dict], gone: list[int]) -> list[Row]:
    load(url, 5)
    normal = load(url, 15)
    with Client(url, timeout=120) as client:
        added, took_add = during(url, 12, lambda: _parts(client.put_items, new))
        removed, took_remove = during(url, 12, lambda: _parts(client.remove_items, gone))
        seen = 0
        bad = set(gone)
        resurrected = 0
        turn = 0
        while seen < CHECKED:
            rows = [{"user": f"check {turn} {i}", "n": 10} for i in range(100)]
            turn += 1
            answer = client._send("POST", "/v1/recommend/batch", {"requests": rows})
            for row in answer["rows"]:
                shown = [one["item"] for one in row["body"]["items"]]
                seen += len(shown)
                resurrected += len(bad.intersection(shown))
    p99 = normal["p99"] * 1e3
    made: list[Row] = [
        ("added over HTTP, under load", f"{took_add / len(new) * 1e6:.0f} us an item", "<= 50 us",
         took_add / len(new) <= 5e-5),
        ("recommend p99 meanwhile", f"{added['p99'] * 1e3:.1f} ms, {added['p99'] / normal['p99']:.2f}x of {p99:.1f} ms",
         "<= 2x", added["p99"] <= 2 * normal["p99"]),
        ("removed over HTTP, under load", f"{took_remove / len(gone) * 1e6:.0f} us an item", "<= 50 us",
         took_remove / len(gone) <= 5e-5),
        ("recommend p99 meanwhile", f"{removed['p99'] * 1e3:.1f} ms, {removed['p99'] / normal['p99']:.2f}x", "<= 2x",
         removed["p99"] <= 2 * normal["p99"]),
        ("removed items seen again", f"{resurrected} of {seen:,} decisions", "0", resurrected == 0),
    ]  # fmt: skip
    with Client(admin, timeout=600) as client:
        swapped, took = during(url, 60, lambda: client.swap(tree=str(folder / "other")))
    failed = wrong(normal, added, removed, swapped)
    made += [
        ("swap of all items under load", f"{took:.1f} s, p99 meanwhile {swapped['p99'] * 1e3:.1f} ms", "", True),
        ("requests that failed, in all of it", f"{failed:,}", "0", failed == 0),
    ]
    return made


def _parts(call, rows: list) -> None:
    for first in range(0, len(rows), AT_ONCE):
        call(rows[first : first + AT_ONCE])


def alone(shop: tw.Catalogue, tree: tw.ItemTree, vectors: np.ndarray) -> list[Row]:
    """Measure what a change, and a decision, cost without a service."""
    times = {}
    for spare in (0.0, 0.125):
        explorer = tw.Explorer(shop, tree, spare=spare, seed=0, memory=1 << 28)
        users = [f"u{i}" for i in range(100)]
        for _ in range(5):
            made = explorer.recommend(users)
            explorer.feedback({one.id: 1.0 for one in made})
        explorer.recommend(users)
        took = []
        for _ in range(30):
            start = time.perf_counter()
            explorer.recommend(users)
            took.append((time.perf_counter() - start) / len(users))
        times[spare] = float(np.median(took))
    more = tw.Catalogue(np.arange(len(shop), len(shop) + len(vectors)), vectors)
    explorer.add(tw.Catalogue([-1], vectors[:1]))
    took = {}
    for name, work in (("add", lambda: explorer.add(more)), ("remove", lambda: explorer.remove(more.ids.to_list()))):
        start = time.perf_counter()
        work()
        took[name] = (time.perf_counter() - start) / len(more)
    ratio = times[0.125] / times[0.0]
    return [
        ("without a service: added", f"{took['add'] * 1e6:.0f} us an item", "<= 50 us", took["add"] <= 5e-5),
        ("without a service: removed", f"{took['remove'] * 1e6:.0f} us an item", "<= 50 us", took["remove"] <= 5e-5),
        ("a decision with free places", f"{times[0.125] * 1e6:.1f} us, {ratio:.2f}x of one without", "", True),
    ]


if __name__ == "__main__":
    sys.exit(main())
