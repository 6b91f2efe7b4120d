"""What the folder of an experiment holds, by name."""

from pathlib import Path
from typing import Any

import msgspec

from treeward.core.errors import InvalidArgument
from treeward.experiment.baselines import FORESEEING
from treeward.experiment.spec import Spec

DEEP = ("features", "deep-prior", "tree-features", "tree-features-prior")
AIDS = ("prior", "tree-prior", "factors", *DEEP, *FORESEEING)
"""What arms may know of training users, as far as the spec asks for it."""
PREPARED = ("prepared.json", "tree", "past", *AIDS)
"""What cells read, besides the spec and the worlds."""


def world_folder(number: int) -> str:
    """Return the name of the folder of a world; the first is number 0."""
    return "world" if number == 0 else f"world-{number + 1}"


def read_spec(folder: Path) -> Spec:
    """Return the spec of an experiment's folder."""
    path = folder / "spec.toml"
    if not path.is_file():
        raise InvalidArgument("experiment", "folder", "one where an experiment was run", str(folder))
    return Spec.from_toml(path.read_text(encoding="utf-8"))


def read_prepared(folder: Path) -> dict[str, Any] | None:
    """Return what `prepare` wrote; None if it did not come so far, or what it wrote was damaged."""
    try:
        told = msgspec.json.decode((folder / "prepared.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return told if isinstance(told, dict) and "spec_sha256" in told else None
