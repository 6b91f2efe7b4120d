"""Quality of item vectors: how well they predict users' next clicks."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.errors import DataError
from treeward.core.ranking import LIST, Places, list_quality, places_among_all
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset
from treeward.embed.svd import svd_vectors
from treeward.learn.clicks import HeldOut, clicks_of, last_clicks
from treeward.learn.next_click import WINDOW, NextClick

COUNT = 20
_CHUNK = 512
_Scores = Callable[[Sequence[NDArray[np.int64]]], Floats]


class Quality(NamedTuple):
    """How far up the test users' last clicks are in a ranking of the whole catalogue, without items clicked before.

    All by name: of popularity, of vectors, or of a model.
    """

    users: int
    recall: Mapping[str, float]
    """The share of last clicks among the first 20."""
    hit_rate: Mapping[str, float]
    """The share among the first `length`: HR@k ..."""
    ndcg: Mapping[str, float]
    """... and NDCG@k; see `treeward.core.ranking`."""
    length: int


def quality(
    data: Dataset, items: Catalogue, models: Sequence[NextClick] = (), *, count: int = LIST, seed: int = 0
) -> Quality:
    """Return how far up test users' last clicks are in rankings by popularity, by SVD and by these vectors.

    All items but those that the user clicked before are ranked. All vectors are used the same way: items are ranked by
    their inner product with the mean vector of the user's last 50 clicks. Models are also judged by their own user
    vectors.

    Parameters
    ----------
    data, items
        The log with its split, and the items with vectors.
    models
        Models of the next click of these items.
    count
        The k of HR@k and NDCG@k.
    seed
        Of the SVD.
    """
    checks.integer("quality", "count", count, low=1)
    train = clicks_of("quality", data.part("train"), items)
    held = last_clicks(clicks_of("quality", data.part("test"), items))
    if not held.histories:
        raise DataError("quality: no test user clicked a second item")
    popular = train.counts(len(items)).astype(np.float32)
    rival = svd_vectors(data.part("train"), items, min(items.dim, len(items), len(train)), seed=seed)
    ways: dict[str, _Scores] = {
        "popularity": lambda histories: np.repeat(popular[None], len(histories), axis=0),
        "svd": _by_mean(rival.vectors),
        "these vectors": _by_mean(items.vectors),
    } | {f"{model.kind} model": _by_model(model) for model in models}
    users = len(held.following)
    places = {name: _places(held, scores) for name, scores in ways.items()}
    recall = {name: list_quality(found, users, COUNT).mean()[0] for name, found in places.items()}
    both = {name: list_quality(found, users, count).mean() for name, found in places.items()}
    hit_rate, ndcg = ({name: pair[at] for name, pair in both.items()} for at in (0, 1))
    return Quality(users, recall, hit_rate, ndcg, count)


def _by_mean(vectors: Floats) -> _Scores:
    def scores(histories: Sequence[NDArray[np.int64]]) -> Floats:
        made: Floats = np.stack([vectors[mine[-WINDOW:]].mean(axis=0) for mine in histories]) @ vectors.T
        return made

    return scores


def _by_model(model: NextClick) -> _Scores:
    return lambda histories: model.scores(model.user_vectors(histories))


def _places(held: HeldOut, score: _Scores) -> Places:
    """Return where the last clicks are among all items that were not clicked before."""
    above, equal = np.empty((2, len(held.following)), dtype=np.int64)
    for start in range(0, len(held.following), _CHUNK):
        histories, following = held.histories[start : start + _CHUNK], held.following[start : start + _CHUNK]
        scores = score(histories)
        for row, mine in enumerate(histories):
            scores[row, mine] = -np.inf
        piece = slice(start, start + _CHUNK)
        above[piece], equal[piece] = places_among_all(scores, np.arange(len(following)), following)
    return Places(np.arange(len(held.following)), above, equal)
