"""Preparing an experiment: item vectors and tree from training users, worlds from all users, users to test."""

from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit import Crowd
from treeward.core import artefact, rng
from treeward.core.errors import ArtefactError, DataError, ExtraMissing, InvalidArgument
from treeward.core.progress import Progress
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset
from treeward.data.interactions import Interactions
from treeward.data.loaders import load_dataset
from treeward.embed import gru_vectors, svd_vectors, text_gru_vectors, text_vectors
from treeward.embed.features import Features, load_features
from treeward.embed.neural import NeuralLinear
from treeward.embed.quality import quality
from treeward.experiment.baselines import NEXT_CLICK_MODELS, Factors
from treeward.experiment.prepared import (
    ReusedRun,
    clear_trained,
    is_whole,
    needed,
    read_prepared,
    read_trained,
    world_folder,
)
from treeward.experiment.profile_quality import Recorded, build_past, eligible, most_diverse, recorded_clicks
from treeward.experiment.spec import SYNTHETIC, VECTORS, Spec, known
from treeward.learn.next_click import NextClick
from treeward.learn.torch import torch_for, usual_device
from treeward.policy.beam import Beam
from treeward.simulate.context_free import context_free_ceiling
from treeward.simulate.random_log import random_log
from treeward.simulate.world import FORMAT, World
from treeward.tree.item_tree import ItemTree

_AUCS = ("auc", "auc_popularity")
"""How well a fitted world ranks held-out events, and how well popularity does."""


def prepare(spec: Spec, folder: Path, progress: Progress, reused: ReusedRun | None = None) -> dict[str, Any]:
    """Make what is not there yet, and return its description.

    `reused`: another run, whose vectors, worlds, tree and trained parts are taken as far as it has them.
    """
    before = read_prepared(folder)
    if before is not None and is_whole(spec, folder):
        return before
    worlds, tree, users, source = (_given if is_world(spec.data) else _made)(spec, folder, progress, reused)
    world, chosen = worlds[0], _tried(spec, users)
    trained = read_trained(folder)
    for arm in spec.arms:  # what does not fit this tree and catalogue is refused now
        users_at_once = len(chosen) if arm.policy == "context-free" else 1  # which has a limit
        spec.policy(arm, trained).session(tree, world.catalogue, users_at_once)
    for number, one in enumerate(worlds):
        one.save(folder / world_folder(number), overwrite=True)
    tree.save(folder / "tree", overwrite=True)
    spread, most = world.fidelity(users=min(200, world.users)).spread[0], min(spec.budget, len(world.catalogue))
    told: dict[str, Any] = {
        "spec_sha256": spec.digest,
        "treeward": __version__,
        "source": source,
        "users": chosen.tolist(),
        "user_ids": _names_of(world, chosen),
        "of_users": len(users),
        "items": len(world.catalogue),
        "vectors": _kind_of_vectors(spec, source),
        "dim": world.catalogue.dim,
        "vectors_sha256": artefact.digest(world.catalogue.vectors),
        "levels": np.bincount(tree.level)[1:].tolist(),
        "world": {name: value for name, value in world.provenance.items() if not isinstance(value, dict)},
        "aucs": [[one.provenance[name] for name in _AUCS] for one in worlds if set(_AUCS) <= set(one.provenance)],
        "random": float(np.mean([world.probabilities(int(user)).mean() for user in chosen[:500]])),
        "oracle": _oracle(world, chosen[:500], spec.rounds, spec.once),
        "ceiling": float(np.mean([context_free_ceiling(one, chosen.tolist(), most) for one in worlds])),
        "own_best": spread.own,
        "common_best": spread.common,
    }
    artefact.write_file(folder / "prepared.json", msgspec.json.format(msgspec.json.encode(told), indent=1))
    return told


class _Prepared(NamedTuple):
    """What an experiment runs on."""

    worlds: list[World]
    tree: ItemTree
    users: NDArray[np.int64]
    """The users that may be tested."""
    source: dict[str, Any]


