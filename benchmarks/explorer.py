"""Measure the explorer: ``python benchmarks/explorer.py``.

The catalogue has a million items of 64 dimensions. Measured are the latency for one user and for a hundred in one call,
the cost of a user whose state is not in memory, the memory of a million users with a hundred events each, and how soon
a new process decides. The baseline of the latency is the bare scoring of as many arms in numpy, that of the memory the
bare events.

Prints a table and writes bench-out/explorer.json; exits 1 if a target is missed.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.events import EVENT

ITEMS, DIM = 1_000_000, 64
Row = tuple[str, str, str, bool]


def median(act: Callable[[], object], times: int, before: Callable[[], object] = int) -> float:
    """Return the median time of the quietest of five blocks: others use this machine too."""
    blocks = []
    for _ in range(5):
        took = []
        for _ in range(times // 5):
            before()
            start = time.perf_counter()
            act()
            took.append(time.perf_counter() - start)
        blocks.append(float(np.median(took)))
    return min(blocks)


def waiting() -> list[Row]:
    shop = synthetic_catalogue(ITEMS, DIM, seed=0)
    tree = tw.ItemTree.build(shop.vectors, (100, 10_000), seed=0)
    explorer = tw.Explorer(shop, tree, seed=0)
    users = [f"user {i}" for i in range(100)]
    for turn in range(20):
        explorer.feedback({d.id: float(turn % 2) for d in explorer.recommend(users)})
    explorer.recommend(users)
    # What a decision comes down to: two times 25 arms scored by LinUCB, here in numpy.
    arms, inverse, theta = shop.vectors[:25].copy(), np.eye(DIM, dtype=np.float32), np.zeros(DIM, dtype=np.float32)

    def scores() -> None:
        for _ in range(2):
            np.argmax(arms @ theta + 0.5 * np.sqrt(np.einsum("ij,ij->i", arms @ inverse, arms)))

    plain = median(scores, 2_000) * 1e6
    one = median(lambda: explorer.recommend(users[:1]), 2_000) * 1e6
    hundred = median(lambda: explorer.recommend(users), 200) * 1e3
    rows = [
        (
            "recommend 1 user, 1,000,000 items",
            f"{one:.0f} us ({one / plain:.1f}x the scores in numpy)",
            "< 100 us",
            one < 100,
        ),
        ("recommend 100 users in one call", f"{hundred:.2f} ms ({hundred * 10:.0f} us each)", "< 2 ms", hundred < 2),
    ]
    events = [(i * 7919) % ITEMS for i in range(1_000)]
    log = tw.Interactions(["friend"] * 1_000, shop.ids[events], rewards=[float(i % 3 == 0) for i in range(1_000)])
    store = tw.MemoryStore()
    for policy in (tw.PHCB(), tw.HCB()):
        made = tw.Explorer(shop, tree, policy, store, seed=0)
        if store.counts(["friend"]) == [0]:
            made.ingest(log)
        made.recommend(["friend"])
        took = median(lambda: made.recommend(["friend"]), 60, lambda: made.release("friend")) * 1e3  # noqa: B023
        rows.append((f"first decision from 1,000 events, {policy.name}", f"{took:.2f} ms", "< 3 ms", took < 3))
    return rows


CROWD = """
import resource, time
import numpy as np, treeward as tw
from treeward.store.events import EVENT
shop = tw.Catalogue(np.arange(100_000), np.random.default_rng(0).standard_normal((100_000, 32), dtype=np.float32))
explorer = tw.Explorer(shop, seed=0)
start = time.perf_counter()
block = 50_000
for first in range(0, 1_000_000, block):
    events = np.zeros(block * 100, dtype=EVENT)
    events["item"] = np.arange(block * 100) * 7919 % 100_000
    events["reward"], events["node"], events["kind"] = 1.0, -1, 1
    explorer.store.extend([f"user {first + i}" for i in range(block)], np.full(block, 100), events)
seconds = time.perf_counter() - start
[d] = explorer.recommend(["user 777777"])
assert explorer.store.counts(["user 777777"])[0] == 100
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, seconds)
"""

START = """
import time; start = time.perf_counter()
import numpy as np, treeward as tw
shop, tree = tw.Catalogue.load("items"), tw.ItemTree.load("tree")
[d] = tw.Explorer(shop, tree, seed=0).recommend(["ada"])
print(time.perf_counter() - start)
"""


def crowd() -> list[Row]:
    made = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, check=True)
    gigabytes, seconds = map(float, made.stdout.split())
    packed = 1e8 * EVENT.itemsize / 2**30
    told = f"{gigabytes:.2f} GB ({gigabytes / packed:.2f}x the bare events), taken in within {seconds:.0f} s"
    return [("1,000,000 users with 100 events each", told, "< 4 GB", gigabytes < 4)]


def second_start() -> list[Row]:
    shop = synthetic_catalogue(20_000, DIM, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        shop.save(f"{folder}/items")
        tw.ItemTree.build(shop.vectors, (50, 500), seed=0).save(f"{folder}/tree")
        took = []
        for _ in range(4):
            made = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True, cwd=folder)
            took.append(float(made.stdout))
    first = min(took[1:])
    return [("a new process's first decision", f"{first:.2f} s", "< 1.5 s", first < 1.5)]


def main() -> int:
    rows = [*waiting(), *second_start(), *crowd()]
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:60} {measured:44} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "explorer.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
