"""How good user profiles become from what an arm collected: a judge learns from it and predicts other clicks."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import artefact, rng
from treeward.core.artefact import StrPath
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Stage, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.experiment.spec import Judge
from treeward.learn.clicks import Clicks, clicks_of
from treeward.learn.factorise import Events, Factors, factorise
from treeward.simulate.fit_evidence import auc
from treeward.simulate.world import World

FORMAT, VERSION = "treeward.past", 3
_OWNER = "experiment closed-loop"
_VALID = 0.1
_RATE, _PASSES, _PATIENCE, _DIM = 0.004, 60, 4, 32
_LABELLED, _LABELLED_SHARE = 100, 20
"""Per user, at most 100 items and at most a twentieth of the catalogue are drawn for the world to label. The judge
does not learn from those of them that an arm showed."""


class Past(NamedTuple):
    """What is known before anything is recommended: clicks and skips of training users, and of the tested users."""

    old_user: NDArray[np.int64]
    old_item: NDArray[np.int64]
    """Distinct clicks of training users, who are numbered from 0 ..."""
    old_shown: NDArray[np.bool_]
    """... whether each was a click on an impression, and not of a history ..."""
    skip_user: NDArray[np.int64]
    skip_item: NDArray[np.int64]
    """... and what they were shown and never clicked, where the log has impressions."""
    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Distinct clicks that the tested users may start from: user i's are rows[ends[i] : ends[i + 1]]. Where the log has
    impressions, those of the history; otherwise all."""
    asked_user: NDArray[np.int64]
    asked_item: NDArray[np.int64]
    asked_clicked: NDArray[np.bool_]
    """Where the log has impressions, those of the tested users: what they were shown, and whether they clicked it."""
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
        """How many users are tested."""
        return len(self.ends) - 1

    def clicked(self, user: int) -> NDArray[np.int64]:
        """Return the clicks that a user may start from."""
        return self.rows[self.ends[user] : self.ends[user + 1]]


class Samples(NamedTuple):
    """What a judge is tested on."""

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    clicked: NDArray[np.bool_]


class Trial(NamedTuple):
    """A repeat, the same for every arm."""

    start: NDArray[np.int64]
    """(users, k): clicks each user starts from."""
    samples: Samples
    """Other clicks of each user, with real skips or with as many items that they never clicked."""
    labelled: Samples
    """Items drawn uniformly, with clicks drawn from the world; empty without one."""


class Verdict(NamedTuple):
    """How well other clicks were predicted."""

    log_loss: float
    auc: float
    log_loss_world: float
    auc_world: float
    """The same for uniformly drawn items that the world labelled; nan without a world."""


def gini(groups: NDArray[np.int64]) -> float:
    """Return the Gini impurity: how likely two draws are of different groups; items of no group (-1) are left out.

    Examples
    --------
    >>> gini(np.array([0, 0, 1, 1])), gini(np.array([3, 3]))
    (0.5, 0.0)
    """
    _, counts = np.unique(groups[groups >= 0], return_counts=True)
    return float(1 - ((counts / counts.sum()) ** 2).sum()) if len(counts) else 0.0


