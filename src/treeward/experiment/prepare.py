"""What an experiment runs on: item vectors and tree from training users, a world from all, users to try it on."""

import shutil
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit import PopulationPrior
from treeward.core import artefact, rng
from treeward.core.errors import ArtefactError, DataError, ExtraMissing, InvalidArgument
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset
from treeward.data.interactions import Interactions
from treeward.data.loaders import load_dataset
from treeward.embed import gru_vectors, svd_vectors, text_vectors
from treeward.embed.features import load_features
from treeward.embed.neural import NeuralLinear
from treeward.embed.quality import quality
from treeward.experiment.baselines import FORESEEING, Factors
from treeward.experiment.judge import Past, eligible, most_diverse, past_of
from treeward.experiment.spec import SYNTHETIC, Aids, Spec, known
from treeward.learn.clicks import Clicks, clicks_of
from treeward.learn.next_click import NextClick
from treeward.learn.torch import torch_for, usual_device
from treeward.policy.beam import Beam
from treeward.simulate.logged import logged
from treeward.simulate.world import FORMAT, World
from treeward.tree.item_tree import ItemTree

_DEEP = ("features", "deep-prior", "tree-features", "tree-features-prior")
_AIDS = ("prior", "tree-prior", "factors", "past", *_DEEP, *FORESEEING)
PREPARED = ("prepared.json", "world", "tree", *_AIDS)
"""What `prepare` leaves in an experiment's folder, as far as the spec asks for it."""


def read_spec(folder: Path) -> Spec:
    """Return the spec of an experiment's folder."""
    path = folder / "spec.toml"
    if not path.is_file():
        raise InvalidArgument("experiment", "folder", "one where an experiment was run", str(folder))
    return Spec.from_toml(path.read_text(encoding="utf-8"))


