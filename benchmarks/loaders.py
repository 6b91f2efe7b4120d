"""Measure reading of big logs: ``python benchmarks/loaders.py``.

A synthetic UserBehavior.csv of 20 million rows is parsed, filtered, split and indexed in a process of its own, and
compared with a bare `polars.read_csv` of the same file. A synthetic behaviors.tsv has MIND-large's size (2.2 million
impressions).

Prints a table and writes bench-out/loaders.json; exits 1 if a target is missed.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

Row = tuple[str, str, str, bool]
ROWS, IMPRESSIONS = 20_000_000, 2_200_000

READ = """
import resource, sys, time
from treeward.data.loaders import load_dataset
start = time.perf_counter()
data = load_dataset(sys.argv[1])
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, len(data.interactions))
"""


def read(path: Path) -> tuple[float, float, int]:
    made = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    seconds, gigabytes, events = made.stdout.split()
    return float(seconds), float(gigabytes), int(events)


def taobao(folder: Path) -> list[Row]:
    random = np.random.default_rng(0)
    with (folder / "UserBehavior.csv").open("wb") as file:
        for _ in range(ROWS // 2_000_000):
            users = random.integers(1, 200_000, 2_000_000)
            items = (random.pareto(1.1, 2_000_000) * 20_000).astype(np.int64) % 800_000
            behaviours = np.array(["pv", "cart", "fav", "buy"])[random.choice(4, 2_000_000, p=[0.9, 0.05, 0.03, 0.02])]
            times = random.integers(1511539200, 1512316799, 2_000_000)
            table = pl.DataFrame({"u": users, "i": items, "c": items % 9_000, "b": behaviours, "t": times})
            table.write_csv(file, include_header=False)
    seconds, gigabytes, events = read(folder / "UserBehavior.csv")
    start = time.perf_counter()
    pl.read_csv(folder / "UserBehavior.csv", has_header=False)
    bare = time.perf_counter() - start
    rate = ROWS / seconds
    told = f"{rate / 1e6:.2f}M rows/s ({seconds:.1f} s; polars.read_csv alone {bare:.1f} s); {events:,} kept"
    return [
        ("20M rows of UserBehavior.csv", told, ">= 1M rows/s", rate >= 1e6),
        ("memory for them", f"{gigabytes:.2f} GB", "<= 4 GB", gigabytes <= 4),
    ]


def mind(folder: Path) -> list[Row]:
    random = np.random.default_rng(0)
    news = np.array([f"N{number}" for number in range(160_000)])
    text = "".join(f"{name}\tnews\tworld\tTitle of {name}\tAbstract\turl\t[]\t[]\n" for name in news)
    (folder / "news.tsv").write_text(text)
    with (folder / "behaviors.tsv").open("w") as file:
        for first in range(0, IMPRESSIONS, 20_000):
            users = random.integers(0, 700_000, 20_000)
            lengths, shown = random.integers(5, 60, 20_000), random.integers(10, 64, 20_000)
            past = news[(random.pareto(1.1, lengths.sum()) * 2_000).astype(np.int64) % 160_000]
            now = news[(random.pareto(1.1, shown.sum()) * 2_000).astype(np.int64) % 160_000]
            clicks = np.where(random.uniform(size=len(now)) < 0.04, "-1", "-0")
            now = np.char.add(now.astype(str), clicks)
            ends, stops = np.cumsum(lengths), np.cumsum(shown)
            for i in range(20_000):
                history = " ".join(past[ends[i] - lengths[i] : ends[i]])
                seen = " ".join(now[stops[i] - shown[i] : stops[i]])
                file.write(f"{first + i}\tU{users[i]}\t11/12/2019 2:14:46 PM\t{history}\t{seen}\n")
    size = (folder / "behaviors.tsv").stat().st_size / 2**30
    seconds, gigabytes, events = read(folder)
    told = f"{seconds:.0f} s, {events:,} events"
    return [
        (f"2.2M impressions of behaviors.tsv ({size:.1f} GB)", told, "<= 240 s", seconds <= 240),
        ("memory for them", f"{gigabytes:.2f} GB", "<= 4 GB", gigabytes <= 4),
    ]


def main() -> int:
    rows: list[Row] = []
    for part in (taobao, mind):
        with tempfile.TemporaryDirectory() as folder:
            rows += part(Path(folder))
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:46} {measured:76} target {target}")
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    (out / "loaders.json").write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
