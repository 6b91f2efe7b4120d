"""How well what was collected tells a user's tastes: a factorisation learns from it, and is tried on other clicks."""

from typing import NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import rankdata

from treeward.core import artefact, rng
from treeward.core.artefact import StrPath
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Stage, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.learn.clicks import Clicks, clicks_of
from treeward.learn.factorise import Events, factorise

FORMAT, VERSION = "treeward.past", 1
_OWNER = "experiment closed-loop"
_VALID = 0.1
_DECAY, _RATE, _PASSES, _PATIENCE, _DIM = 0.5, 0.004, 60, 4, 32


class Past(NamedTuple):
    """What is known before anything is recommended: what others clicked, and what those to be tried clicked."""

    old_user: NDArray[np.int64]
    old_item: NDArray[np.int64]
    """Distinct clicks of training users, numbered from 0."""
    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Distinct clicks of the users to be tried: user i's are rows[ends[i] : ends[i + 1]]."""
    items: int

    def save(self, path: StrPath) -> None:
        """Write it to a directory, checksummed."""
        arrays = {name: value for name, value in self._asdict().items() if name != "items"}
        told = {"items": self.items}
        artefact.write(path, FORMAT, VERSION, artefact.Contents(arrays, {}, {}, told), overwrite=True)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote."""
        held = artefact.read(path, FORMAT, VERSION)
        return cls(**{name: np.array(array) for name, array in held.arrays.items()}, items=held.info["items"])

    @property
    def users(self) -> int:
        """How many are to be tried."""
        return len(self.ends) - 1

    def clicked(self, user: int) -> NDArray[np.int64]:
        """Return somebody's clicks."""
        return self.rows[self.ends[user] : self.ends[user + 1]]


class Trial(NamedTuple):
    """A repeat, the same for everybody who is tried in it."""

    start: NDArray[np.int64]
    """(users, k): clicks each user starts from."""
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    clicked: NDArray[np.bool_]
    """The other clicks of each user, and as many items they never clicked."""


class Verdict(NamedTuple):
    """How well other clicks were foreseen."""

    log_loss: float
    auc: float


def gini(groups: NDArray[np.int64]) -> float:
    """Return the Gini impurity: how likely two draws are of different groups; what is of none (-1) is left out.

    Examples
    --------
    >>> gini(np.array([0, 0, 1, 1])), gini(np.array([3, 3]))
    (0.5, 0.0)
    """
    _, counts = np.unique(groups[groups >= 0], return_counts=True)
    return float(1 - ((counts / counts.sum()) ** 2).sum()) if len(counts) else 0.0


