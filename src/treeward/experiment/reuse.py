"""Taking vectors, worlds, tree and aids from another run on the same data."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from treeward.core.errors import InvalidArgument
from treeward.core.version import __version__
from treeward.experiment.folder import AIDS, read_prepared, read_spec, world_folder
from treeward.experiment.spec import Spec
from treeward.simulate.world import World

SHARED = ("loader", "loader_options", "seed", "dim", "widths", "exposure", "negatives", "vectors", "shown")
"""Fields that say how vectors, worlds and tree are made: both runs must have the same."""
_OWNER = "experiment"


class Source(NamedTuple):
    """A run whose preparation is taken."""

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
        """Return its worlds, at most so many."""
        return [World.load(self.folder / world_folder(number)) for number in range(min(count, self.spec.worlds))]


def check_reusable(spec: Spec, folder: Path) -> Source:
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
    differs = spec.differences(held, SHARED)
    if differs:
        rule = f"a run prepared in the same way, but it differs in {', '.join(differs)}"
        raise InvalidArgument(_OWNER, "prepared", rule, str(folder))
    return Source(folder, held, prepared)


def copy_aids(source: Source, folder: Path) -> None:
    """Copy what arms may know of training users, as far as the other run has it."""
    for name in AIDS:
        if (source.folder / name).exists():
            shutil.copytree(source.folder / name, folder / name)
