"""`experiment changing-catalogue`: items come and go every day, and several ways to keep the tree."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.crowd import Crowd
from treeward.core import artefact, checks, rng
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, Number, Seed, Whole
from treeward.core.errors import InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.core.tasks import Share
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.experiment import run_folder
from treeward.explorer.explorer import Explorer
from treeward.policy.beam import Beam
from treeward.simulate.synthetic import vivid
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

KIND = run_folder.Kind("treeward.living", 1)
_EARLIER, _SHOWINGS = 2_000, 30
_ITS_USERS = 0.002
"""An item's users: those for whom it is in this best share of the catalogue on the day it comes."""


class Way(NamedTuple):
    """A way to keep the tree up to date."""

    label: str
    adds: bool = True
    """Whether new items are added."""
    cold: float = 0.1
    every: int = 0
    """Rebuild the tree after this number of days; 0: never."""


WAYS = (
    Way("static", adds=False),
    Way("overlay"),
    Way("overlay, no bonus", cold=0.0),
    Way("rebuilt every 5 days", every=5),
    Way("rebuilt every day", every=1),
)


@dataclass(frozen=True)
class ChangingCatalogue:
    """The experiment, as data."""

    world: str = ""
    """A saved world; empty: a synthetic one of tight topics and strong tastes."""
    items: Annotated[int, Whole(low=100)] = 20_000
    """Items of a synthetic world; half of them are there at a time."""
    users: Count = 200
    """How many users."""
    days: Count = 20
    """How many days."""
    rounds: Count = 10
    """Recommendations per user and day."""
    churn: tuple[Annotated[float, Number(above=0, high=0.5)], ...] = (0.01, 0.05, 0.2)
    """Shares of the catalogue that come and go every day."""
    repeats: Count = 3
    """Repeats, each with its own seed."""
    seed: Seed = 0
    """Every random choice comes from this seed."""

    def check(self) -> None:
        """Refuse what cannot be run."""
        checks.validate(self, "experiment changing-catalogue")
        if not self.churn:
            raise InvalidArgument("experiment changing-catalogue", "churn", "at least one share", self.churn)

    @property
    def digest(self) -> str:
        """What distinguishes this experiment from others."""
        return run_folder.digest(self)


class ChangingCatalogueResult(NamedTuple):
    """A finished experiment."""

    spec: ChangingCatalogue
    rewards: pl.DataFrame
    """Tidy: way, churn, repeat, user, day, reward of that day."""
    waits: pl.DataFrame
    """Of every item that came and had users to find: way, churn, repeat, day, wait in days (null: until the end)."""


def run_changing_catalogue(
    spec: ChangingCatalogue,
    folder: StrPath,
    *,
    processes: int | None = None,
    on: str = "processes",
    progress: Progress | None = None,
) -> ChangingCatalogueResult:
    """Run it in a folder, or what is left of it; the same spec gives the same results, however interrupted."""
    spec.check()
    place, report = Path(folder), progress or silent
    with run_folder.locked(place):
        run_folder.claim(place, spec)
        _prepare(spec, place, report)
        run_folder.run_cells(
            place, _cells(spec), KIND, spec.digest, live, [run_folder.SPEC, "world", "prior", "tree"],
            processes=processes, on=on, report=report,
        )  # fmt: skip
        return load_changing_catalogue(place)


def load_changing_catalogue(folder: StrPath) -> ChangingCatalogueResult:
    """Return what a finished run found."""
    place = Path(folder)
    spec = read_changing_catalogue(place)
    cells, rewards, waits = _cells(spec), [], []
    for cell, found in zip(cells.values(), run_folder.finished(place, list(cells), KIND, spec.digest), strict=True):
        told = [pl.lit(value).alias(name) for name, value in zip(("way", "churn", "repeat"), cell, strict=True)]
        rewards.append(found.tables["rewards"].with_columns(told))
        waits.append(found.tables["waits"].with_columns(told))
    return ChangingCatalogueResult(spec, pl.concat(rewards), pl.concat(waits))


def read_changing_catalogue(place: Path) -> ChangingCatalogue:
    """Return the experiment of a folder."""
    told = run_folder.read_spec(place)
    return ChangingCatalogue(**{**told, "churn": tuple(told["churn"])})


def _cells(spec: ChangingCatalogue) -> dict[str, tuple[str, float, int]]:
    """Return way, churn and repeat of every cell, by its name."""
    return {
        f"{number}-{share:g}-{repeat}": (way.label, share, repeat)
        for share in spec.churn
        for number, way in enumerate(WAYS)
        for repeat in range(spec.repeats)
    }


def _prepare(spec: ChangingCatalogue, place: Path, report: Progress) -> None:
    """Make the world, a prior from earlier users, and the tree of the first day."""
    if (place / "tree").exists():
        return
    world = World.load(spec.world) if spec.world else World(*vivid(spec.items, spec.users + _EARLIER, 32, spec.seed))
    if world.users < spec.users + 2:
        rule = f"fewer than the world's {world.users}: some must have come earlier"
        raise InvalidArgument("experiment changing-catalogue", "users", rule, spec.users)
    first = _first_day(spec, world)
    earlier = np.arange(spec.users, min(world.users, spec.users + _EARLIER))
    who = np.repeat(earlier, _SHOWINGS)
    drawn, luck = rng.uniforms(spec.seed, rng.stream("living", "earlier"), 2 * len(who)).reshape(2, -1)
    rows = first[(drawn * len(first)).astype(np.int64)]
    clicked = (luck < world.chances(who, rows)).astype(np.float64)
    report("world", 1, 3)
    shop = _some(world.catalogue, first)
    prior = Crowd.fit(Interactions(who, world.catalogue.ids[rows], rewards=clicked), shop, seed=spec.seed)
    report("world", 2, 3)
    world.save(place / "world", overwrite=True)
    prior.save(place / "prior", overwrite=True)
    Beam(prior=prior).grow(shop, spec.seed).save(place / "tree", overwrite=True)
    report("world", 3, 3)


