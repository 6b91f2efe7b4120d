"""Measure item vectors: `python benchmarks/embed.py TITLES LOG...`, e.g. with mind, then sports and beauty.

TITLES is data with titles. 10,000 of them are embedded: one by one in the given order (a sample of them: the baseline),
sorted and in batches, and again from the cache. For every LOG, GRU vectors are compared with SVD vectors by next-click
recall@20.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.core import rng
from treeward.embed.quality import quality
from treeward.embed.sentences import PACKAGE, encoder, find_model

Row = tuple[str, str, str, bool]
TITLES, SAMPLE = 10_000, 400


def some_titles(data: str | None) -> list[str]:
    if data is None:
        words = [
            "red",
            "small",
            "garden",
            "wool",
            "steel",
            "winter",
            "running",
            "the",
            "old",
            "kitchen",
            "light",
            "set",
        ]
        chosen = (rng.uniforms(0, 0, TITLES * 14) * len(words)).astype(int).reshape(TITLES, 14)
        return [" ".join(words[j] for j in row[: 4 + i % 11]) + f" {i}" for i, row in enumerate(chosen)]
    held = tw.load_dataset(data).catalogue
    assert held.titles is not None
    known = held.titles.drop_nulls().unique(maintain_order=True).to_list()
    return [title for title in known if title.strip()][:TITLES]


def texts(data: str | None) -> list[Row]:
    titles = some_titles(data)
    shop = tw.Catalogue(range(len(titles)), titles=titles)
    model = encoder("benchmark", find_model("benchmark", PACKAGE), "auto")
    model.encode(titles[:8])
    some = [titles[i] for i in np.linspace(0, len(titles) - 1, SAMPLE).astype(int)]
    start = time.perf_counter()
    for title in some:
        model.encode(title)
    singly = (time.perf_counter() - start) / len(some)
    with tempfile.TemporaryDirectory() as folder:
        took = []
        for _ in range(2):
            start = time.perf_counter()
            tw.text_vectors(shop, 64, cache=Path(folder) / "texts.sqlite")
            took.append(time.perf_counter() - start)
    first, again = took
    faster = singly * len(titles) / first
    return [
        (f"text, {len(titles):,} titles", f"{first:.1f} s", "120 s", first <= 120),
        ("text, against one by one", f"{faster:.1f}x", "2x", faster >= 2),
        ("text, from the cache", f"{again:.2f} s", "2 s", again <= 2),
    ]


def clicks(path: str) -> Row:
    data = tw.load_dataset(path)
    start = time.perf_counter()
    tuned = tw.gru_vectors(data.part("train"), data.part("validation"), data.catalogue, 64)
    took = time.perf_counter() - start
    found = quality(data, tuned.catalogue, [tuned.model]).recall
    told = ", ".join(f"{name} {share:.2%}" for name, share in found.items())
    better = found["these vectors"] > found["svd"] and found["gru model"] > found["svd"]
    return (f"gru, {Path(path).name}", f"{told}; {took:.0f} s", "above svd", better)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("titles", nargs="?", help="synthetic ones by default")
    parser.add_argument("logs", nargs="*")
    given = parser.parse_args()
    rows = texts(given.titles) + [clicks(path) for path in given.logs]
    for what, got, target, fine in rows:
        print(f"{what:<28} {got:<76} target {target:<10} {'ok' if fine else 'MISSED'}", flush=True)
    sys.exit(not all(fine for *_, fine in rows))


if __name__ == "__main__":
    main()