def grouped(catalogue: Catalogue) -> NDArray[np.int64]:
    """Return the number of every item's category; -1 for those without one."""
    if catalogue.categories is None:
        return np.full(len(catalogue), -1, dtype=np.int64)
    _, group = np.unique(catalogue.categories.cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    return np.where(catalogue.categories.is_null().to_numpy(), -1, group).astype(np.int64)


def eligible(clicks: Clicks, start: int) -> list[int]:
    """Return the users with more than `start` distinct clicks: some to start from, and some to be tried on."""
    return [user for user in range(len(clicks)) if len(np.unique(clicks.of(user))) > start]


def most_diverse(clicks: Clicks, users: list[int], catalogue: Catalogue, count: int) -> list[int]:
    """Return the users whose clicks are spread over the most categories, the most diverse first."""
    if catalogue.categories is None:
        rule = "with categories: who has the most diverse interests cannot be told without (Gini impurity)"
        raise InvalidArgument(_OWNER, "data", rule, "none; choose users at random: --pick random")
    group = grouped(catalogue)
    spread = np.array([gini(group[np.unique(clicks.of(user))]) for user in users])
    return [users[i] for i in np.argsort(-spread, kind="stable")[:count]]


def past_of(train: Interactions, tried: Clicks, chosen: list[int], catalogue: Catalogue) -> Past:
    """Return what is known before anything is recommended."""
    old = clicks_of(_OWNER, train, catalogue)
    user = np.repeat(np.arange(len(old)), np.diff(old.ends))
    pairs = np.unique(user * len(catalogue) + old.rows)
    mine = [np.unique(tried.of(user)) for user in chosen]
    ends = np.concatenate([[0], np.cumsum([len(some) for some in mine])])
    return Past(pairs // len(catalogue), pairs % len(catalogue), np.concatenate(mine), ends, len(catalogue))


def trial(past: Past, start: int, seed: int) -> Trial:
    """Draw the clicks every user starts from; the others, and as many items they never clicked, are for the end."""
    begun, user, item, clicked = [], [], [], []
    for who in range(past.users):
        mine = past.clicked(who)
        order = rng.sample(seed, rng.stream("start", who), len(mine), len(mine))
        begun.append(mine[order[:start]])
        left = mine[order[start:]]
        others = _never(past, mine, len(left), seed, who)
        user.append(np.full(len(left) + len(others), who))
        item += [left, others]
        clicked.append(np.arange(len(left) + len(others)) < len(left))
    return Trial(np.stack(begun), np.concatenate(user), np.concatenate(item), np.concatenate(clicked))


def _never(past: Past, mine: NDArray[np.int64], count: int, seed: int, who: int) -> NDArray[np.int64]:
    """Draw items somebody never clicked, all different, as far as there are so many."""
    if past.items <= len(mine):
        raise DataError("somebody clicked every item there is: nothing is left to compare with")
    drawn = rng.sample(seed, rng.stream("never", who), past.items, min(past.items, count + len(mine)))
    return drawn[~np.isin(drawn, mine)][:count]


class Judging(NamedTuple):
    """How a factorisation is trained."""

    negatives: int
    """Items drawn for every old click, as for the world."""
    seed: int
    device: str


def judge(past: Past, tried: Trial, shown: NDArray[np.int64], rewards: Floats, options: Judging) -> Verdict:
    """Train a factorisation on old clicks and what was collected; return how well it foresees the other clicks.

    Old clicks come with some items each that their user did not click, drawn at random: as many as set the base
    rate of the world that answered what was shown. The other clicks come with only one each, so chances are told at
    that rate: the logarithm of how many there are a click is added to the logits. Where an arm showed an item that its
    user is tried on, the answer is left out: nobody is to be told what they will be asked.

    Parameters
    ----------
    past, tried
        What was known, and where users started.
    shown, rewards
        (users, rounds): what was recommended, and what came of it.
    options
        Of the factorisation.
    """
    negatives, seed, device = options
    first, count = int(past.old_user.max()) + 1, len(past.old_user)
    drawn = (rng.uniforms(seed, rng.stream("judge", "others"), negatives * count) * past.items).astype(np.int64)
    whose = np.repeat(past.old_user, negatives)
    fresh = ~np.isin(whose * past.items + drawn, past.old_user * past.items + past.old_item)
    users, rounds = shown.shape
    new = first + np.arange(users)
    met = np.repeat(np.arange(users), rounds) * past.items + shown.ravel()
    asked = np.isin(met, tried.user * past.items + tried.item)
    parts = [
        (past.old_user, past.old_item, np.ones(count)),
        (whose[fresh], drawn[fresh], np.zeros(int(fresh.sum()))),
        (np.repeat(new, tried.start.shape[1]), tried.start.ravel(), np.ones(tried.start.size)),
        (np.repeat(new, rounds)[~asked], shown.ravel()[~asked], rewards.ravel()[~asked]),
    ]
    user, item, reward = (np.concatenate(column) for column in zip(*parts, strict=True))
    held = rng.uniforms(seed, rng.stream("judge", "held out"), len(user)) < _VALID

    def events(which: NDArray[np.bool_]) -> Events:
        rewarded = reward[which].astype(np.float32)
        return Events(user[which].astype(np.int64), item[which].astype(np.int64), rewarded, np.ones_like(rewarded))

    made = factorise(
        events(~held), events(held), first + users, past.items, _DIM, decay=_DECAY, rate=_RATE, passes=_PASSES,
        patience=_PATIENCE, seed=seed, device=device, stage=Stage(silent, "judging", _PASSES), owner=_OWNER,
    )  # fmt: skip
    who = first + tried.user
    logits = (made.users[who] * made.items[tried.item]).sum(axis=1) + made.user_bias[who] + made.item_bias[tried.item]
    logits = logits + np.float32(np.log(max(int(fresh.sum()), 1) / count))
    return Verdict(log_loss(logits, tried.clicked), auc(logits, tried.clicked))


def log_loss(logits: Floats, truth: NDArray[np.bool_]) -> float:
    """Return the mean surprise, in nats."""
    signed = np.where(truth, logits, -logits).astype(np.float64)
    return float(np.logaddexp(0, -signed).mean())


def auc(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """Return how likely a click is ranked above a non-click; ties count half.

    Examples
    --------
    >>> auc(np.array([3.0, 2.0, 2.0, 1.0]), np.array([True, True, False, False]))
    0.875
    """
    positive, negative = int(truth.sum()), int((~truth).sum())
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))
