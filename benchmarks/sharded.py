"""Measure a tree over vectors in shards: its memory, and its squared error compared with the tree of one machine.

    python benchmarks/sharded.py                      # 20 million x 32, in processes: most of an hour on two cores
    python benchmarks/sharded.py --items 2000000      # a few minutes
    python benchmarks/sharded.py --on ray             # the same by Ray, started here

Targets: within 6 GB in all processes together, and within 2 % of the one machine's error at the leaves.
Memory is the proportional set size of the build and all its workers, mapped files included, sampled twice per second.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from treeward.tree.item_tree import ItemTree

MOST_GB, MOST_ERROR = 6.0, 1.02
SHARDS = 20

_BUILD = """
import sys, time
from treeward.tree.item_tree import ItemTree
if __name__ == "__main__":
    began = time.perf_counter()
    last = [""]
    def told(stage, done, total):
        if stage != last[0]:
            last[0] = stage
            print(f"{time.perf_counter() - began:7.0f} s  {stage}", file=sys.stderr, flush=True)
    tree = ItemTree.from_shards(sys.argv[1], on=sys.argv[2], scratch=sys.argv[3], progress=told)
    tree.save(sys.argv[4])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--on", default="processes")
    parser.add_argument("--folder", type=Path, help="where to lay files; default: a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        sys.exit(measure(Path(place), given.items, given.dim, given.on))


def measure(place: Path, items: int, dim: int, on: str) -> int:
    began = time.perf_counter()
    whole = generate(place, items, dim)
    print(f"{items:,} x {dim} in {SHARDS} shards: generated in {time.perf_counter() - began:.0f} s", flush=True)
    began = time.perf_counter()
    script = place / "build.py"
    script.write_text(_BUILD)
    words = [sys.executable, script, place / "shards", on, place, place / "tree"]
    peak, own = watched(subprocess.Popen(words))
    sharded = time.perf_counter() - began
    print(f"sharded ({on}): {sharded:.0f} s, {peak:.2f} GB at most, of which {own:.2f} GB not files", flush=True)
    vectors = np.load(whole, mmap_mode="r")
    began = time.perf_counter()
    one = ItemTree.build(vectors)
    alone = time.perf_counter() - began
    print(f"one machine: {alone:.0f} s", flush=True)
    made = ItemTree.load(place / "tree")
    errors = [tree.describe(vectors).levels[-1].error for tree in (made, one)]
    ratio = errors[0] / errors[1]
    told = {
        "items": items, "dim": dim, "on": on, "seconds": round(sharded), "seconds_one": round(alone),
        "gb": round(peak, 2), "gb_not_files": round(own, 2), "error": errors[0], "error_one": errors[1],
        "ratio": round(ratio, 5), "widths": made.widths,
    }  # fmt: skip
    print(json.dumps(told))
    good = peak <= MOST_GB and ratio <= MOST_ERROR
    verdict = "met" if good else "MISSED"
    print(f"memory {peak:.2f} GB (target {MOST_GB:g}), error {ratio:.4f}x (target {MOST_ERROR:g}): {verdict}")
    return 0 if good else 1


def generate(place: Path, items: int, dim: int) -> Path:
    """Lay out shards, and the same in one file: groups of groups of items, as catalogues have them."""
    random = np.random.default_rng(0)
    large = random.normal(size=(200, dim)).astype(np.float32)
    small = large[random.integers(200, size=20_000)] + 0.5 * random.normal(size=(20_000, dim)).astype(np.float32)
    (place / "shards").mkdir()
    whole = np.lib.format.open_memmap(place / "whole.npy", "w+", np.float32, (items, dim))
    for number, rows in enumerate(np.array_split(np.arange(items), SHARDS)):
        own = np.random.default_rng([1, number])
        part = small[own.integers(len(small), size=len(rows))]
        part += 0.3 * own.standard_normal(size=part.shape, dtype=np.float32)
        np.save(place / "shards" / f"{number:03}.npy", part)
        whole[rows[0] : rows[-1] + 1] = part
    whole.flush()
    return place / "whole.npy"


def watched(process: "subprocess.Popen[bytes]") -> tuple[float, float]:
    """Wait for a process; return the most memory that it and its descendants had, in all and without files, in GB."""
    most, own = 0.0, 0.0
    while process.poll() is None:
        held, anonymous = 0.0, 0.0
        for pid in family(process.pid):
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            except OSError:
                continue
            parts = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.split()[1].isdigit()}
            held += parts.get("Pss", 0) / 1e6
            anonymous += (parts.get("Pss_Anon", 0) + parts.get("Pss_Shmem", 0)) / 1e6
        most, own = max(most, held), max(own, anonymous)
        time.sleep(0.5)
    if process.returncode:
        sys.exit(f"the build failed with {process.returncode}")
    return most, own


def family(pid: int) -> list[int]:
    """Return a process and all its descendants; Ray's are its session's."""
    parents = {}
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                stat = (one / "stat").read_text()
            except OSError:
                continue
            parents[int(one.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += [child for child, parent in parents.items() if parent == one]
    return found


if __name__ == "__main__":
    main()
