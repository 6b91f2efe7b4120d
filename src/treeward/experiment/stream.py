"""`experiment stream`: a shop from its first day; users arrive over days, and every visit shows one new item."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.crowd import Crowd
from treeward.core import artefact, checks, rng
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, Number, OneOf, Seed, Whole
from treeward.core.errors import ArtefactError, DataError, ExtraMissing, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.tasks import Share, check_place
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset, Sizes, split_users
from treeward.data.interactions import Interactions
from treeward.data.loaders import find_loader, load_dataset
from treeward.embed import attribute_vectors, svd_vectors, text_vectors
from treeward.embed.text import TEXT_COLUMNS
from treeward.experiment import run_folder
from treeward.experiment.prepare import content_digest, fit_world, is_world, rows_of
from treeward.experiment.stream_arms import ARMS, Player, StreamSetup
from treeward.learn.torch import torch_for
from treeward.policy.beam import Beam
from treeward.simulate.arrivals import Visits, arrivals
from treeward.simulate.random_log import random_log
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

KIND = run_folder.Kind("treeward.stream", 1)
STAGE = "treeward.stream.stage", 1
FREE = ("arms", "repeats")
"""Fields that may differ when a run is resumed: cells do not depend on them."""
_OWNER = "experiment stream"
_NEGATIVES, _SHOWN = 4, 30
"""Non-clicks per click in a fitted world; shows per training user in a given one."""


@dataclass(frozen=True)
class Stream:
    """The experiment, as data."""

    data: str
    """A data set as `treeward data inspect` reads it, or a saved world."""
    loader: str = ""
    loader_options: Mapping[str, Any] = field(default_factory=dict)
    vectors: Annotated[str, OneOf(("clicks", "attributes", "text", "own"))] = "clicks"
    """Item vectors: ``"clicks"`` (SVD of training users' clicks), ``"attributes"`` (attributes, genres, tags, brand or
    category), ``"text"`` (titles, descriptions and genres), or ``"own"`` (those of the data, as a world needs)."""
    dim: Count = 64
    """Dimensions of item vectors that are made."""
    users: Annotated[int, Whole(low=2)] = 12_000
    """At most this many users visit."""
    training: Annotated[float, Number(above=0, below=1)] = 0.5
    """Share of all users who do not visit; vectors and prior are made from their events."""
    days: Annotated[int, Whole(1, 2**15 - 1)] = 20
    """How many days."""
    visits: Annotated[float, Number(low=1)] = 4.0
    """Visits of the median user."""
    tail: Annotated[float, Number(above=1)] = 3.5
    """Exponent of the tail: P(more than n visits) falls as n to the power of minus this."""
    batch: Count = 50
    """Visits of different users that are decided before feedback on them comes."""
    arms: tuple[str, ...] = tuple(ARMS)
    repeats: Count = 3
    """Repeats, each with its own seed."""
    seed: Seed = 0
    """Every random choice comes from this seed."""

    def check(self) -> None:
        """Refuse what cannot be run, before anything is computed."""
        checks.validate(self, _OWNER)
        if not self.arms or len(set(self.arms)) < len(self.arms):
            raise InvalidArgument(_OWNER, "arms", "at least one, and none of them twice", self.arms)
        for label in self.arms:
            checks.one_of(_OWNER, "arms", label, ARMS)
        if self.loader and ":" not in self.loader:
            find_loader(_OWNER, self.loader)
        if "als" in self.needs and not able_als():
            raise ExtraMissing.of("ALS", "implicit", "als")

    @property
    def needs(self) -> set[str]:
        """What its arms need."""
        return {one for label in self.arms for one in ARMS[label].needs}

    @property
    def digest(self) -> str:
        """What distinguishes this experiment's cells from those of others."""
        return run_folder.digest(self, FREE)

    def arrivals(self, users: int, items: int, repeat: int) -> Visits:
        """Return the visits of a repeat: the same for all arms."""
        seed = run_folder.cell_seed(self.seed, repeat)
        return arrivals(users, self.days, median=self.visits, tail=self.tail, most=items, seed=seed)


def able_als() -> bool:
    """Return whether the extra `als` is installed."""
    return find_spec("implicit") is not None


class Streamed(NamedTuple):
    """A finished experiment."""

    spec: Stream
    prepared: dict[str, Any]
    """Where data and vectors are from, and how many users and items there are."""
    visits: pl.DataFrame
    """Tidy, in the order of time: arm, repeat, day, user, visit (of the user), row (of the item), click."""
    cells: pl.DataFrame
    """Of every arm and repeat: seconds, and scores per visit where they are counted."""


