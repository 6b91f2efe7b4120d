"""Compare the service over PostgreSQL with the service over SQLite, in the same run: `python benchmarks/postgres.py`.

PostgreSQL is started as a private cluster. Load generator, service and database share the machine.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import treeward as tw
from load import drive
from serve import running
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.events import EVENT, REWARD
from treeward.store.numbers import number_items

HERE = Path(__file__).parent
ITEMS, DIM, USERS, EVENTS, CALLERS = 100_000, 32, 5_000, 50, 16
Row = tuple[str, str, str, bool]


def fill(store: tw.store.EventStore, ids) -> None:
    random = np.random.default_rng(0)
    number_items(store, ids)
    made = np.zeros(USERS * EVENTS, dtype=EVENT)
    made["item"], made["node"], made["kind"] = random.integers(ITEMS, size=len(made)), -1, REWARD
    made["reward"] = random.random(len(made)) < 0.2
    store.extend([f"u{i}" for i in range(USERS)], np.full(USERS, EVENTS), made)
    store.close()


def measured(folder: Path, items: Path, where: str) -> dict[str, float]:
    random = np.random.default_rng(1)
    users = [b'{"user":"u%d"}' % user for user in random.integers(USERS, size=30_000)]
    with running(folder, items, "--store", where, "--set", "log=off") as (url, _):
        drive(url, "/v1/recommend", users[:3_000], CALLERS, 30)
        asked = drive(url, "/v1/recommend", users[3_000:18_000], CALLERS, 60, keep=True)
        ids = [json.loads(body)["items"][0]["decision_id"] for body in asked.bodies]
        bodies = [json.dumps({"decision_id": id, "reward": float(i % 5 == 0)}).encode() for i, id in enumerate(ids)]
        told = drive(url, "/v1/feedback", bodies, CALLERS, 60, keep=True)
    fresh = sum(b"recorded" in body for body in told.bodies)
    return {
        "recommend p99": asked.p99, "recommend rate": asked.rate, "feedback p99": told.p99,
        "feedback rate": told.rate, "recorded": fresh / len(bodies),
    }  # fmt: skip


def main() -> int:
    sys.path.insert(0, str(HERE.parent))
    from tests.pg import Cluster

    from treeward.store.postgres import PostgresStore

    cluster = Cluster()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            catalogue = synthetic_catalogue(ITEMS, dim=DIM, seed=0)
            catalogue.save(folder / "items")
            url = cluster.database("treeward")
            fill(PostgresStore(url), catalogue.ids)
            fill(tw.SQLiteStore(folder / "events.db"), catalogue.ids)
            lite = measured(folder, folder / "items", str(folder / "events.db"))
            ours = measured(folder, folder / "items", url)
    finally:
        cluster.close()
    slower = ours["recommend p99"] / lite["recommend p99"]
    rows: list[Row] = [
        (
            f"feedback through PostgreSQL, {CALLERS} connections: rate",
            f"{ours['feedback rate']:,.0f}/s (SQLite {lite['feedback rate']:,.0f}/s)", ">= 3,000/s",
            ours["feedback rate"] >= 3_000 and ours["recorded"] == 1,
        ),
        (
            "the same: p99", f"{ours['feedback p99'] * 1e3:.1f} ms (SQLite {lite['feedback p99'] * 1e3:.1f} ms)",
            "<= 25 ms", ours["feedback p99"] <= 0.025,
        ),
        (
            "recommend: p99, against SQLite's",
            f"{slower:.1f}x ({ours['recommend p99'] * 1e3:.1f} and {lite['recommend p99'] * 1e3:.1f} ms; "
            f"{ours['recommend rate']:,.0f}/s and {lite['recommend rate']:,.0f}/s)", "<= 2x", slower <= 2,
        ),
    ]  # fmt: skip
    for what, said, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:52} {said:64} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "postgres.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
