"""`Fidelity`: how far to trust a world, and how much personalisation can gain in it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import checks, rng
from treeward.core.artefact import StrPath, write_file
from treeward.core.checks import Count, Seed
from treeward.core.errors import InvalidArgument
from treeward.core.ranking import LIST, list_quality
from treeward.core.version import __version__
from treeward.simulate.fit_evidence import auc, log_loss, some_users
from treeward.simulate.world import World

_BINS = 10
_LISTS = (1, 10, 100)
_MOST_POINTS = 2_000
_FEW_RANDOM = 100


@dataclass(frozen=True)
class Bin:
    """Held-out events of about the same predicted chance."""

    predicted: float
    observed: float
    events: int


@dataclass(frozen=True)
class Account:
    """How well one way to score held-out events did."""

    name: str
    auc: float
    log_loss: float | None
    calibration_error: float | None
    """Mean distance of predicted and observed, over the bins."""
    popularity: float | None
    """Rank correlation of the items' predicted appeal with how many users rewarded them."""
    calibration: tuple[Bin, ...] = ()
    hit_rate: float | None = None
    """HR@k of held-out rewards among all items that the user did not reward in training ..."""
    ndcg: float | None = None
    """... and NDCG@k; see `treeward.core.ranking`. Neither is known of a world that an earlier version saved."""


@dataclass(frozen=True)
class Spread:
    """Mean reward of a list of `size` items: each user's own best, the best list for all users, a random one."""

    size: int
    own: float
    common: float
    random: float


@dataclass(frozen=True)
class Fidelity:
    """The figures of a world; `save` writes them as a page or as JSON."""

    users: int
    items: int
    looked_at: int
    """Users whose probabilities were computed for every item, for the spread."""
    provenance: Mapping[str, Any]
    accounts: tuple[Account, ...]
    """Of a learned world: with weights, without, popularity alone, a constant. Of another: none."""
    spread: tuple[Spread, ...]
    gains: tuple[float, ...] = field(repr=False)
    """For each of these users: how much more their best item earns than the best common one."""
    points: Mapping[str, list[float]] = field(repr=False)
    """Of some items: rewarded, chance, and perhaps unweighted."""
    notes: tuple[str, ...] = ()
    """In words, what bias of the log the weights cannot have removed."""
    ranked: int = 0
    """Users whose held-out rewards were looked for in rankings of all items."""
    count: int = LIST
    """The k of HR@k and NDCG@k."""

    def json(self) -> bytes:
        """Return all of it as JSON."""
        told = {**asdict(self), "treeward": __version__}
        return msgspec.json.format(msgspec.json.encode(told), indent=1)

    def save(self, path: StrPath) -> Path:
        """Write a page (.html) or JSON (.json) and return the path."""
        from treeward.simulate.fidelity_page import render

        kinds = {".html": lambda: render(self), ".json": self.json}
        write = kinds.get(Path(path).suffix.lower())
        if write is None:
            raise InvalidArgument("Fidelity.save", "path", "a file ending in .html or .json", str(path))
        return write_file(path, write())


@checks.checked("World.fidelity")
def fidelity(world: World, users: Count = 500, seed: Seed = 0, count: Count = LIST) -> Fidelity:
    """Return the figures of a world; `World.fidelity` documents the parameters."""
    chosen = some_users(world.users, users, seed)
    spread, gains = _spread(world, chosen)
    return Fidelity(
        world.users,
        len(world.catalogue),
        len(chosen),
        world.provenance,
        _accounts(world, count),
        spread,
        tuple(gains.tolist()),
        _points(world, seed),
        _notes(world.provenance),
        _ranked(world),
        count,
    )


