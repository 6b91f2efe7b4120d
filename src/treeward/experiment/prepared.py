"""What the folder of an experiment holds before its cells run, by name: how to read it, and how to reuse another's."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from treeward.bandit import Crowd
from treeward.core.errors import ArtefactError, InvalidArgument
from treeward.core.version import __version__
from treeward.embed.features import load_features
from treeward.experiment.baselines import NEXT_CLICK_MODELS, Factors
from treeward.experiment.profile_quality import Past
from treeward.experiment.spec import Spec, TrainedParts
from treeward.learn.next_click import NextClick
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

SPEC = "spec.toml"
_TRAINED: dict[str, Callable[[Path], Any]] = {
    "prior": Crowd.load,
    "tree-prior": ItemTree.load,
    "factors": Factors.load,
    "features": load_features,
    "deep-prior": Crowd.load,
    "tree-features": ItemTree.load,
    "tree-features-prior": ItemTree.load,
    **dict.fromkeys(NEXT_CLICK_MODELS, NextClick.load),
}
"""What is learned from training users, as far as arms need it, and how it is read."""
PREPARED = ("prepared.json", "tree", "past", *_TRAINED)
"""What cells read, besides the spec and the worlds."""
_SHARED = ("loader", "loader_options", "seed", "dim", "widths", "exposure", "negatives", "vectors", "shown")
"""Fields that say how vectors, worlds and tree are made: a run that reuses another's must have the same."""
_OWNER = "experiment"


def world_folder(number: int) -> str:
    """Return the name of the folder of a world; the first is number 0."""
    return "world" if number == 0 else f"world-{number + 1}"


def read_spec(folder: Path) -> Spec:
    """Return the spec of an experiment's folder."""
    path = folder / SPEC
    if not path.is_file():
        raise InvalidArgument(_OWNER, "folder", "one where an experiment was run", str(folder))
    return Spec.from_toml(path.read_text(encoding="utf-8"))


def read_prepared(folder: Path) -> dict[str, Any] | None:
    """Return what `prepare` wrote; None if it did not finish, or what it wrote was damaged."""
    try:
        told = msgspec.json.decode((folder / "prepared.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return told if isinstance(told, dict) and "spec_sha256" in told else None


def needed(spec: Spec) -> set[str]:
    """Return the names of what must be learned from training users for a spec's arms."""
    made = {arm.policy for arm in spec.arms if arm.policy in NEXT_CLICK_MODELS}
    if any((arm.prior and not arm.features) or arm.policy == "popularity" for arm in spec.arms):
        made |= {"prior", "tree-prior"}  # which also knows how popular items are
    if any(arm.policy in ("als", "mean-user") for arm in spec.arms):
        made.add("factors")
    if any(arm.features for arm in spec.arms):
        made |= {"features", "tree-features"}
    if any(arm.features and arm.prior for arm in spec.arms):
        made |= {"deep-prior", "tree-features-prior"}
    return made


def read_trained(folder: Path) -> TrainedParts:
    """Return what was learned from training users, as far as it is there."""
    found = {
        name: read(folder / name)
        for name, read in _TRAINED.items()
        if not name.startswith("tree") and (folder / name).exists()
    }
    models = {name: found[name] for name in NEXT_CLICK_MODELS if name in found}
    known = (found.get(name) for name in ("prior", "factors", "features", "deep-prior"))
    prior, factors, features, deep_prior = known
    return TrainedParts(prior, factors, models, features, deep_prior)


def is_whole(spec: Spec, folder: Path) -> bool:
    """Return whether everything that cells read is there, and as it was written: they do not verify it again."""
    try:
        for name in needed(spec):
            _TRAINED[name](folder / name)
        if spec.start:
            Past.load(folder / "past")
    except ArtefactError:
        return False
    for number in range(spec.worlds):
        World.load(folder / world_folder(number))
    ItemTree.load(folder / "tree")
    return True


def clear_trained(folder: Path) -> None:
    """Remove what another spec left that was not prepared to the end."""
    for name in (*_TRAINED, "past"):
        shutil.rmtree(folder / name, ignore_errors=True)


class ReusedRun(NamedTuple):
    """Another run on the same data, whose vectors, worlds, tree and trained parts are taken."""

    folder: Path
    spec: Spec
    prepared: dict[str, Any]

    @property
    def name(self) -> str:
        """What to call it in results: the digest of its spec."""
        return str(self.prepared["spec_sha256"])

    def check_data(self, source: Mapping[str, Any]) -> None:
        """Refuse a run of other data, by the digest of what was read: for a log, of items, events and splits."""
        name = "content_sha256" if "content_sha256" in source else "sha256" if "sha256" in source else "world"
        theirs, ours = self.prepared["source"].get(name), source[name]
        if theirs != ours:
            rule = f"a run on the same data (its digest is {str(theirs)[:12]}, that of this data {str(ours)[:12]})"
            raise InvalidArgument(_OWNER, "prepared", rule, str(self.folder))

    def worlds(self, count: int) -> list[World]:
        """Return its worlds, at most `count`."""
        return [World.load(self.folder / world_folder(number)) for number in range(min(count, self.spec.worlds))]

    def copy_trained(self, folder: Path) -> None:
        """Copy what was learned from training users, as far as it is there."""
        for name in _TRAINED:
            if (self.folder / name).exists():
                shutil.copytree(self.folder / name, folder / name)


def check_reusable(spec: Spec, folder: Path) -> ReusedRun:
    """Return a run whose preparation serves another spec; refuse one that does not, before anything is computed."""
    if not folder.is_dir():
        raise InvalidArgument(_OWNER, "prepared", "the folder of a run", str(folder))
    prepared = read_prepared(folder)
    if prepared is None:
        raise InvalidArgument(_OWNER, "prepared", "the folder of a run that was prepared to the end", str(folder))
    if prepared.get("treeward") != __version__:
        rule = f"a run of this version, {__version__}"
        raise InvalidArgument(_OWNER, "prepared", rule, f"{folder}: of version {prepared.get('treeward', 'unknown')}")
    held = read_spec(folder)
    differs = spec.differences(held, _SHARED)
    if differs:
        rule = f"a run prepared in the same way, but it differs in {', '.join(differs)}"
        raise InvalidArgument(_OWNER, "prepared", rule, str(folder))
    return ReusedRun(folder, held, prepared)
