"""Quality of item vectors: how well they predict users' next clicks."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset
from treeward.embed.svd import svd_vectors
from treeward.learn.clicks import HeldOut, clicks_of, last_clicks
from treeward.learn.next_click import WINDOW, NextClick, top_rows

COUNT = 20
_CHUNK = 512


class Quality(NamedTuple):
    """How many of the test users' last clicks were found."""

    users: int
    recall: Mapping[str, float]
    """By name: the share of last clicks among the first 20 of the whole catalogue, without items clicked before."""


def quality(data: Dataset, items: Catalogue, models: Sequence[NextClick] = (), *, seed: int = 0) -> Quality:
    """Return how often a test user's last click is among 20 items, by popularity, by SVD and by these vectors.

    All vectors are used the same way: items are ranked by their inner product with the mean vector of the user's last
    50 clicks. Models are also judged by their own user vectors.
    """
    train = clicks_of("quality", data.part("train"), items)
    held = last_clicks(clicks_of("quality", data.part("test"), items))
    popular = train.counts(len(items)).astype(np.float32)
    rival = svd_vectors(data.part("train"), items, min(items.dim, len(items), len(train)), seed=seed)
    made = {
        "popularity": _recall(held, np.zeros((len(items), 1), dtype=np.float32), popular),
        "svd": _recall(held, rival.vectors),
        "these vectors": _recall(held, items.vectors),
    }
    for model in models:
        found = model.top(held.histories, min(COUNT, len(items)))
        hits = int((found == held.following[:, None]).any(axis=1).sum())
        made[f"{model.kind} model"] = hits / max(len(held.following), 1)
    return Quality(len(held.following), made)


def _recall(held: HeldOut, vectors: Floats, bias: Floats | None = None) -> float:
    hits = 0
    for start in range(0, len(held.following), _CHUNK):
        some = held.histories[start : start + _CHUNK]
        people = np.stack([vectors[mine[-WINDOW:]].mean(axis=0) for mine in some])
        scores: Floats = people @ vectors.T
        if bias is not None:
            scores = scores + bias
        best = top_rows(scores, some, min(COUNT, len(vectors)), include_clicked=False)
        hits += int((best == held.following[start : start + _CHUNK, None]).any(axis=1).sum())
    return hits / max(len(held.following), 1)