def read_prepared(folder: Path) -> dict[str, Any] | None:
    """Return what `prepare` said; None if it did not come so far, or what it wrote was damaged."""
    try:
        told = msgspec.json.decode((folder / "prepared.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return told if isinstance(told, dict) and "spec_sha256" in told else None


def prepare(spec: Spec, folder: Path, progress: Progress) -> dict[str, Any]:
    """Make what is not there yet, and return what there is to say of it."""
    world_at, tree_at = folder / "world", folder / "tree"
    before = read_prepared(folder)
    if before is not None and _whole(spec, folder):
        World.load(world_at), ItemTree.load(tree_at)  # the cells trust what is verified here
        return before
    world, tree, users, source = (_given if is_world(spec.data) else _made)(spec, folder, progress)
    chosen = _tried(spec, users)
    aids = read_aids(folder)
    for arm in spec.arms:  # what does not fit this tree and catalogue is told now
        arm.build(spec.budget, aids).session(tree, world.catalogue, 1)
    world.save(world_at, overwrite=True)
    tree.save(tree_at, overwrite=True)
    spread = world.fidelity(users=min(200, world.users)).spread[0]
    told: dict[str, Any] = {
        "spec_sha256": spec.digest,
        "source": source,
        "users": chosen.tolist(),
        "user_ids": _names_of(world, chosen),
        "of_users": len(users),
        "items": len(world.catalogue),
        "levels": np.bincount(tree.level)[1:].tolist(),
        "world": {name: value for name, value in world.provenance.items() if not isinstance(value, dict)},
        "random": float(np.mean([world.probabilities(int(user)).mean() for user in chosen[:500]])),
        "oracle": _oracle(world, chosen[:500], spec.rounds, spec.once),
        "own_best": spread.own,
        "common_best": spread.common,
    }
    artefact.write_file(folder / "prepared.json", msgspec.json.format(msgspec.json.encode(told), indent=1))
    return told


class _Stage(NamedTuple):
    """What an experiment runs on."""

    world: World
    tree: ItemTree
    users: NDArray[np.int64]
    """Who may be tried."""
    source: dict[str, Any]


def _given(spec: Spec, folder: Path, progress: Progress) -> _Stage:
    """Take a world as it is."""
    world, source = _world_of(spec)
    needy = ", ".join(
        arm.label for arm in spec.arms if arm.needs_log and not (spec.shown and arm.policy not in FORESEEING)
    )
    if needy or spec.start:
        what = f"{needy} need(s)" if needy else "what users begin with needs"
        raise InvalidArgument("experiment", "data", f"a log, which {what}", spec.data)
    _check_categories(spec, world.catalogue)
    _check_rounds(spec, len(world.catalogue))
    if spec.vectors != "auto":
        raise InvalidArgument("experiment", "vectors", "auto: a saved world brings its own", spec.vectors)
    tree = ItemTree.build(world.catalogue.vectors, spec.widths or None, seed=spec.seed, progress=progress)
    _clear(folder)
    users = _part_of(world, spec.split)
    if spec.shown:
        users = _tried(spec, users[: world.users // 2])
        others = np.setdiff1d(np.arange(world.users), users)
        log = logged(world, others.tolist(), spec.shown, spec.seed)
        source["training_users"], source["shown_to_each"] = len(others), spec.shown
        _write_aids(spec, log, None, world.catalogue, folder, progress)
    return _Stage(world, tree, users, source)


def _world_of(spec: Spec) -> tuple[World, dict[str, Any]]:
    """Return a saved world, or one that is made up, and where it is from."""
    if spec.data != SYNTHETIC:
        manifest = (Path(spec.data) / artefact.MANIFEST).read_bytes()
        return World.load(spec.data), {"world": spec.data, "sha256": sha256(manifest).hexdigest()}
    names = ("items", "users", "dim", "nonlinear", "seed")
    told = known("experiment", "loader_options", spec.loader_options, names)
    try:
        return World.synthetic(**{"seed": spec.seed, **told}), {"world": SYNTHETIC, **told}
    except TypeError as error:
        raise InvalidArgument("experiment", "loader_options", "those of World.synthetic", dict(told)) from error


def _tried(spec: Spec, users: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(users) <= spec.users:
        return users
    return np.sort(users[rng.sample(spec.seed, rng.stream("tried users"), len(users), spec.users)])


def _clear(folder: Path) -> None:
    for name in _AIDS:  # of another spec that did not come so far
        shutil.rmtree(folder / name, ignore_errors=True)


def _made(spec: Spec, folder: Path, progress: Progress) -> _Stage:
    """Make everything of a log."""
    torch_for("an experiment on a log")
    if _needs_factors(spec) and find_spec("implicit") is None:  # told now, not when the world is fitted
        raise ExtraMissing.of("ALS", "implicit", "als")
    data = load_dataset(spec.data, spec.loader or None, progress=progress, **spec.loader_options)
    _check_categories(spec, data.catalogue)
    _check_rounds(spec, len(data.catalogue))
    _clear(folder)
    tried = _begun(spec, data) if spec.start or spec.pick == "diverse" else None
    shop, source = _with_vectors(spec, data, progress), {"data": data.name, **data.source}
    tree = ItemTree.build(shop.vectors, spec.widths or None, seed=spec.seed, progress=progress)
    _write_aids(spec, data.part("train"), data.part("validation"), shop, folder, progress)
    world = World.fit(
        data.interactions,
        shop,
        exposure=spec.exposure,
        negatives=spec.negatives,
        seed=spec.seed,
        twin=False,
        device=usual_device(),
        progress=progress,
    )
    if _models(spec):
        held = read_aids(folder).models
        found = quality(data, shop, [held[name] for name in FORESEEING if name in held], seed=spec.seed)
        source["next_click"] = {"users": found.users, **found.recall}
    if tried is None:
        return _Stage(world, tree, _rows_of(world, data.users(spec.split), spec.split), source)
    clicks, chosen = tried
    past_of(data.part("train"), clicks, chosen, shop).save(folder / "past")
    assert world.user_ids is not None
    numbers = {name: row for row, name in enumerate(world.user_ids.to_list())}
    rows = [numbers[clicks.users[user]] for user in chosen]
    return _Stage(world, tree, np.array(rows, dtype=np.int64), source)


def _begun(spec: Spec, data: Dataset) -> tuple[Clicks, list[int]]:
    """Choose users who have clicks to begin with, and others besides."""
    clicks = clicks_of("experiment", data.part(spec.split), data.catalogue)
    able = eligible(clicks, spec.start)
    if not able:
        what = f"none of the {len(clicks):,} users for {spec.split} has more than {spec.start} clicks"
        raise DataError(f"{what}: begin with fewer (--start {max(1, spec.start - 1)})")
    if spec.pick == "diverse":
        return clicks, most_diverse(clicks, able, data.catalogue, spec.users)
    if len(able) > spec.users:
        drawn = rng.sample(spec.seed, rng.stream("tried users"), len(able), spec.users)
        able = [able[i] for i in np.sort(drawn).tolist()]
    return clicks, able


def _write_aids(
    spec: Spec, train: Interactions, valid: Interactions | None, shop: Catalogue, folder: Path, progress: Progress
) -> None:
    """Fit what arms may know of training users."""
    if any(arm.features for arm in spec.arms):
        _write_features(spec, train, shop, folder, progress)
    if _needs_prior(spec):
        prior = PopulationPrior.fit(train, shop, negatives=spec.negatives, seed=spec.seed, progress=progress)
        prior.save(folder / "prior", overwrite=True)
        Beam(prior=prior).grow(shop, spec.seed, progress).save(folder / "tree-prior", overwrite=True)
    if _needs_factors(spec):
        Factors.fit(train, shop, shop.dim, spec.seed).save(folder / "factors")
    for name in sorted(_models(spec)):
        assert valid is not None
        model = NextClick.fit(
            FORESEEING[name], train, valid, shop, shop.dim, start=shop.vectors, seed=spec.seed,
            progress=progress,
        )  # fmt: skip
        model.save(folder / name, overwrite=True)


def _write_features(spec: Spec, train: Interactions, shop: Catalogue, folder: Path, progress: Progress) -> None:
    """Learn features, and what training users say of new ones in them."""
    features = NeuralLinear.fit(
        train, shop, negatives=spec.negatives, seed=spec.seed, device=usual_device(), progress=progress
    )
    features.save(folder / "features", overwrite=True)
    seen = features.transform(shop)
    Beam(features=features).grow(seen, spec.seed, progress).save(folder / "tree-features", overwrite=True)
    if any(arm.features and arm.prior for arm in spec.arms):
        prior = PopulationPrior.fit(train, seen, negatives=spec.negatives, seed=spec.seed, progress=progress)
        prior.save(folder / "deep-prior", overwrite=True)
        grown = Beam(features=features, prior=prior).grow(seen, spec.seed, progress)
        grown.save(folder / "tree-features-prior", overwrite=True)


def _whole(spec: Spec, folder: Path) -> bool:
    """Tell whether all that arms may know of training users is there, and as it was written."""
    try:
        aids = read_aids(folder)
        for name in {arm.tree for arm in spec.arms} - {"tree"}:
            ItemTree.load(folder / name)
        if spec.start:
            Past.load(folder / "past")
    except ArtefactError:
        return False
    return (
        (aids.prior is not None or not _needs_prior(spec))
        and (aids.factors is not None or not _needs_factors(spec))
        and set(aids.models) >= _models(spec)
        and (aids.features is not None or not any(arm.features for arm in spec.arms))
        and (aids.deep_prior is not None or not any(arm.features and arm.prior for arm in spec.arms))
    )


def _models(spec: Spec) -> set[str]:
    return {arm.policy for arm in spec.arms if arm.policy in FORESEEING}


def _needs_prior(spec: Spec) -> bool:
    return any((arm.prior and not arm.features) or arm.policy == "popularity" for arm in spec.arms)


def _needs_factors(spec: Spec) -> bool:
    return any(arm.policy in ("als", "mean-user") for arm in spec.arms)


def read_aids(folder: Path) -> Aids:
    """Return what arms may know of training users."""
    return Aids(
        PopulationPrior.load(folder / "prior") if (folder / "prior").exists() else None,
        Factors.load(folder / "factors") if (folder / "factors").exists() else None,
        {name: NextClick.load(folder / name) for name in FORESEEING if (folder / name).exists()},
        load_features(folder / "features") if (folder / "features").exists() else None,
        PopulationPrior.load(folder / "deep-prior") if (folder / "deep-prior").exists() else None,
    )


def _oracle(world: World, users: NDArray[np.int64], rounds: int, once: bool) -> float:
    """Return what somebody who knew all chances would earn a user."""
    earned = []
    for user in users.tolist():
        chances = world.probabilities(user).astype(np.float64)
        best = np.sort(chances)[-min(rounds, len(chances)) :].sum() if once else rounds * chances.max()
        earned.append(float(best))
    return float(np.mean(earned))


def is_world(data: str) -> bool:
    """Tell whether data is a world, saved or to be made up."""
    if data == SYNTHETIC:
        return True
    try:
        return artefact.is_artefact(data) and artefact.format_of(data) == FORMAT
    except ArtefactError:
        return False


def _names_of(world: World, rows: NDArray[np.int64]) -> list[str]:
    return [str(row) for row in rows] if world.user_ids is None else world.user_ids.cast(pl.String)[rows].to_list()


def _part_of(world: World, split: str) -> NDArray[np.int64]:
    """Return a fifth of a world's users for validation, and all others for test."""
    count = world.users // 5
    if split == "validation" and count == 0:
        raise InvalidArgument("experiment", "data", "a world of at least 5 users, to have some for validation", world)
    fifth = np.sort(rng.sample(0, rng.stream("validation users"), world.users, count))
    return fifth if split == "validation" else np.setdiff1d(np.arange(world.users), fifth)


def _check_rounds(spec: Spec, items: int) -> None:
    if spec.once and spec.rounds + spec.start > items:
        known = f" less the {spec.start} that users begin with" if spec.start else ""
        rule = f"at most {items - spec.start}, the number of items{known}, where each is shown once"
        raise InvalidArgument("experiment", "rounds", rule, spec.rounds)


def _check_categories(spec: Spec, catalogue: Catalogue) -> None:
    needy = [arm.label for arm in spec.arms if arm.build(spec.budget).needs_categories]
    if needy and catalogue.categories is None:
        raise InvalidArgument("experiment", "data", f"with categories, which {', '.join(needy)} need(s)", spec.data)


def _with_vectors(spec: Spec, data: Dataset, progress: Progress) -> Catalogue:
    """Return the items with the vectors that the spec asks for, made from training users' logs or from titles."""
    kind = spec.vectors
    if kind == "auto":
        if data.catalogue.dim:
            return data.catalogue
        kind = "svd"
    train, bare = data.part("train"), data.catalogue.with_vectors(np.zeros((len(data.catalogue), 0)))
    dim = min(spec.dim, len(bare), max(1, train.users.n_unique()))
    if kind == "text":
        return text_vectors(bare, dim, fill=True, seed=spec.seed, progress=progress)
    if kind == "gru":
        return gru_vectors(train, data.part("validation"), bare, dim, seed=spec.seed, progress=progress).catalogue
    return svd_vectors(train, bare, dim, seed=spec.seed, progress=progress)


def _rows_of(world: World, users: pl.Series, split: str) -> NDArray[np.int64]:
    """Return which of the world's users are of the split."""
    ids = pl.DataFrame({"user": world.user_ids, "row": np.arange(world.users)})
    wanted = users if users.dtype.is_integer() else users.cast(pl.String)
    rows = ids.filter(pl.col("user").is_in(wanted.implode()))["row"].to_numpy()
    if not len(rows):
        raise DataError(f"none of the {len(users)} users for {split} has rewarded anything")
    return rows
