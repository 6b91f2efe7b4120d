"""Measure what a deployment needs: memory per user and item, bytes per event, decisions and events per core second.

    python benchmarks/sizing.py      # some five minutes; PostgreSQL is started as a private cluster

Prints the tables of docs/scaling.md: what was measured here, and what follows for larger deployments.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.policy import Policy
from treeward.store.base import EventStore
from treeward.store.events import EVENT, REWARD
from treeward.store.numbers import number_items
from treeward.tree.build import default_widths

ITEMS, USERS, EVENTS = 200_000, 2_000, 100


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    threadpool_limits(1)
    print("| | a user at hand | decisions/s, at hand | decisions/s, rebuilt from 100 events |\n|---|---|---|---|")
    for dim in (16, 32, 64):
        shop = synthetic_catalogue(ITEMS, dim=dim, seed=0)
        for policy in (tw.HCB(), tw.PHCB()):
            held, hot, cold = decisions(shop, policy)
            print(f"| {policy.name}, {dim} dimensions | {held / 1e3:.1f} KB | {hot:,.0f} | {cold:,.0f} |", flush=True)
    print("\n| store | bytes an event | events/s, one writer, 100 at a time | events/s in bulk |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.db"
        told = events(tw.SQLiteStore(path))
        print(f"| SQLite | {path.stat().st_size / told[0]:.0f} | {told[1]:,.0f} | {told[2]:,.0f} |", flush=True)
    database()
    print("\n| items | dimensions | vectors | tree | order of items |\n|---|---|---|---|---|")
    for items, dim in ((1_000_000, 64), (20_000_000, 32), (100_000_000, 32)):
        nodes = 1 + sum(default_widths(items))
        tree, rows = nodes * (4 * dim + 4 + 4 + 4 + 8), 4 * items
        print(f"| {items:,} | {dim} | {4 * dim * items / 1e9:.1f} GB | {tree / 1e9:.2f} GB | {rows / 1e9:.2f} GB |")


def decisions(shop: tw.Catalogue, policy: Policy) -> tuple[float, float, float]:
    """Return the bytes of a user's state, and decisions per second for users in memory and for others."""
    store = tw.MemoryStore()
    explorer = tw.Explorer(shop, policy.grow(shop, 0), policy, store, seed=0)
    random = np.random.default_rng(0)
    made = np.zeros(USERS * EVENTS, dtype=EVENT)
    made["item"], made["node"], made["kind"] = random.integers(ITEMS, size=len(made)), -1, REWARD
    made["reward"] = random.random(len(made)) < 0.2
    users = [f"u{i}" for i in range(USERS)]
    store.extend(users, np.full(USERS, EVENTS), made)
    explorer.recommend(["nobody"])
    began = time.perf_counter()
    for user in users[:500]:
        explorer.recommend([user])
    cold = time.perf_counter() - began
    began = time.perf_counter()
    for turn in range(4_000):
        explorer.recommend([users[turn % 500]])
    hot = time.perf_counter() - began
    return explorer._snapshot.decider.states.each, 4_000 / hot, 500 / cold


def events(store: EventStore) -> tuple[int, float, float]:
    """Return how many events were written, and how many per second: a hundred per commit, and in bulk."""
    number_items(store, synthetic_catalogue(1_000, dim=2, seed=0).ids)
    users = [f"u{i}" for i in range(USERS)]
    many = np.zeros(USERS * EVENTS, dtype=EVENT)
    many["kind"] = REWARD
    began = time.perf_counter()
    store.extend(users, np.full(USERS, EVENTS), many)
    bulk = time.perf_counter() - began
    some = np.zeros(100, dtype=EVENT)
    some["kind"] = REWARD
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < 5:
        some["nonce"] = 1 + count + np.arange(100)
        store.append([users[(count + i) % USERS] for i in range(100)], some)
        count += 100
    spent = time.perf_counter() - began
    store.close()
    return len(many) + count, count / spent, len(many) / bulk


def database() -> None:
    try:
        from tests.pg import Cluster

        cluster = Cluster()
    except (ImportError, AssertionError, OSError) as error:
        print(f"PostgreSQL: not measured ({error})")
        return
    try:
        import psycopg

        from treeward.store.postgres import PostgresStore

        url = cluster.database("sizing")
        told = events(PostgresStore(url))
        with psycopg.connect(url, autocommit=True) as db:
            [size] = db.execute(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE nspname = 'treeward' AND relkind = 'r'"
            ).fetchone()
        print(f"| PostgreSQL, indices included | {size / told[0]:.0f} | {told[1]:,.0f} | {told[2]:,.0f} |", flush=True)
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
