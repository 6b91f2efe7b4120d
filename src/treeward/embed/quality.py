"""How good item vectors are: whether people's next click lies where their earlier ones point."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset
from treeward.embed.svd import svd_vectors
from treeward.learn.clicks import Held, clicks_of, last_clicks
from treeward.learn.next_click import WINDOW, NextClick, best_of

COUNT = 20
_ASKED = 512


class Quality(NamedTuple):
    """What became of test users' last clicks."""

    users: int
    recall: Mapping[str, float]
    """By name: the share of them among the first 20 of the whole catalogue, without what the user had clicked."""


def quality(data: Dataset, items: Catalogue, models: Sequence[NextClick] = (), *, seed: int = 0) -> Quality:
    """Tell how often test users' last click is among 20 items, going by popularity, by SVD and by these vectors.

    Vectors are used the same way, whoever made them: items are ranked by their inner product with the mean of the
    vectors of a user's last 50 clicks. Models are asked for their own user vectors besides.
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


def _recall(held: Held, vectors: Floats, bias: Floats | None = None) -> float:
    hits = 0
    for start in range(0, len(held.following), _ASKED):
        some = held.histories[start : start + _ASKED]
        people = np.stack([vectors[mine[-WINDOW:]].mean(axis=0) for mine in some])
        scores: Floats = people @ vectors.T
        if bias is not None:
            scores = scores + bias
        best = best_of(scores, some, min(COUNT, len(vectors)), again=False)
        hits += int((best == held.following[start : start + _ASKED, None]).any(axis=1).sum())
    return hits / max(len(held.following), 1)
