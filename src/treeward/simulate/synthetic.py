"""The parts of synthetic worlds: a catalogue, and the true tastes of users for its items.

The constants of `like_logs` are chosen by statistics of worlds that `World.fit` learned from public logs. What policies
earn was no criterion (`benchmarks/synthetic.py`, `docs/worlds.md`).
"""

from typing import NamedTuple

import numpy as np

from treeward.core import rng
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.synthetic import synthetic_catalogue
from treeward.tree.row_groups import Rows

_HIDDEN = 8
_HIDDEN_SHARE = 0.3
"""Of the variance of personal taste."""
_TASTE, _FAVOURITES = 0.3, (0.8, 0.5, 0.33)
"""The size of personal taste, and how much each of a user's favourites counts."""
_STRENGTH, _VIGOUR = 0.5, 0.35
"""How much items and users differ in how strong opinions are: standard deviations of logarithms."""
_COMMON = 0.15
"""The size of the taste that all users share."""
_POPULARITY, _CHANCE = 0.25, 0.1
"""How much an item's appeal goes with its strength, and how much is its own."""
_RELUCTANCE, _MOOD = -1.8, 0.14
"""The mean and the standard deviation of users' biases."""

_WAVES = 64


class Parts(NamedTuple):
    """The arguments of `World`."""

    catalogue: Catalogue
    users: Floats
    items: Floats
    user_bias: Floats
    item_bias: Floats


def _noise(seed: int, name: str, rows: int, columns: int) -> Floats:
    drawn = rng.normals(seed, rng.stream("world", name), rows * columns)
    return drawn.astype(np.float32).reshape(rows, columns)


def _favourites(seed: int, users: int, items: int, each: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return (rng.uniforms(seed, rng.stream("world", "favourites"), each * users) * items).astype(np.int64)


def _falling(directions: int, share: float) -> Floats:
    """Return how much each direction matters, the first ones most, to make up a share of the variance of tastes.

    Items and users are both as wide in a direction as it matters, so that the fourth powers add up to the share.
    """
    fourth = 1 / np.arange(1, directions + 1, dtype=np.float64) ** 2
    made: Floats = ((share * fourth / fourth.sum()) ** 0.25).astype(np.float32)
    return made


def like_logs(items: int, users: int, dim: int, seed: int) -> Parts:
    """Return a world with the statistics of public logs.

    The logit of a reward is strength(item) * taste(user) . item + bias(user) + bias(item). `item` has the directions
    that policies see, of which the first matter most, and hidden ones. Strength is log-normal, and strong items are
    popular items: a few are liked by many and strongly liked by some, most leave everybody cold.
    """
    catalogue = synthetic_catalogue(items, dim, seed, loose=True)
    seen = Rows(catalogue.vectors, normalize=True).take(slice(None))
    things = np.concatenate([seen, _noise(seed, "hidden", items, _HIDDEN)], axis=1)
    things -= things.mean(axis=0)
    things /= np.maximum(things.std(axis=0), np.float32(1e-6))
    matters = np.concatenate([_falling(dim, 1 - _HIDDEN_SHARE), _falling(_HIDDEN, _HIDDEN_SHARE)])
    things *= matters
    picked = things[_favourites(seed, users, items, len(_FAVOURITES))].reshape(users, len(_FAVOURITES), -1)
    people = np.einsum("k,ukd->ud", np.array(_FAVOURITES, dtype=np.float32), picked)
    people *= np.float32(_TASTE) * np.exp(np.float32(_VIGOUR) * _noise(seed, "vigour", users, 1))
    people[:, :dim] += np.float32(_COMMON) * matters[:dim] * _noise(seed, "common", 1, dim)
    strength = np.exp(np.float32(_STRENGTH) * _noise(seed, "strength", items, 1) - np.float32(_STRENGTH**2 / 2))
    popular = np.float32(_POPULARITY) * (strength - 1) + np.float32(_CHANCE) * _noise(seed, "popularity", items, 1)
    patience = np.float32(_RELUCTANCE) + np.float32(_MOOD) * _noise(seed, "patience", users, 1)
    return Parts(catalogue, people, strength * things, patience[:, 0], popular[:, 0])


def vivid(items: int, users: int, dim: int, seed: int, nonlinear: float = 0.0) -> Parts:
    """Return a world of tight topics and tastes that few events reveal, calibrated to no log.

    Tastes are linear in what policies see, but for a blur and the hidden directions; or, with `nonlinear`, no linear
    function of what policies see explains them.
    """
    catalogue = synthetic_catalogue(items, dim, seed)
    seen = Rows(catalogue.vectors, normalize=True).take(slice(None))
    if nonlinear:
        turns = rng.uniforms(seed, rng.stream("world", "phases"), _WAVES).astype(np.float32)
        angles = np.float32(nonlinear) * (seen @ _noise(seed, "waves", dim, _WAVES)) + np.float32(2 * np.pi) * turns
        seen = np.float32((2 / _WAVES) ** 0.5) * np.cos(angles)
    wide = seen.shape[1]
    blurred = seen + np.float32(0.3 / wide**0.5) * _noise(seed, "blur", items, wide)
    hidden = np.float32(0.4 / _HIDDEN**0.5) * _noise(seed, "hidden", items, _HIDDEN)
    things = np.concatenate([blurred, hidden], axis=1)
    # Each user has three favourites, the first liked most.
    favourites = things[_favourites(seed, users, items, 3)].reshape(users, 3, -1)
    people = np.einsum("k,ukd->ud", np.array([3.5, 2.5, 1.5], dtype=np.float32), favourites)
    popularity = np.float32(0.5) * _noise(seed, "popularity", items, 1)[:, 0]
    patience = np.float32(-3.0) + np.float32(0.5) * _noise(seed, "patience", users, 1)[:, 0]
    return Parts(catalogue, people, things, patience, popularity)