def _notes(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the weights of a learned world cannot have removed."""
    exposure, events = told.get("exposure"), told.get("random")
    random = "; only ratings or clicks on items shown at random can tell (random=)"
    if exposure == "popularity":
        return (
            "Propensities come from popularity, which is merit as well as exposure. If users chose these items "
            f"themselves, this log cannot be debiased without random exposure{random}.",
        )
    if exposure == "impressions" and not told.get("impressions", True):
        return (
            "Propensities assume that a system showed the items. If users chose what they rated, they chose what they "
            f"like, and this log cannot be debiased without random exposure{random}.",
        )
    if exposure == "features" and not events:
        return (
            "Propensities depend on features, not on the answer. If users rate what they like, this log cannot be "
            f"debiased without random exposure{random}.",
        )
    if exposure in ("rating", "both") and events is not None and events < _FEW_RANDOM:
        return (f"Propensities come from only {events} random answers: fewer than {_FEW_RANDOM} say little.",)
    return ()


def _ranked(world: World) -> int:
    """Return how many users have rewards in the rankings."""
    places = None if world.evidence is None else world.evidence.places("chance")
    return 0 if places is None else int(places.user.max(initial=-1)) + 1


def _accounts(world: World, count: int) -> tuple[Account, ...]:
    if world.evidence is None:
        return ()
    held, items = world.evidence.held_out, world.evidence.exposure
    users = _ranked(world)
    rewards = held["reward"].to_numpy()
    weighted = world.provenance.get("exposure") != "none"
    names = {"chance": "with weights" if weighted else "without weights", "unweighted": "without weights"}

    def lists(name: str) -> tuple[float, float] | tuple[None, None]:
        places = None if world.evidence is None else world.evidence.places(name)
        return (None, None) if places is None else list_quality(places, users, count).mean()

    made = []
    for column, name in names.items():
        if column in held.columns:
            chances = held[column].to_numpy()
            bins = calibration(chances, rewards)
            off = sum(abs(one.predicted - one.observed) * one.events for one in bins) / len(rewards)
            rank = _rank_correlation(items[column], items["rewarded"])
            scores = auc(chances, rewards), log_loss(chances, rewards)
            made.append(Account(name, *scores, off, rank, bins, *lists(column)))
    popular, base = held["popular"].to_numpy(), float(rewards.mean())
    made.append(Account("popularity alone", auc(popular, rewards), None, None, 1.0, (), *lists("popular")))
    constant = np.full(len(rewards), base)
    made.append(Account("the same chance for all", 0.5, log_loss(constant, rewards), 0.0, None, (), *lists("none")))
    return tuple(made)


def calibration(chances: NDArray[np.float64], rewards: NDArray[np.float32], bins: int = _BINS) -> tuple[Bin, ...]:
    """Return bins of equally many events, from the least likely to the likeliest.

    Examples
    --------
    >>> calibration(np.array([0.1, 0.1, 0.6, 0.6]), np.array([0, 0, 1, 0], dtype=np.float32), bins=2)
    (Bin(predicted=0.1, observed=0.0, events=2), Bin(predicted=0.6, observed=0.5, events=2))
    """
    mixed = rng.sample(0, rng.stream("calibration"), len(chances), len(chances))  # equal chances in no order of rewards
    order = mixed[np.argsort(chances[mixed], kind="stable")]
    pieces = [piece for piece in np.array_split(order, bins) if len(piece)]
    return tuple(Bin(float(chances[piece].mean()), float(rewards[piece].mean()), len(piece)) for piece in pieces)


def _rank_correlation(one: pl.Series, other: pl.Series) -> float | None:
    """Return Spearman's correlation; None where one of them is constant."""
    if one.n_unique() < 2 or other.n_unique() < 2:
        return None
    return float(np.corrcoef(one.rank().to_numpy(), other.rank().to_numpy())[0, 1])


def _spread(world: World, chosen: NDArray[np.int64]) -> tuple[tuple[Spread, ...], NDArray[np.float64]]:
    """Return the spread over the chosen users, and the gain of each."""
    sizes = [size for size in _LISTS if size <= len(world.catalogue)]
    appeal = np.mean([world.probabilities(user) for user in chosen.tolist()], axis=0)
    common = np.argsort(-appeal, kind="stable")[: sizes[-1]]
    rows = []
    for user in chosen.tolist():
        chances = world.probabilities(user).astype(np.float64)
        best = -np.sort(-np.partition(chances, len(chances) - sizes[-1])[len(chances) - sizes[-1] :])
        shared = chances[common]
        rows.append([(best[:size].mean(), shared[:size].mean(), chances.mean()) for size in sizes])
    table = np.array(rows)
    means = table.mean(axis=0)
    spread = tuple(Spread(size, *means[index].tolist()) for index, size in enumerate(sizes))
    return spread, table[:, 0, 0] - table[:, 0, 1]


def _points(world: World, seed: int) -> dict[str, list[float]]:
    if world.evidence is None:
        return {}
    items = world.evidence.exposure
    rows = some_users(items.height, _MOST_POINTS, seed)
    names = [name for name in ("rewarded", "chance", "unweighted") if name in items.columns]
    return {name: items[name].to_numpy()[rows].astype(float).tolist() for name in names}
