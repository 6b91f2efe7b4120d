"""What an experiment runs on: item vectors and tree from training users, a world from all, users to try it on."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from treeward.bandit import PopulationPrior
from treeward.core import artefact, rng
from treeward.core.errors import ArtefactError, DataError, InvalidArgument
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset
from treeward.data.loaders import load_dataset
from treeward.embed.svd import svd_vectors
from treeward.experiment.baselines import Factors
from treeward.experiment.spec import Aids, Spec
from treeward.learn.torch import torch_for
from treeward.policy.beam import Beam
from treeward.simulate.world import FORMAT, World
from treeward.tree.item_tree import ItemTree


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
    if _is_world(Path(spec.data)):
        world = World.load(spec.data)
        if any(arm.needs_log for arm in spec.arms):
            needy = ", ".join(arm.label for arm in spec.arms if arm.needs_log)
            raise InvalidArgument("experiment", "data", f"a log, which {needy} need(s)", spec.data)
        source = {"world": spec.data, "sha256": sha256((Path(spec.data) / artefact.MANIFEST).read_bytes()).hexdigest()}
        _check_categories(spec, world.catalogue)
        users = _part_of(world, spec.split)
        tree = ItemTree.build(world.catalogue.vectors, spec.widths or None, seed=spec.seed, progress=progress)
    else:
        torch_for("an experiment on a log")
        data = load_dataset(spec.data, spec.loader or None, progress=progress, **spec.loader_options)
        _check_categories(spec, data.catalogue)
        shop, source = _with_vectors(spec, data, progress), {"data": data.name, **data.source}
        tree = ItemTree.build(shop.vectors, spec.widths or None, seed=spec.seed, progress=progress)
        _write_aids(spec, data, shop, folder, progress)
        world = World.fit(
            data.interactions,
            shop,
            exposure=spec.exposure,
            negatives=spec.negatives,
            seed=spec.seed,
            twin=False,
            progress=progress,
        )
        users = _rows_of(world, data.users(spec.split), spec.split)
    if spec.once and spec.rounds > len(world.catalogue):
        rule = f"at most {len(world.catalogue)}, the number of items, where each is shown once"
        raise InvalidArgument("experiment", "rounds", rule, spec.rounds)
    chosen = users
    if len(users) > spec.users:
        chosen = np.sort(users[rng.sample(spec.seed, rng.stream("tried users"), len(users), spec.users)])
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


def _write_aids(spec: Spec, data: Dataset, shop: Catalogue, folder: Path, progress: Progress) -> None:
    """Fit what arms may know of training users."""
    train = data.part("train")
    if _needs_prior(spec):
        prior = PopulationPrior.fit(train, shop, negatives=spec.negatives, seed=spec.seed, progress=progress)
        prior.save(folder / "prior", overwrite=True)
        Beam(prior=prior).grow(shop, spec.seed, progress).save(folder / "tree-prior", overwrite=True)
    if _needs_factors(spec):
        Factors.fit(train, shop, shop.dim, spec.seed).save(folder / "factors")


def _whole(spec: Spec, folder: Path) -> bool:
    """Tell whether all that arms may know of training users is there, and as it was written."""
    try:
        aids = read_aids(folder)
        if any(arm.prior for arm in spec.arms):
            ItemTree.load(folder / "tree-prior")
    except ArtefactError:
        return False
    return (aids.prior is not None or not _needs_prior(spec)) and (aids.factors is not None or not _needs_factors(spec))


def _needs_prior(spec: Spec) -> bool:
    return any(arm.prior or arm.policy == "popularity" for arm in spec.arms)


def _needs_factors(spec: Spec) -> bool:
    return any(arm.policy in ("als", "mean-user") for arm in spec.arms)


def read_aids(folder: Path) -> Aids:
    """Return what arms may know of training users."""
    return Aids(
        PopulationPrior.load(folder / "prior") if (folder / "prior").exists() else None,
        Factors.load(folder / "factors") if (folder / "factors").exists() else None,
    )


def _oracle(world: World, users: np.ndarray[Any, np.dtype[np.int64]], rounds: int, once: bool) -> float:
    """Return what somebody who knew all chances would earn a user."""
    earned = []
    for user in users.tolist():
        chances = world.probabilities(user).astype(np.float64)
        best = np.sort(chances)[-min(rounds, len(chances)) :].sum() if once else rounds * chances.max()
        earned.append(float(best))
    return float(np.mean(earned))


def _is_world(path: Path) -> bool:
    if not artefact.is_artefact(path):
        return False
    try:
        told = msgspec.json.decode((path / artefact.MANIFEST).read_bytes())
    except msgspec.DecodeError:
        return False
    return isinstance(told, dict) and told.get("format") == FORMAT


def _names_of(world: World, rows: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
    return [str(row) for row in rows] if world.user_ids is None else world.user_ids.cast(pl.String)[rows].to_list()


def _part_of(world: World, split: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a fifth of a world's users for validation, and all others for test."""
    count = world.users // 5
    if split == "validation" and count == 0:
        raise InvalidArgument("experiment", "data", "a world of at least 5 users, to have some for validation", world)
    fifth = np.sort(rng.sample(0, rng.stream("validation users"), world.users, count))
    return fifth if split == "validation" else np.setdiff1d(np.arange(world.users), fifth)


def _check_categories(spec: Spec, catalogue: Catalogue) -> None:
    needy = [arm.label for arm in spec.arms if arm.build(spec.budget).needs_categories]
    if needy and catalogue.categories is None:
        raise InvalidArgument("experiment", "data", f"with categories, which {', '.join(needy)} need(s)", spec.data)


def _with_vectors(spec: Spec, data: Dataset, progress: Progress) -> Catalogue:
    if data.catalogue.dim:
        return data.catalogue
    train = data.part("train")
    dim = min(spec.dim, len(data.catalogue), max(1, train.users.n_unique()))
    return svd_vectors(train, data.catalogue, dim, seed=spec.seed, progress=progress)


def _rows_of(world: World, users: pl.Series, split: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return which of the world's users are of the split."""
    ids = pl.DataFrame({"user": world.user_ids, "row": np.arange(world.users)})
    wanted = users if users.dtype.is_integer() else users.cast(pl.String)
    rows = ids.filter(pl.col("user").is_in(wanted.implode()))["row"].to_numpy()
    if not len(rows):
        raise DataError(f"none of the {len(users)} users for {split} has rewarded anything")
    return rows