def _given(spec: Spec, folder: Path, progress: Progress, reused: ReusedRun | None) -> _Prepared:
    """Use a world as it is."""
    for name, usual, why in (("vectors", "auto", "a world brings its own"), ("worlds", 1, "there is one to try")):
        if getattr(spec, name) != usual:
            raise InvalidArgument("experiment", name, f"{usual}: {why}", getattr(spec, name))
    world, source = _world_of(spec)
    needy = ", ".join(
        arm.label for arm in spec.arms if arm.needs_log and not (spec.shown and arm.policy not in NEXT_CLICK_MODELS)
    )
    if needy or spec.start:
        what = f"{needy} need(s)" if needy else "what users begin with needs"
        raise InvalidArgument("experiment", "data", f"a log, which {what}", spec.data)
    _check_categories(spec, world.catalogue)
    _check_rounds(spec, len(world.catalogue))
    clear_trained(folder)
    if reused is not None:
        reused.check_data(source)
        tree = ItemTree.load(reused.folder / "tree")
        source["prepared"] = reused.name
    else:
        tree = ItemTree.build(world.catalogue.vectors, spec.widths or None, seed=spec.seed, progress=progress)
    users = _part_of(world, spec.split)
    if spec.shown:
        users = _tried(spec, users[: world.users // 2])
        others = np.setdiff1d(np.arange(world.users), users)
        log = random_log(world, others.tolist(), spec.shown, spec.seed)
        source["training_users"], source["shown_to_each"] = len(others), spec.shown
        write_trained(spec, log, None, world.catalogue, folder, progress)
    return _Prepared([world], tree, users, source)


def _world_of(spec: Spec) -> tuple[World, dict[str, Any]]:
    """Return a saved or a synthetic world, and its origin."""
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
    return users[rng.subset(spec.seed, rng.stream("tried users"), len(users), spec.users)]


def _made(spec: Spec, folder: Path, progress: Progress, reused: ReusedRun | None) -> _Prepared:
    """Make everything from a log."""
    torch_for("an experiment on a log")
    if "factors" in needed(spec) and find_spec("implicit") is None:  # said now, not when the world is fitted
        raise ExtraMissing.of("ALS", "implicit", "als")
    data = load_dataset(spec.data, spec.loader or None, progress=progress, **spec.loader_options)
    source: dict[str, Any] = {"data": data.name, **data.source, "content_sha256": content_digest(data)}
    source["own_vectors"] = bool(data.catalogue.dim)
    if reused is not None:
        reused.check_data(source)
        source["prepared"] = reused.name
    _check_categories(spec, data.catalogue)
    _check_rounds(spec, len(data.catalogue))
    clear_trained(folder)
    begun = _begun(spec, data) if spec.start or spec.pick == "diverse" else None
    if begun is not None:
        build_past(data.part("train"), *begun, data.catalogue).save(folder / "past")
        source["impressions"] = begun[0].asked is not None
    worlds: list[World] = []
    if reused is None:
        shop = _with_vectors(spec, data, progress)
        tree = ItemTree.build(shop.vectors, spec.widths or None, seed=spec.seed, progress=progress)
    else:
        worlds, tree = reused.worlds(spec.worlds), ItemTree.load(reused.folder / "tree")
        shop = worlds[0].catalogue
        reused.copy_trained(folder)
    write_trained(spec, data.part("train"), data.part("validation"), shop, folder, progress)
    worlds += [_fit(spec, data, shop, number, progress) for number in range(len(worlds), spec.worlds)]
    if needed(spec) & set(NEXT_CLICK_MODELS):
        held = read_trained(folder).models
        found = quality(data, shop, [held[name] for name in NEXT_CLICK_MODELS if name in held], seed=spec.seed)
        source["next_click"] = {"users": found.users, **found.recall}
        source["next_click_lists"] = {name: [found.hit_rate[name], found.ndcg[name]] for name in found.recall}
    names = worlds[0].user_ids
    assert names is not None
    # Users are known by their numbers in the worlds, which must therefore agree.
    if any(one.user_ids is None or not one.user_ids.equals(names) for one in worlds):
        raise DataError("the worlds were fitted to different users: choose another seed")
    if begun is None:
        return _Prepared(worlds, tree, rows_of(worlds[0], data.users(spec.split), spec.split), source)
    tested, chosen = begun
    numbers = {name: row for row, name in enumerate(names.to_list())}
    rows = [numbers[tested.start.users[user]] for user in chosen]
    return _Prepared(worlds, tree, np.array(rows, dtype=np.int64), source)


def write_trained(
    spec: Spec, train: Interactions, valid: Interactions | None, shop: Catalogue, folder: Path, progress: Progress
) -> None:
    """Learn from training users what arms may know of them, as far as it is needed and not there yet."""

    def fit_prior(seen: Catalogue, name: str, tree: str, features: Features | None = None) -> None:
        prior = Crowd.fit(train, seen, negatives=spec.negatives, seed=spec.seed, progress=progress)
        prior.save(folder / name, overwrite=True)
        grown = Beam(features=features, prior=prior).grow(seen, spec.seed, progress)
        grown.save(folder / tree, overwrite=True)

    # What is saved last shows that the rest of its kind is there.
    lacking = {name for name in needed(spec) if not (folder / name).exists()}
    if "tree-features" in lacking:
        features = NeuralLinear.fit(
            train, shop, negatives=spec.negatives, seed=spec.seed, device=usual_device(), progress=progress
        )
        features.save(folder / "features", overwrite=True)
        grown = Beam(features=features).grow(features.transform(shop), spec.seed, progress)
        grown.save(folder / "tree-features", overwrite=True)
    if "tree-features-prior" in lacking:
        known = load_features(folder / "features")
        fit_prior(known.transform(shop), "deep-prior", "tree-features-prior", known)
    if "tree-prior" in lacking:
        fit_prior(shop, "prior", "tree-prior")
    if "factors" in lacking:
        Factors.fit(train, shop, shop.dim, spec.seed).save(folder / "factors")
    for name in sorted(lacking & set(NEXT_CLICK_MODELS)):
        assert valid is not None
        model = NextClick.fit(
            NEXT_CLICK_MODELS[name], train, valid, shop, shop.dim, start=shop.vectors, seed=spec.seed, progress=progress
        )
        model.save(folder / name, overwrite=True)


def content_digest(data: Dataset) -> str:
    """Return a digest of items, events and splits as they were read, whatever the loader and its options."""
    found = sha256()
    for frame in (data.catalogue.ids.to_frame("id"), data.interactions.table, data.splits):
        found.update(frame.hash_rows(seed=0).to_numpy().tobytes())
    return found.hexdigest()


def _kind_of_vectors(spec: Spec, source: dict[str, Any]) -> str:
    """Return the kind of the item vectors, also where the spec leaves it open."""
    if spec.vectors != "auto":
        return spec.vectors
    return "the data's own" if source.get("own_vectors", True) else "svd of the training log"


def _fit(spec: Spec, data: Dataset, shop: Catalogue, number: int, progress: Progress) -> World:
    """Fit a world to the log; the first with the experiment's seed, the others with seeds of their own."""
    seed = spec.seed if number == 0 else int.from_bytes(sha256(f"{spec.seed}/world/{number}".encode()).digest()[:4])
    return fit_world(data, shop, spec.exposure, spec.negatives, seed, progress)


def fit_world(data: Dataset, shop: Catalogue, exposure: str, negatives: int, seed: int, progress: Progress) -> World:
    """Fit a world to all users of a log, over items with the vectors that policies see."""
    return World.fit(
        data.interactions, shop, exposure=exposure, negatives=negatives, seed=seed, twin=False,
        device=usual_device(), progress=progress,
    )  # fmt: skip


def _begun(spec: Spec, data: Dataset) -> tuple[Recorded, list[int]]:
    """Choose users who have clicks to begin with, and more clicks to be tested on."""
    tested = recorded_clicks(data.part(spec.split), data.catalogue, spec.samples)
    able = eligible(tested, spec.start)
    if not able:
        which = "enough clicks" if tested.asked is None else "enough clicks and both clicked and skipped impressions"
        what = f"none of the {len(tested.start):,} users for {spec.split} has {which} to start from {spec.start}"
        raise DataError(f"{what}: begin with fewer (--start {max(1, spec.start - 1)})")
    if spec.pick == "diverse":
        return tested, most_diverse(tested.start, able, data.catalogue, spec.users)
    return tested, _tried(spec, np.array(able)).tolist()


def _oracle(world: World, users: NDArray[np.int64], rounds: int, once: bool) -> float:
    """Return what a policy that knew all probabilities would earn per user."""
    earned = []
    for user in users.tolist():
        chances = world.probabilities(user).astype(np.float64)
        best = np.sort(chances)[-min(rounds, len(chances)) :].sum() if once else rounds * chances.max()
        earned.append(float(best))
    return float(np.mean(earned))


def is_world(data: str) -> bool:
    """Return whether data is a world, saved or synthetic."""
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
    needy = [arm.label for arm in spec.arms if spec.policy(arm).needs_categories]
    if needy and catalogue.categories is None:
        raise InvalidArgument("experiment", "data", f"with categories, which {', '.join(needy)} need(s)", spec.data)


def _with_vectors(spec: Spec, data: Dataset, progress: Progress) -> Catalogue:
    """Return the items with the vectors that the spec asks for, made from training users' logs or from texts."""
    kind = spec.vectors
    if kind not in VECTORS:
        return _saved_vectors(kind, data.catalogue)
    if kind == "auto":
        if data.catalogue.dim:
            return data.catalogue
        kind = "svd"
    train, bare = data.part("train"), data.catalogue.with_vectors(np.zeros((len(data.catalogue), 0)))
    dim = min(spec.dim, len(bare), max(1, train.users.n_unique()))
    if kind == "text":
        return text_vectors(bare, dim, fill=True, seed=spec.seed, progress=progress)
    if kind == "svd":
        return svd_vectors(train, bare, dim, seed=spec.seed, progress=progress)
    valid = data.part("validation")
    if kind == "text-gru":
        made = text_gru_vectors(train, valid, bare, dim, fill=True, seed=spec.seed, progress=progress)
    else:
        made = gru_vectors(train, valid, bare, dim, seed=spec.seed, progress=progress)
    return made.catalogue


def _saved_vectors(path: str, catalogue: Catalogue) -> Catalogue:
    """Return the items with vectors that were saved for them, found by id."""
    held = Catalogue.load(path)
    if not held.dim:
        raise InvalidArgument("experiment", "vectors", "a catalogue with vectors", path)
    if catalogue.ids.dtype.is_integer() != held.ids.dtype.is_integer():
        raise InvalidArgument("experiment", "vectors", f"a catalogue with ids of type {catalogue.ids.dtype}", path)
    known = pl.DataFrame({"id": held.ids.cast(pl.String), "row": np.arange(len(held))})
    rows = catalogue.ids.cast(pl.String).to_frame("id").join(known, on="id", how="left", maintain_order="left")["row"]
    if rows.null_count():
        rule = f"a catalogue of all {len(catalogue):,} items"
        raise InvalidArgument("experiment", "vectors", rule, f"{path}: lacks {rows.null_count():,} of them")
    return catalogue.with_vectors(held.vectors[rows.to_numpy()])


def rows_of(world: World, users: pl.Series, split: str) -> NDArray[np.int64]:
    """Return which of the world's users are of the split."""
    ids = pl.DataFrame({"user": world.user_ids, "row": np.arange(world.users)})
    wanted = users if users.dtype.is_integer() else users.cast(pl.String)
    rows = ids.filter(pl.col("user").is_in(wanted.implode()))["row"].to_numpy()
    if not len(rows):
        raise DataError(f"none of the {len(users)} users for {split} has rewarded anything")
    return rows
