"""`World`: users and items whose tastes and appeal are known, so that any recommendation can be answered."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.core import checks, rng
from treeward.core.compiled import tight
from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.synthetic import synthetic_catalogue
from treeward.tree.rows import Rows

_HIDDEN = 8


class Tastes(NamedTuple):
    """The arrays behind a world: P(reward) = sigmoid(user . item + user bias + item bias)."""

    users: Floats
    items: Floats
    user_bias: Floats
    item_bias: Floats


class World:
    """A catalogue and the true tastes of users for its items.

    Parameters
    ----------
    catalogue
        What policies may see of the items.
    users, items
        (users, k) and (items, k): the true vectors, which policies never see.
    user_bias, item_bias
        One number a user and an item.
    """

    def __init__(
        self, catalogue: Catalogue, users: ArrayLike, items: ArrayLike, user_bias: ArrayLike, item_bias: ArrayLike
    ) -> None:
        owner = "World"
        people, things = checks.vectors(owner, users, "users"), checks.vectors(owner, items, "items")
        if things.shape != (len(catalogue), people.shape[1]):
            wanted = f"of shape ({len(catalogue)}, {people.shape[1]})"
            raise InvalidArgument(owner, "items", wanted, f"shape {things.shape}")
        self.catalogue = catalogue
        self.tastes = Tastes(
            people, things, _bias("user_bias", user_bias, len(people)), _bias("item_bias", item_bias, len(things))
        )

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.tastes.users)

    def __repr__(self) -> str:
        return f"World({self.users:,} users, {len(self.catalogue):,} items)"

    def probabilities(self, user: int) -> NDArray[np.float32]:
        """Return the probability of a reward for every item, for one user."""
        people, things, user_bias, item_bias = self.tastes
        with np.errstate(over="ignore"):
            logits = things @ people[user] + item_bias + user_bias[user]
            chances: NDArray[np.float32] = (1 / (1 + np.exp(-logits))).astype(np.float32)
        return chances

    def chances(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of a reward for pairs of a user and an item's row."""
        who, rows = _numbers("users", users, self.users), _numbers("items", items, len(self.catalogue))
        if len(who) != len(rows):
            raise InvalidArgument("World.chances", "items", f"{len(who)} of them, one a user", f"{len(rows)}")
        made = np.empty(len(who))
        _fill_chances(self.tastes, who, rows, made)
        return made

    def base_rate(self, users: int = 100) -> float:
        """Return the mean reward of a random item, over the first `users` users."""
        return float(np.mean([self.probabilities(user).mean() for user in range(min(users, self.users))]))

    @classmethod
    def synthetic(cls, items: int = 100_000, users: int = 1_000, dim: int = 32, seed: int = 0) -> Self:
        """Make up a world: topics and subtopics, users who like a few items and their like, popular items and others.

        The true item vectors are a noisy version of the ones policies see, with 8 dimensions that they do not see.

        Examples
        --------
        >>> world = World.synthetic(items=2_000, users=10, dim=8, seed=1)
        >>> world
        World(10 users, 2,000 items)
        >>> 0.02 < world.base_rate() < 0.2
        True
        """
        checks.integer("World.synthetic", "users", users, low=1)
        catalogue = synthetic_catalogue(items, dim, seed)

        def noise(name: str, rows: int, columns: int) -> Floats:
            drawn = rng.normals(seed, rng.stream("world", name), rows * columns)
            return drawn.astype(np.float32).reshape(rows, columns)

        seen = Rows(catalogue.vectors, normalize=True).take(slice(None))
        blurred = seen + np.float32(0.3 / dim**0.5) * noise("blur", items, dim)
        things = np.concatenate([blurred, np.float32(0.4 / _HIDDEN**0.5) * noise("hidden", items, _HIDDEN)], axis=1)
        # Each user has three favourites, the first liked most.
        picks = (rng.uniforms(seed, rng.stream("world", "favourites"), 3 * users) * items).astype(np.int64)
        favourites = things[picks].reshape(users, 3, -1)
        people = np.einsum("k,ukd->ud", np.array([3.5, 2.5, 1.5], dtype=np.float32), favourites)
        popularity = np.float32(0.5) * noise("popularity", items, 1)[:, 0]
        patience = np.float32(-3.0) + np.float32(0.5) * noise("patience", users, 1)[:, 0]
        return cls(catalogue, people, things, patience, popularity)


@tight
def chance(tastes: Tastes, user: int, row: int) -> float:
    """Return the probability of a reward for one user and one item."""
    logit = tastes.user_bias[user] + tastes.item_bias[row]
    for j in range(tastes.users.shape[1]):
        logit += tastes.users[user, j] * tastes.items[row, j]
    return float(1.0 / (1.0 + np.exp(-np.float64(logit))))


@tight
def _fill_chances(
    tastes: Tastes, users: NDArray[np.integer], rows: NDArray[np.integer], out: NDArray[np.float64]
) -> None:
    for i in range(len(out)):
        out[i] = chance(tastes, users[i], rows[i])


def _numbers(parameter: str, value: ArrayLike, count: int) -> NDArray[np.int64]:
    made = np.asarray(value)
    if made.ndim != 1 or made.dtype.kind not in "iu" or (len(made) and not 0 <= made.min() <= made.max() < count):
        raise InvalidArgument("World.chances", parameter, f"a list of integers from 0 to {count - 1}", value)
    return made.astype(np.int64)


def _bias(parameter: str, value: ArrayLike, count: int) -> Floats:
    made = np.asarray(value, dtype=np.float32)
    if made.shape != (count,) or not np.isfinite(made).all():
        raise InvalidArgument("World", parameter, f"{count} finite numbers", f"shape {made.shape}")
    return made