def run_stream(
    spec: Stream,
    folder: StrPath,
    *,
    processes: int | None = None,
    on: str = "processes",
    progress: Progress | None = None,
) -> Streamed:
    """Run it in a folder, or what is left of it; the same spec gives the same results, however interrupted.

    A folder that holds the same experiment with other arms or fewer repeats is taken: what is there is not computed
    again.
    """
    check_place(on)
    spec.check()
    place, report = Path(folder), progress or silent
    with run_folder.locked(place):
        run_folder.claim(place, spec, FREE)
        _prepare(spec, place, report)
        run_folder.run_cells(
            place, _cells(spec), KIND, spec.digest, play_cell,
            [run_folder.SPEC, "world", "tree", "prior", "tree-prior", "stage"], processes=processes, on=on,
            report=report,
        )  # fmt: skip
        return load_stream(place)


def load_stream(folder: StrPath) -> Streamed:
    """Return what a finished run found."""
    place = Path(folder)
    spec = read_stream(place)
    cells, visits, rows = _cells(spec), [], []
    for (label, repeat), found in zip(
        cells.values(), run_folder.finished(place, list(cells), KIND, spec.digest), strict=True
    ):
        told = {"arm": label, "repeat": repeat}
        visits.append(found.tables["visits"].select(*(pl.lit(v).alias(k) for k, v in told.items()), pl.all()))
        rows.append({**told, **{name: found.info[name] for name in ("seed", "seconds", "scores", "treeward")}})
    prepared = artefact.read(place / "stage", *STAGE).info
    made = pl.DataFrame(rows, infer_schema_length=None, schema_overrides={"scores": pl.Float64})
    return Streamed(spec, prepared, pl.concat(visits), made)


def read_stream(place: Path) -> Stream:
    """Return the experiment of a folder."""
    told = run_folder.read_spec(place)
    return checks.typed(_OWNER, "spec", {**told, "arms": tuple(told.get("arms", ()))}, Stream)


def _cells(spec: Stream) -> dict[str, tuple[str, int]]:
    """Return arm and repeat of every cell, by its name."""
    return {
        f"{''.join(c if c.isalnum() else '-' for c in label)}-{repeat}": (label, repeat)
        for repeat in range(spec.repeats)
        for label in spec.arms
    }


def _prepare(spec: Stream, place: Path, report: Progress) -> None:
    """Make the world, the vectors, the trees and, if an arm needs it, the prior; as far as they are not there yet."""
    try:  # the cells trust what is verified here
        held = artefact.read(place / "stage", *STAGE).info
        World.load(place / "world")
        ItemTree.load(place / "tree")
    except ArtefactError:
        held = {}
    if held.get("spec_sha256") != spec.digest:
        world, train, users, told = (_given if is_world(spec.data) else _made)(spec, report)
        users = _some_users(spec, users)
        world.save(place / "world", overwrite=True)
        train.save(place / "training", overwrite=True)
        ItemTree.build(world.catalogue.vectors, seed=spec.seed, progress=report).save(place / "tree", overwrite=True)
        arrays = {"users": users, "popular": _popularity(world, users, report)}
        told |= {"users": len(users), "items": len(world.catalogue), "dim": world.catalogue.dim,
                 "training_users": train.users.n_unique(), "spec_sha256": spec.digest}  # fmt: skip
        artefact.write(place / "stage", *STAGE, artefact.Contents(arrays, {}, {}, told), overwrite=True)
    if "prior" in spec.needs and not artefact.is_artefact(place / "tree-prior"):
        world, train = World.load(place / "world"), Interactions.load(place / "training")
        prior = Crowd.fit(train, world.catalogue, negatives=_NEGATIVES, seed=spec.seed, progress=report)
        prior.save(place / "prior", overwrite=True)
        Beam(prior=prior).grow(world.catalogue, spec.seed, report).save(place / "tree-prior", overwrite=True)


_Ready = tuple[World, Interactions, NDArray[np.int64], dict[str, Any]]
"""The world, the log of training users, the world's numbers of all other users, and where it is from."""


def _made(spec: Stream, report: Progress) -> _Ready:
    """Make everything from a log: vectors from training users, the world from all."""
    torch_for("an experiment on a log")
    data = load_dataset(spec.data, spec.loader or None, progress=report, **spec.loader_options)
    source = {"data": data.name, "content_sha256": content_digest(data), **data.source}
    everybody = data.interactions.users
    splits = split_users(everybody, Sizes(1 - spec.training, 0), spec.seed)
    data = Dataset(data.name, data.catalogue, data.interactions, splits, source=data.source)
    shop = _with_vectors(spec, data, report)
    world = fit_world(data, shop, "auto", _NEGATIVES, spec.seed, report)
    return world, data.part("train"), rows_of(world, data.users("test"), "the stream"), {"source": source}


