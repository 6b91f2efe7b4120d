"""Compare tree building with plain faiss, in one run: ``python benchmarks/tree_build.py [mid] [big]``.

mid  161,013 x 64 -> 10,000 -> 100, on clustered and on isotropic vectors; the baseline is ``faiss.Kmeans`` with 10
     iterations.
big  4,162,024 x 32 -> 50,000 -> 5,000 -> 50, memory-mapped; the baseline is one exact faiss assignment pass over the
     same data.

Prints a table and writes bench-out/tree_build.json; exits 1 if a target is missed.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

import treeward as tw

OUT = Path("bench-out")
Row = tuple[str, str, str, bool]


def mixture(count: int, dim: int, subcentres: int, seed: int = 0) -> np.ndarray:
    """Two levels: 100 standard-normal centres, sub-centres at 0.5 around them, points at 0.3 around those."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((100, dim), dtype=np.float32)
    sub = np.repeat(centres, subcentres // 100, axis=0)
    sub += 0.5 * random.standard_normal(sub.shape, dtype=np.float32)
    points = sub[random.integers(0, len(sub), count)]
    points += 0.3 * random.standard_normal(points.shape, dtype=np.float32)
    return points


def isotropic(count: int, dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dim), dtype=np.float32)


def unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def squared_error(points: np.ndarray, labels: np.ndarray, count: int) -> float:
    """Sum of squared distances to the cluster means, in float64."""
    sums = np.zeros((count, points.shape[1]))
    np.add.at(sums, labels, points)
    sizes = np.bincount(labels, minlength=count)
    means = sums / np.maximum(sizes, 1)[:, None]
    return float(np.square(points, dtype=np.float64).sum() - (np.square(means) * sizes[:, None]).sum())


def leaf_labels(tree: tw.ItemTree) -> np.ndarray:
    labels = np.empty(len(tree), dtype=np.int64)
    labels[tree.items] = np.repeat(np.arange(len(tree.leaves)), np.diff(tree.item_range[tree.leaves]).ravel())
    return labels


def same(one: tw.ItemTree, other: tw.ItemTree) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


def mid() -> list[Row]:
    import faiss

    rows: list[Row] = []
    tw.ItemTree.build(isotropic(20_000, 64), widths=(10, 2_000))  # compiles
    for name, points, speed, slack in (
        ("clustered", mixture(161_013, 64, 10_000), 10, 0.01),
        ("isotropic", isotropic(161_013, 64), 4, 0.02),
    ):
        start = time.perf_counter()
        tree = tw.ItemTree.build(points, widths=(100, 10_000), seed=0)
        ours = time.perf_counter() - start
        normed = unit(points)
        plain = faiss.Kmeans(64, 10_000, niter=10, seed=1, min_points_per_centroid=1)
        start = time.perf_counter()
        plain.train(normed)
        theirs = time.perf_counter() - start
        theirs_error = squared_error(normed, plain.index.search(normed, 1)[1][:, 0], 10_000)
        ratio, error = theirs / ours, squared_error(normed, leaf_labels(tree), 10_000) / theirs_error
        rows.append(
            (f"mid {name}: speed", f"{ratio:.1f}x ({ours:.2f} s / {theirs:.1f} s)", f">= {speed}x", ratio >= speed)
        )
        rows.append((f"mid {name}: SSE ratio", f"{error:.4f}", f"<= {1 + slack}", error <= 1 + slack))
        alone = tw.ItemTree.build(points, widths=(100, 10_000), seed=0, threads=1)
        rows.append((f"mid {name}: 1 thread = {os.cpu_count()}", str(same(tree, alone)), "True", same(tree, alone)))
    return rows


class Peak:
    """The highest anonymous memory of this process while open, in bytes above the start."""

    def __enter__(self) -> "Peak":
        self.start = self.high = self._now()
        self.open = True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False
        self.thread.join()

    def _watch(self) -> None:
        while self.open:
            self.high = max(self.high, self._now())
            time.sleep(0.01)

    @staticmethod
    def _now() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no RssAnon in /proc/self/status")


def big() -> list[Row]:
    import faiss

    OUT.mkdir(exist_ok=True)
    path = OUT / "big.npy"
    if not path.exists():
        np.save(path, mixture(4_162_024, 32, 50_000))
    points = np.load(path, mmap_mode="r")
    tw.ItemTree.build(points[:20_000], widths=(10, 2_000))  # compiles
    stages: dict[str, float] = {}
    began = time.perf_counter()

    def note(stage: str, done: int, total: int) -> None:
        stages[stage] = time.perf_counter() - began

    with Peak() as peak:
        tree = tw.ItemTree.build(points, widths=(50, 5_000, 50_000), seed=0, progress=note)
    whole = time.perf_counter() - began
    leaves = max(at for stage, at in stages.items() if stage.startswith("leaves"))
    grown = (peak.high - peak.start) / 1e9
    tree.save(OUT / "big-tree", overwrite=True)
    start = time.perf_counter()
    loaded = tw.ItemTree.load(OUT / "big-tree")
    opening = time.perf_counter() - start
    normed = unit(points)
    index = faiss.IndexFlatL2(32)
    index.add(np.ascontiguousarray(tree.vectors[tree.leaves]))
    start = time.perf_counter()
    exact = index.search(normed, 1)[1][:, 0]
    one_pass = time.perf_counter() - start
    agree = float((exact == leaf_labels(tree)).mean())
    alone = tw.ItemTree.build(points, widths=(50, 5_000, 50_000), seed=0, threads=1)
    return [
        (
            "big: leaves / one exact pass",
            f"{leaves / one_pass:.2f} ({leaves:.1f} s / {one_pass:.1f} s)",
            "< 1",
            leaves < one_pass,
        ),
        ("big: whole tree", f"{whole:.1f} s", "-", True),
        ("big: items in their nearest leaf", f"{agree:.4f}", "-", True),
        ("big: peak memory beyond the input", f"{grown:.2f} GB", "<= 2 GB", grown <= 2),
        ("big: load", f"{opening:.2f} s", "< 1 s", opening < 1 and same(tree, loaded)),
        (f"big: 1 thread = {os.cpu_count()}", str(same(tree, alone)), "True", same(tree, alone)),
    ]


def main(wanted: list[str]) -> int:
    rows = [row for name in wanted or ["mid", "big"] for row in {"mid": mid, "big": big}[name]()]
    for what, measured, target, reached in rows:
        print(f"{'ok  ' if reached else 'MISS'}  {what:38} {measured:28} target {target}")
    OUT.mkdir(exist_ok=True)
    record = [
        {"what": what, "measured": measured, "target": target, "reached": ok} for what, measured, target, ok in rows
    ]
    (OUT / "tree_build.json").write_text(json.dumps(record, indent=2))
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
