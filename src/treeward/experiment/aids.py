"""What arms may know of training users: priors, factors, features and models of the next click."""

import shutil
from pathlib import Path

from treeward.bandit import Crowd
from treeward.core.errors import ArtefactError
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.embed.features import load_features
from treeward.embed.neural import NeuralLinear
from treeward.experiment.baselines import FORESEEING, Factors
from treeward.experiment.folder import AIDS
from treeward.experiment.profile_quality import Past
from treeward.experiment.spec import Aids, Spec
from treeward.learn.next_click import NextClick
from treeward.learn.torch import usual_device
from treeward.policy.beam import Beam
from treeward.tree.item_tree import ItemTree


def clear_aids(folder: Path) -> None:
    """Remove what another spec left that was not prepared to the end."""
    for name in (*AIDS, "past"):
        shutil.rmtree(folder / name, ignore_errors=True)


def write_aids(
    spec: Spec, train: Interactions, valid: Interactions | None, shop: Catalogue, folder: Path, progress: Progress
) -> None:
    """Fit what arms may know of training users, as far as it is not there yet."""
    if any(arm.features for arm in spec.arms):
        _write_features(spec, train, shop, folder, progress)
    if needs_prior(spec) and not (folder / "tree-prior").exists():
        prior = Crowd.fit(train, shop, negatives=spec.negatives, seed=spec.seed, progress=progress)
        prior.save(folder / "prior", overwrite=True)
        Beam(prior=prior).grow(shop, spec.seed, progress).save(folder / "tree-prior", overwrite=True)
    if needs_factors(spec) and not (folder / "factors").exists():
        Factors.fit(train, shop, shop.dim, spec.seed).save(folder / "factors")
    for name in sorted(models_of(spec)):
        if (folder / name).exists():
            continue
        assert valid is not None
        model = NextClick.fit(
            FORESEEING[name], train, valid, shop, shop.dim, start=shop.vectors, seed=spec.seed,
            progress=progress,
        )  # fmt: skip
        model.save(folder / name, overwrite=True)


def _write_features(spec: Spec, train: Interactions, shop: Catalogue, folder: Path, progress: Progress) -> None:
    """Learn features, and what training users say of new ones in them, as far as it is not there yet."""
    if not (folder / "tree-features").exists():
        features = NeuralLinear.fit(
            train, shop, negatives=spec.negatives, seed=spec.seed, device=usual_device(), progress=progress
        )
        features.save(folder / "features", overwrite=True)
        seen = features.transform(shop)
        Beam(features=features).grow(seen, spec.seed, progress).save(folder / "tree-features", overwrite=True)
    if any(arm.features and arm.prior for arm in spec.arms) and not (folder / "tree-features-prior").exists():
        known = load_features(folder / "features")
        seen = known.transform(shop)
        prior = Crowd.fit(train, seen, negatives=spec.negatives, seed=spec.seed, progress=progress)
        prior.save(folder / "deep-prior", overwrite=True)
        grown = Beam(features=known, prior=prior).grow(seen, spec.seed, progress)
        grown.save(folder / "tree-features-prior", overwrite=True)


def whole(spec: Spec, folder: Path) -> bool:
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
        (aids.prior is not None or not needs_prior(spec))
        and (aids.factors is not None or not needs_factors(spec))
        and set(aids.models) >= models_of(spec)
        and (aids.features is not None or not any(arm.features for arm in spec.arms))
        and (aids.deep_prior is not None or not any(arm.features and arm.prior for arm in spec.arms))
    )


def models_of(spec: Spec) -> set[str]:
    """Return the models of the next click that arms go by."""
    return {arm.policy for arm in spec.arms if arm.policy in FORESEEING}


def needs_prior(spec: Spec) -> bool:
    """Tell whether an arm knows the population prior, or the popularity that comes with it."""
    return any((arm.prior and not arm.features) or arm.policy == "popularity" for arm in spec.arms)


def needs_factors(spec: Spec) -> bool:
    """Tell whether an arm goes by alternating least squares."""
    return any(arm.policy in ("als", "mean-user") for arm in spec.arms)


def read_aids(folder: Path) -> Aids:
    """Return what arms may know of training users."""
    return Aids(
        Crowd.load(folder / "prior") if (folder / "prior").exists() else None,
        Factors.load(folder / "factors") if (folder / "factors").exists() else None,
        {name: NextClick.load(folder / name) for name in FORESEEING if (folder / name).exists()},
        load_features(folder / "features") if (folder / "features").exists() else None,
        Crowd.load(folder / "deep-prior") if (folder / "deep-prior").exists() else None,
    )
