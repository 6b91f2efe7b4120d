"""Measure what the crowd costs: folding a reward, an edition for a million items, and decisions meanwhile.

Targets: at most 3 us per folded reward; an edition for 1M items in 64 dimensions within 1 s in the background, with the
99th percentile of `recommend` at most 1.3 times the usual while it happens; at most 32 bytes per item plus 64 MB.
"""

import argparse
import sys
import tracemalloc
from threading import Event, Thread
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

import treeward as tw
from treeward.store.events import EVENT, REWARD

USERS, EVENTS = 5_000, 200_000


def rewards(count: int, items: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    made = np.zeros(count, dtype=EVENT)
    made["item"] = (random.random(count) ** 2 * items).astype(np.int32)
    made["reward"], made["kind"], made["nonce"] = random.random(count) < 0.3, REWARD, np.arange(1, count + 1)
    return made


def folding(keeper, items: int) -> float:
    """Microseconds per reward that is added as it comes, in pieces of 10, users hashed."""
    events = rewards(EVENTS, items)
    users = [f"user {i % USERS}" for i in range(EVENTS)]
    start = perf_counter()
    for first in range(0, EVENTS, 10):
        keeper.add(users[first : first + 10], events[first : first + 10], 0)
    keeper.sums.rewards  # noqa: B018 - which adds up what waits
    return (perf_counter() - start) / EVENTS * 1e6


def latencies(explorer, seconds: float, publish=None) -> tuple[np.ndarray, list[float]]:
    """Microseconds of single recommendations, and the seconds that each publishing took meanwhile."""
    done, took = Event(), []

    def publishing() -> None:
        with threadpool_limits(1):
            while not done.is_set():
                start = perf_counter()
                publish()
                took.append(perf_counter() - start)

    thread = Thread(target=publishing) if publish else None
    if thread:
        thread.start()
    found, end, turn = [], perf_counter() + seconds, 0
    while perf_counter() < end:
        start = perf_counter()
        explorer.recommend([f"user {turn % USERS}"])
        found.append(perf_counter() - start)
        turn += 1
    done.set()
    if thread:
        thread.join()
    return np.array(found) * 1e6, took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    random = np.random.default_rng(0)
    vectors = random.standard_normal((chosen.items, chosen.dim), dtype=np.float32)
    shop = tw.Catalogue(range(chosen.items), vectors)
    widths = (100, 10_000) if chosen.items >= 100_000 else (10, 100)
    tree = tw.ItemTree.build(vectors, widths, seed=0)
    threadpool_limits(1)
    explorer = tw.Explorer(shop, tree, seed=0, publishes=False, memory=2 << 30)
    keeper = explorer.crowd_keeper
    fold = folding(keeper, chosen.items)
    explorer.publish()
    latencies(explorer, 2.0)
    usual, _ = latencies(explorer, chosen.seconds)
    meanwhile, took = latencies(explorer, chosen.seconds, explorer.publish)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    explorer.publish()
    peak = (tracemalloc.get_traced_memory()[1] - before) / 1e6
    tracemalloc.stop()
    plan, sums = explorer._snapshot.decider.plan, keeper.sums
    held = sum(array.nbytes for array in plan.crowd) + plan.bonus.nbytes + sums.count.nbytes + sums.total.nbytes
    ratio = np.quantile(meanwhile, 0.99) / np.quantile(usual, 0.99)
    rows = [
        ("folding a reward, us", fold, 3.0),
        (f"an edition, {chosen.items:,} items x {chosen.dim}, s (median of {len(took)})", float(np.median(took)), 1.0),
        ("recommend, p99 while publishing / usual p99", ratio, 1.3),
        ("held, bytes per item", held / chosen.items, 32.0),
        ("needed for a moment on top, MB", peak, 64.0 + 32 * chosen.items / 1e6),
    ]
    print(f"recommend: usual p50 {np.median(usual):.0f} us, p99 {np.quantile(usual, 0.99):.0f} us; "
          f"while publishing p50 {np.median(meanwhile):.0f} us, p99 {np.quantile(meanwhile, 0.99):.0f} us")  # fmt: skip
    missed = 0
    for name, value, target in rows:
        missed += value > target
        print(f"{name:70} {value:8.2f}  target {target:g}{'' if value <= target else '  MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
