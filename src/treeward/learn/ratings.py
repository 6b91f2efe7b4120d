"""Factorisation of weighted ratings, mean + user bias + item bias + user . item, by alternating least squares."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from treeward.core import rng

_ROUNDS = 15
_START = 0.1


class Rated(NamedTuple):
    """Ratings: user, item, rating, and the weight of each."""

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    rating: NDArray[np.float64]
    weight: NDArray[np.float64]

    def take(self, which: NDArray[np.bool_]) -> "Rated":
        """Return some of the rows."""
        return Rated(self.user[which], self.item[which], self.rating[which], self.weight[which])


class Shape(NamedTuple):
    """What is chosen by validation."""

    dim: int
    pull: float
    """How strongly vectors are pulled towards zero ..."""
    bias_pull: float
    """... and biases."""


class RatingFactors(NamedTuple):
    """The fitted parts; the last column of each table is the bias."""

    mean: float
    users: NDArray[np.float64]
    items: NDArray[np.float64]

    def predict(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected rating of each pair."""
        people, things = self.users[user], self.items[item]
        made: NDArray[np.float64] = (people[:, :-1] * things[:, :-1]).sum(axis=1) + people[:, -1] + things[:, -1]
        return made + self.mean


def factorise_ratings(rated: Rated, users: int, items: int, shape: Shape, *, seed: int) -> RatingFactors:
    """Minimise the weighted squared error plus the pulls; the same seed gives the same factors."""
    mean = float(np.average(rated.rating, weights=rated.weight))
    scale = _START / max(shape.dim, 1) ** 0.5
    tables = []
    for name, count in (("users", users), ("items", items)):
        drawn = rng.normals(seed, rng.stream("rating factors", name), count * shape.dim).reshape(count, shape.dim)
        tables.append(np.concatenate([scale * drawn, np.zeros((count, 1))], axis=1))
    people, things = tables
    weight = csr_matrix((rated.weight, (rated.user, rated.item)), shape=(users, items))
    target = csr_matrix((rated.weight * (rated.rating - mean), (rated.user, rated.item)), shape=(users, items))
    pull = np.diag([shape.pull] * shape.dim + [shape.bias_pull])
    for _ in range(_ROUNDS):
        people = _solved(weight, target, things, pull)
        things = _solved(weight.T.tocsr(), target.T.tocsr(), people, pull)
    return RatingFactors(mean, people, things)


def _solved(
    weight: csr_matrix, target: csr_matrix, others: NDArray[np.float64], pull: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the best vector and bias of every row, given those of the columns."""
    bias = others[:, -1]
    features = np.concatenate([others[:, :-1], np.ones((len(others), 1))], axis=1)
    width = features.shape[1]
    products = (features[:, :, None] * features[:, None, :]).reshape(len(others), width * width)
    left = np.asarray(weight @ products).reshape(-1, width, width) + pull
    right = np.asarray(target @ features) - np.asarray(weight @ (features * bias[:, None]))
    made: NDArray[np.float64] = np.linalg.solve(left, right[:, :, None])[:, :, 0]
    return made


def cross_validated(rated: Rated, users: int, items: int, shapes: tuple[Shape, ...], *, folds: int, seed: int) -> Shape:
    """Return the shape with the lowest weighted squared error on held-out ratings, self-normalised.

    The weights make that an estimate of the error on all pairs, so nothing but the given ratings is looked at.
    """
    fold = (rng.uniforms(seed, rng.stream("rating folds"), len(rated.user)) * folds).astype(np.int64)
    errors = []
    for shape in shapes:
        total = 0.0
        for one in range(folds):
            made = factorise_ratings(rated.take(fold != one), users, items, shape, seed=seed)
            held = rated.take(fold == one)
            total += float((held.weight * (made.predict(held.user, held.item) - held.rating) ** 2).sum())
        errors.append(total)
    return shapes[int(np.argmin(errors))]
