"""What a learned world was tested on: events it has not seen, and the exposure of items."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.ranking import Places, places_among_all
from treeward.core.types import AnyArray, Floats

if TYPE_CHECKING:
    from treeward.simulate.fit import Fitted
    from treeward.simulate.world import World

_MOST_ROWS = 200_000
_MOST_CHANCES = 20_000_000
_LEAST_RANKED = 20


class Evidence(NamedTuple):
    """Tables that are kept with a learned world; columns called `unweighted` come from its twin without weights."""

    held_out: pl.DataFrame
    """Events not learned from: reward, chance, popular (how many users rewarded the item), and perhaps unweighted."""
    exposure: pl.DataFrame
    """Of every item: shown, rewarded, propensity, chance (the mean over some users), and perhaps unweighted."""
    ranking: pl.DataFrame | None = None
    """Of every held-out reward of some users: the user's number, and its place in rankings of all items that the user
    did not reward in training: how many score higher and as much, by chance, popular, none (in no order), and perhaps
    unweighted. None: of a world that was saved by an earlier version."""

    def places(self, name: str) -> Places | None:
        """Return the places by one of the scores, if they are known."""
        if self.ranking is None or f"{name}_above" not in self.ranking.columns:
            return None
        return Places(*(self.ranking[column].to_numpy() for column in ("user", f"{name}_above", f"{name}_equal")))

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
    return Evidence(pl.DataFrame(tried), pl.DataFrame(items), _ranking(made, popular, world, twin))


def _ranking(made: "Fitted", popular: NDArray[np.int64], world: "World", twin: "World | None") -> pl.DataFrame:
    """Return where the held-out rewards of some users are in rankings of all items not rewarded in training."""
    items = len(popular)
    known, held = (
        np.unique(part.user[part.reward > 0] * items + part.item[part.reward > 0])
        for part in (made.train, made.held_out)
    )
    people = np.unique(held // items)
    chosen = people[some_users(len(people), max(_LEAST_RANKED, _MOST_CHANCES // items), 0)]
    parts = []
    for number, user in enumerate(chosen.tolist()):
        seen, wanted = (_of(pairs, user, items) for pairs in (known, held))
        ways: dict[str, AnyArray] = {"popular": popular, "none": np.zeros(items)}
        ways |= {name: one.probabilities(user) for name, one in (("chance", world), ("unweighted", twin)) if one}
        part = {"user": np.full(len(wanted), number)}
        for name, score in ways.items():
            scores = score.astype(np.float64)
            scores[seen] = -np.inf
            above, equal = places_among_all(scores[None], np.zeros(len(wanted), dtype=np.int64), wanted)
            part |= {f"{name}_above": above, f"{name}_equal": equal}
        parts.append(part)
    return pl.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _of(pairs: NDArray[np.int64], user: int, items: int) -> NDArray[np.int64]:
    """Return the items of a user, of sorted pairs."""
    begin, end = np.searchsorted(pairs, [user * items, (user + 1) * items])
    return pairs[begin:end] - user * items


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