def category_numbers(catalogue: Catalogue) -> NDArray[np.int64]:
    """Return the number of every item's category; -1 for those without one."""
    if catalogue.categories is None:
        return np.full(len(catalogue), -1, dtype=np.int64)
    _, group = np.unique(catalogue.categories.cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    return np.where(catalogue.categories.is_null().to_numpy(), -1, group).astype(np.int64)


def most_diverse(clicks: Clicks, users: list[int], catalogue: Catalogue, count: int) -> list[int]:
    """Return the users whose clicks are spread over the most categories, the most diverse first."""
    if catalogue.categories is None:
        rule = "with categories: without them, the diversity of interests (Gini impurity) is unknown"
        raise InvalidArgument(_OWNER, "data", rule, "none; choose users at random: --pick random")
    group = category_numbers(catalogue)
    spread = np.array([gini(group[np.unique(clicks.of(user))]) for user in users])
    return [users[i] for i in np.argsort(-spread, kind="stable")[:count]]


class Recorded(NamedTuple):
    """Clicks and impressions of the users who may be tested."""

    start: Clicks
    """What they may start from."""
    asked: Clicks | None
    """Impressions that they clicked, where the log has impressions ..."""
    skipped: Clicks | None
    """... and those that they did not."""


def recorded_clicks(log: Interactions, catalogue: Catalogue, samples: str) -> Recorded:
    """Return what the users of a log clicked, and what they skipped where it has impressions that may be used."""
    if samples == "impressions" and not log.has_impressions:
        rule = "auto or drawn: the log has no impressions (a history, and what was shown and skipped)"
        raise InvalidArgument(_OWNER, "samples", rule, samples)
    if samples == "drawn" or not log.has_impressions:
        return Recorded(clicks_of(_OWNER, log, catalogue), None, None)
    parts = log.impressions()
    skips = parts.skips.table.with_columns(pl.lit(1.0).alias("reward"))  # `clicks_of` groups what has a reward
    return Recorded(
        clicks_of(_OWNER, parts.history, catalogue),
        clicks_of(_OWNER, parts.clicks, catalogue),
        clicks_of(_OWNER, Interactions.of_table(skips), catalogue),
    )


def eligible(tested: Recorded, start: int) -> list[int]:
    """Return the users who have clicks to start from, and others to be tested on."""
    clicks = tested.start
    if tested.asked is None or tested.skipped is None:
        return [user for user in range(len(clicks)) if len(np.unique(clicks.of(user))) > start]
    shown = set(tested.asked.users.to_list()) & set(tested.skipped.users.to_list())
    names = clicks.users.to_list()
    return [user for user in range(len(clicks)) if names[user] in shown and len(np.unique(clicks.of(user))) >= start]


def build_past(train: Interactions, tested: Recorded, chosen: list[int], catalogue: Catalogue) -> Past:
    """Return what is known before anything is recommended."""
    old = clicks_of(_OWNER, train, catalogue)
    pairs = _distinct(old, np.arange(len(old)), len(catalogue))
    skipped = asked_pairs = asked_skips = np.zeros(0, dtype=np.int64)
    shown = np.zeros(len(pairs), dtype=np.bool_)
    if tested.asked is not None and tested.skipped is not None:
        others = recorded_clicks(train, catalogue, "impressions")
        assert others.asked is not None
        assert others.skipped is not None
        shown = np.isin(pairs, _distinct(others.asked, _numbers_in(others.asked, old.users), len(catalogue)))
        numbers = _numbers_in(others.skipped, old.users)
        skipped = np.setdiff1d(_distinct(others.skipped, numbers, len(catalogue)), pairs)
        names = tested.start.users[chosen]
        asked_pairs = _distinct(tested.asked, _numbers_in(tested.asked, names), len(catalogue))
        asked_skips = _distinct(tested.skipped, _numbers_in(tested.skipped, names), len(catalogue))
        known = _distinct(tested.start, _numbers_in(tested.start, names), len(catalogue))  # of the history
        asked_pairs = np.setdiff1d(asked_pairs, known)
        asked_skips = np.setdiff1d(asked_skips, np.concatenate([asked_pairs, known]))
    mine = [np.unique(tested.start.of(user)) for user in chosen]
    ends = np.concatenate([[0], np.cumsum([len(some) for some in mine])])
    asked = np.concatenate([asked_pairs, asked_skips])
    return Past(
        *np.divmod(pairs, len(catalogue)), shown, *np.divmod(skipped, len(catalogue)), np.concatenate(mine), ends,
        *np.divmod(asked, len(catalogue)), np.arange(len(asked)) < len(asked_pairs), len(catalogue),
    )  # fmt: skip


def _numbers_in(clicks: Clicks, names: pl.Series) -> NDArray[np.int64]:
    """Return the number that every user of `clicks` has among some names; -1 for those who are not there."""
    number = {name: at for at, name in enumerate(names.to_list())}
    return np.array([number.get(name, -1) for name in clicks.users.to_list()], dtype=np.int64)


def _distinct(clicks: Clicks, numbers: NDArray[np.int64], items: int) -> NDArray[np.int64]:
    """Return distinct pairs of a user's number and an item's row, as one integer each; users numbered -1 left out."""
    user = np.repeat(numbers, np.diff(clicks.ends))
    return np.unique((user * items + clicks.rows)[user >= 0])


def draw_trial(past: Past, start: int, seed: int, world: World | None = None, users: Sequence[int] = ()) -> Trial:
    """Draw the clicks every user starts from, and what judges are tested on.

    Parameters
    ----------
    past
        What is known.
    start
        Clicks that every user starts from.
    seed
        Of the repeat.
    world, users
        What labels uniformly drawn items, and which of its users are tested.
    """
    begun, user, item, clicked = [], [], [], []
    for who in range(past.users):
        mine = past.clicked(who)
        order = rng.sample(seed, rng.stream("start", who), len(mine), len(mine))
        begun.append(mine[order[:start]])
        if len(past.asked_user):
            continue
        left = mine[order[start:]]
        others = _never(past, mine, len(left), seed, who)
        user.append(np.full(len(left) + len(others), who))
        item += [left, others]
        clicked.append(np.arange(len(left) + len(others)) < len(left))
    begins = np.stack(begun)
    samples = Samples(past.asked_user, past.asked_item, past.asked_clicked)  # none of these is in the history
    if not len(past.asked_user):
        samples = Samples(np.concatenate(user), np.concatenate(item), np.concatenate(clicked))
    return Trial(begins, samples, _labelled(past, begins, seed, world, users))


def _labelled(past: Past, begins: NDArray[np.int64], seed: int, world: World | None, users: Sequence[int]) -> Samples:
    """Draw items uniformly for every user, and clicks on them from the world."""
    nothing = np.zeros(0, dtype=np.int64)
    if world is None:
        return Samples(nothing, nothing, nothing > 0)
    count = min(_LABELLED, max(1, past.items // _LABELLED_SHARE), past.items - begins.shape[1])
    rows = [_never(past, begins[who], count, seed, who, "labelled") for who in range(past.users)]
    user, item = np.repeat(np.arange(past.users), [len(some) for some in rows]), np.concatenate(rows)
    chances = world.chances(np.asarray(users)[user], item)
    return Samples(user, item, rng.uniforms(seed, rng.stream("labels"), len(item)) < chances)


def _never(
    past: Past, mine: NDArray[np.int64], count: int, seed: int, who: int, name: str = "never"
) -> NDArray[np.int64]:
    """Draw `count` different items that are not among `mine`, or fewer if there are not enough."""
    if past.items <= len(mine):
        raise DataError("a user clicked every item of the catalogue: none is left to compare with")
    drawn = rng.sample(seed, rng.stream(name, who), past.items, min(past.items, count + len(mine)))
    return drawn[~np.isin(drawn, mine)][:count]


def judge(
    past: Past, tried: Trial, shown: NDArray[np.int64], rewards: Floats, how: Judge, seed: int, device: str = "cpu"
) -> Verdict:
    """Train a factorisation on old clicks and what was collected; return how well it predicts the test samples.

    Old clicks come with `how.negatives` non-clicks each: clicks on impressions with logged skips, and with items drawn
    at random where there are too few; clicks of a history, and those of a log without impressions, with drawn ones. So
    neither kind of item is a non-click more often than the other. An arm that happened to show a test sample does not
    learn the answer: those rows are left out. A judge with biases learns the base rate of its training rows; for its
    LogLoss the logits are shifted to that of the samples. One without is taken as it is, as in the paper.

    Parameters
    ----------
    past, tried
        What was known, where users started, and the samples.
    shown, rewards
        (users, rounds): what was recommended, and the rewards.
    how
        The factorisation.
    seed, device
        Of the factorisation.
    """
    first, (whose, drawn) = int(past.old_user.max()) + 1, _non_clicks(past, how.negatives, seed)
    users, rounds = shown.shape
    new = first + np.arange(users)
    # One integer per pair of a user and an item, so that pairs can be compared as arrays.
    met = np.repeat(np.arange(users), rounds) * past.items + shown.ravel()
    asked = np.isin(
        met, np.concatenate([part.user * past.items + part.item for part in (tried.samples, tried.labelled)])
    )
    parts = [
        (past.old_user, past.old_item, np.ones(len(past.old_user))),
        (whose, drawn, np.zeros(len(whose))),
        (np.repeat(new, tried.start.shape[1]), tried.start.ravel(), np.ones(tried.start.size)),
        (np.repeat(new, rounds)[~asked], shown.ravel()[~asked], rewards.ravel()[~asked]),
    ]
    user, item, reward = (np.concatenate(column) for column in zip(*parts, strict=True))
    held = rng.uniforms(seed, rng.stream("judge", "held out"), len(user)) < _VALID

    def events(which: NDArray[np.bool_]) -> Events:
        rewarded = reward[which].astype(np.float32)
        return Events(user[which].astype(np.int64), item[which].astype(np.int64), rewarded, np.ones_like(rewarded))

    made = factorise(
        events(~held), events(held), first + users, past.items, _DIM, decay=how.decay, rate=_RATE, passes=_PASSES,
        patience=_PATIENCE, seed=seed, device=device, stage=Stage(silent, "judging", _PASSES), biases=how.biases,
        owner=_OWNER,
    )  # fmt: skip
    ratio = max(len(whose), 1) / len(past.old_user) if how.biases else 0.0
    return Verdict(*_tested(made, first, tried.samples, ratio), *_tested(made, first, tried.labelled, ratio))


def _non_clicks(past: Past, negatives: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return users and items of non-clicks: `negatives` per old click."""
    wanted = negatives * int(past.old_shown.sum())
    logged = rng.subset(seed, rng.stream("judge", "skips"), len(past.skip_user), wanted)
    lacking = np.repeat(past.old_user[past.old_shown], negatives)[len(logged) :]
    whose = np.concatenate([np.repeat(past.old_user[~past.old_shown], negatives), lacking])
    drawn = (rng.uniforms(seed, rng.stream("judge", "others"), len(whose)) * past.items).astype(np.int64)
    clicked, skipped = past.old_user * past.items + past.old_item, past.skip_user * past.items + past.skip_item
    fresh = ~np.isin(whose * past.items + drawn, np.concatenate([clicked, skipped]))
    whose, drawn = whose[fresh], drawn[fresh]
    return np.concatenate([past.skip_user[logged], whose]), np.concatenate([past.skip_item[logged], drawn])


def _tested(made: Factors, first: int, samples: Samples, ratio: float) -> tuple[float, float]:
    """Return LogLoss and AUC; `ratio` is that of non-clicks to clicks in training, 0 where logits stay as they are."""
    clicks = int(samples.clicked.sum())
    if not 0 < clicks < len(samples.clicked):
        return float("nan"), float("nan")
    who = first + samples.user
    logits = (made.users[who] * made.items[samples.item]).sum(axis=1)
    logits = logits + made.user_bias[who] + made.item_bias[samples.item]
    shift = np.log(ratio) - np.log((len(samples.clicked) - clicks) / clicks) if ratio else 0.0
    return log_loss(logits + np.float32(shift), samples.clicked), auc(logits, samples.clicked)


def log_loss(logits: Floats, truth: NDArray[np.bool_]) -> float:
    """Return the mean negative log-likelihood, in nats."""
    signed = np.where(truth, logits, -logits).astype(np.float64)
    return float(np.logaddexp(0, -signed).mean())
