"""What a learned world was tested on: events it has not seen, and the exposure of items."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.types import AnyArray, Floats

if TYPE_CHECKING:
    from treeward.simulate.fit import Fitted
    from treeward.simulate.world import World

_MOST_ROWS = 200_000
_MOST_CHANCES = 20_000_000


class Evidence(NamedTuple):
    """Tables that are kept with a learned world; columns called `unweighted` come from its twin without weights."""

    held_out: pl.DataFrame
    """Events not learned from: reward, chance, popular (how many users rewarded the item), and perhaps unweighted."""
    exposure: pl.DataFrame
    """Of every item: shown, rewarded, propensity, chance (the mean over some users), and perhaps unweighted."""

    def summary(self) -> dict[str, Any]:
        """Return the main figures, for `World.provenance`."""
        held = self.held_out
        rewards = held["reward"].to_numpy()
        told: dict[str, Any] = {
            "held_out": held.height,
            "auc": auc(held["chance"].to_numpy(), rewards),
            "auc_popularity": auc(held["popular"].to_numpy(), rewards),
            "log_loss": log_loss(held["chance"].to_numpy(), rewards),
        }
        if "unweighted" in held.columns:
            told["auc_unweighted"] = auc(held["unweighted"].to_numpy(), rewards)
            told["log_loss_unweighted"] = log_loss(held["unweighted"].to_numpy(), rewards)
        return told


def gather(made: "Fitted", world: "World", twin: "World | None") -> Evidence:
    """Return what a fitted world, and its twin if there is one, predict for the held-out events."""
    held = made.held_out
    rows = rng.subset(0, rng.stream("evidence"), len(held.user), _MOST_ROWS)
    popular = np.bincount(made.train.item[made.train.reward > 0], minlength=len(made.liked))
    user, item = held.user[rows], held.item[rows]
    tried = {"reward": held.reward[rows], "chance": world.chances(user, item), "popular": popular[item]}
    items = {"shown": made.shown, "rewarded": made.liked, "propensity": made.propensity, "chance": _appeal(world)}
    if twin is not None:
        tried["unweighted"], items["unweighted"] = twin.chances(user, item), _appeal(twin)
    return Evidence(pl.DataFrame(tried), pl.DataFrame(items))


def some_users(users: int, wanted: int, seed: int) -> NDArray[np.int64]:
    """Return some users, drawn at random, in order."""
    return rng.subset(seed, rng.stream("some users"), users, wanted)


def _appeal(world: "World") -> NDArray[np.float64]:
    """Return every item's mean chance over some users."""
    items = len(world.catalogue)
    total = np.zeros(items)
    chosen = some_users(world.users, max(20, min(500, _MOST_CHANCES // items)), 0)
    for user in chosen.tolist():
        total += world.probabilities(user)
    return total / len(chosen)


def auc(scores: NDArray[np.floating], rewards: AnyArray) -> float:
    """Return the probability that a positive scores above a negative; ties count half.

    Examples
    --------
    >>> auc(np.array([0.1, 0.9, 0.5, 0.5]), np.array([0, 1, 1, 0], dtype=np.float32))
    0.875
    """
    positive = np.asarray(rewards) > 0
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    ups = float(middle[ranks][positive].sum())
    up, down = int(positive.sum()), int((~positive).sum())
    return (ups - up * (up + 1) / 2) / (up * down) if up and down else float("nan")


def log_loss(chances: NDArray[np.float64], rewards: Floats) -> float:
    """Return the mean negative log-likelihood."""
    told = np.clip(chances, 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(np.asarray(rewards) > 0, np.log(told), np.log1p(-told))))