def _with_vectors(spec: Stream, data: Dataset, report: Progress) -> Catalogue:
    """Return the items with the vectors that the spec asks for."""
    shop, kind = data.catalogue, spec.vectors
    if kind == "own":
        if not shop.dim:
            raise InvalidArgument(_OWNER, "vectors", "clicks, attributes or text: the data has no vectors", kind)
        return shop
    bare, train = shop.with_vectors(np.zeros((len(shop), 0))), data.part("train")
    if kind == "clicks":
        dim = min(spec.dim, len(bare), train.users.n_unique())
        return svd_vectors(train, bare, dim, seed=spec.seed, progress=report)
    if kind == "attributes":
        try:
            return attribute_vectors(bare, spec.dim, seed=spec.seed, progress=report)
        except DataError as error:
            rule = "clicks or text: the data has no attributes, genres, tags, brand or category"
            raise InvalidArgument(_OWNER, "vectors", rule, kind) from error
    columns = [name for name in (*TEXT_COLUMNS, "genres") if name in bare.table.columns]
    if not columns:
        raise InvalidArgument(_OWNER, "vectors", "clicks or attributes: the data has no titles or descriptions", kind)
    return text_vectors(bare, spec.dim, columns=columns, fill=True, seed=spec.seed, progress=report)


def _given(spec: Stream, report: Progress) -> _Ready:
    """Use a world as it is; training users were shown items at random."""
    if spec.vectors != "own":
        raise InvalidArgument(_OWNER, "vectors", "own: a world brings its vectors", spec.vectors)
    world = World.load(spec.data)
    order = rng.sample(spec.seed, rng.stream("stream", "training"), world.users, world.users)
    count = round(spec.training * world.users)
    if not 0 < count < world.users:
        rule = f"a share that leaves some of the world's {world.users} users for training and some to visit"
        raise InvalidArgument(_OWNER, "training", rule, spec.training)
    train = random_log(world, np.sort(order[:count]).tolist(), _SHOWN, spec.seed)
    return world, train, np.sort(order[count:]), {"source": {"world": spec.data}}


def _some_users(spec: Stream, users: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(users) < 2:
        raise InvalidArgument(_OWNER, "data", "a log with at least 2 users besides those for training", spec.data)
    return users[rng.subset(spec.seed, rng.stream("stream", "users"), len(users), spec.users)]


def _popularity(world: World, users: NDArray[np.int64], report: Progress) -> NDArray[np.float64]:
    """Return the mean chance of a click per item."""
    total, steps = np.zeros(len(world.catalogue)), Stage(report, "popularity", len(users))
    for user in users.tolist():
        total += world.probabilities(user)
        steps.step()
    return total / len(users)


@lru_cache(1)
def open_setup(place: str) -> tuple[Stream, StreamSetup]:
    """Return the spec of a prepared folder and what its arms have in common; `StreamSetup.longest` is 0."""
    folder = Path(place)
    arrays = artefact.read(folder / "stage", *STAGE).arrays
    world = World.load(folder / "world", verify=False)
    users, popular = np.asarray(arrays["users"]), np.asarray(arrays["popular"])
    return read_stream(folder), StreamSetup(folder, world, users, popular, 0)


def play_cell(shared: Share, label: str, repeat: int) -> artefact.Contents:
    """Compute a cell: one arm through all visits."""
    spec, stage = open_setup(str(shared.folder()))
    seed, visits = run_folder.cell_seed(spec.seed, repeat), spec.arrivals(len(stage.users), stage.items, repeat)
    player = ARMS[label].make(stage._replace(longest=int(visits.visit.max())), seed)
    rows, clicks, seconds = play(player, visits, stage, spec.batch)
    table = pl.DataFrame(
        {"day": visits.day, "user": visits.user, "visit": visits.visit, "row": rows.astype(np.int32), "click": clicks}
    )
    scores = None if player.scores is None else player.scores / len(rows)
    told = {"spec_sha256": spec.digest, "seed": seed, "seconds": seconds, "scores": scores, "treeward": __version__}
    return artefact.Contents({}, {"visits": table}, {}, told)


def play(
    player: Player, visits: Visits, stage: StreamSetup, batch: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], float]:
    """Let an arm serve all visits; return the rows it showed, the clicks, and the seconds that the arm itself took."""
    rows, clicks = np.empty(len(visits.user), dtype=np.int64), np.empty(len(visits.user), dtype=np.bool_)
    seconds, today = 0.0, 0
    for part in visits.batches(batch):
        users = visits.user[part].astype(np.int64)
        begun = perf_counter()
        if visits.day[part.start] != today:
            today = int(visits.day[part.start])
            player.morning(today)
        shown = player.choose(users)
        seconds += perf_counter() - begun
        rows[part] = shown
        clicks[part] = visits.luck[part] < stage.world.chances(stage.users[users], shown)
        begun = perf_counter()
        player.learn(users, shown, clicks[part])
        seconds += perf_counter() - begun
    return rows, clicks, seconds