def _first_day(spec: ChangingCatalogue, world: World) -> NDArray[np.int64]:
    """Return the rows of the items that are there at first: half of all."""
    count = len(world.catalogue)
    return np.sort(rng.sample(spec.seed, rng.stream("living", "first day"), count, count // 2))


def _some(catalogue: Catalogue, rows: NDArray[np.int64]) -> Catalogue:
    return Catalogue.of_table(catalogue.table[rows], catalogue.vectors[rows])


@lru_cache(1)
def _setup(place: str) -> tuple[ChangingCatalogue, World, Crowd, ItemTree]:
    folder = Path(place)
    made = World.load(folder / "world", verify=False), Crowd.load(folder / "prior")
    return read_changing_catalogue(folder), *made, ItemTree.load(folder / "tree", verify=False)


def live(shared: Share, label: str, share: float, repeat: int) -> artefact.Contents:
    """Compute a cell: one way to keep the tree, over all days."""
    spec, world, prior, tree = _setup(str(shared.folder()))
    way = next(one for one in WAYS if one.label == label)
    seed = run_folder.cell_seed(spec.seed, repeat)
    chances = np.stack([world.probabilities(user) for user in range(spec.users)])
    here = _first_day(spec, world)
    explorer = Explorer(
        _some(world.catalogue, here), tree, Beam(prior=prior), repeats=False, seed=seed, cold=way.cold, memory=1 << 28,
        crowd=False,
    )  # fmt: skip
    there = np.zeros(len(world.catalogue), dtype=np.bool_)
    there[here] = True
    earned, waits = np.zeros((spec.users, spec.days)), _Waits(len(world.catalogue))
    for day in range(spec.days):
        if day:  # the first day has the catalogue that the tree was built for
            gone, come = _turnover(seed, day, share, there)
            there[gone], there[come] = False, True
            ids = world.catalogue.ids
            explorer.remove([id for id in ids[gone].to_list() if id in explorer])
            if way.adds:
                explorer.add(_some(world.catalogue, come))
            waits.come(come, day, chances, there)
            if way.every and day % way.every == 0:
                explorer.rebuild()
            elif way.adds and explorer.inspect.fitness().due(0.0):
                explorer.refit()
        earned[:, day] = _spend(explorer, world, chances, spec.rounds, seed, day, waits)
    rewards = pl.DataFrame(
        {"user": np.repeat(np.arange(spec.users, dtype=np.int32), spec.days),
         "day": np.tile(np.arange(1, spec.days + 1, dtype=np.int32), spec.users), "reward": earned.ravel()}
    )  # fmt: skip
    told = {"spec_sha256": spec.digest, "seed": seed, "treeward": __version__}
    return artefact.Contents({}, {"rewards": rewards, "waits": waits.table()}, {}, told)


def _turnover(
    seed: int, day: int, share: float, there: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that go and that come on a day: the same for every way."""
    inside, outside = np.flatnonzero(there), np.flatnonzero(~there)
    count = min(round(share * len(inside)), len(outside), len(inside) - 1)
    gone = inside[rng.sample(seed, rng.stream("living", "goes", day), len(inside), count)]
    come = outside[rng.sample(seed, rng.stream("living", "comes", day), len(outside), count)]
    return gone, come


def _spend(
    explorer: Explorer, world: World, chances: NDArray[np.float32], rounds: int, seed: int, day: int, waits: "_Waits"
) -> NDArray[np.float64]:
    """Return what each user earns on a day."""
    users, shop = list(range(len(chances))), world.catalogue
    total = np.zeros(len(users))
    for turn in range(rounds):
        made = explorer.recommend(users)
        rows = shop.rows(one.item for one in made)
        luck = rng.uniforms(seed, rng.stream("living", "luck", day, turn), len(users))
        clicks = luck < chances[np.arange(len(users)), rows]
        explorer.feedback({one.id: float(click) for one, click in zip(made, clicks, strict=True)})
        total += clicks
        waits.shown(rows, day)
    return total


class _Waits:
    """Which users wait for which new item, and since when."""

    def __init__(self, items: int) -> None:
        self._theirs: dict[int, set[int]] = {}
        self._since: dict[int, int] = {}
        self._seen = np.zeros(items, dtype=np.bool_)
        self._done: list[tuple[int, int | None]] = []

    def come(self, rows: NDArray[np.int64], day: int, chances: NDArray[np.float32], there: NDArray[np.bool_]) -> None:
        """Record items that came for the first time, and their users."""
        fresh = rows[~self._seen[rows]]
        self._seen[rows] = True
        limit = np.quantile(chances[:, there], 1 - _ITS_USERS, axis=1)  # per user, what the best items have
        for row in fresh.tolist():
            users = np.flatnonzero(chances[:, row] >= limit)
            if len(users):
                self._theirs[row], self._since[row] = set(users.tolist()), day

    def shown(self, rows: NDArray[np.int64], day: int) -> None:
        """Record what every user was shown."""
        for user, row in enumerate(rows.tolist()):
            if row in self._theirs and user in self._theirs[row]:
                self._done.append((self._since[row], day - self._since[row]))
                del self._theirs[row]

    def table(self) -> pl.DataFrame:
        """Return how long every item waited until the first of its users saw it."""
        waiting = [(self._since[row], None) for row in self._theirs]
        return pl.DataFrame([*self._done, *waiting], schema={"day": pl.Int32, "wait": pl.Int32}, orient="row")
