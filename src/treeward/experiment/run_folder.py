"""A folder with a spec and one checksummed cell per piece of work, so that a run can be stopped and resumed."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from treeward.core import artefact
from treeward.core.errors import ArtefactError, ArtefactExists, InvalidArgument
from treeward.core.progress import Progress
from treeward.core.tasks import tasks

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SPEC = "spec.json"


class Kind(NamedTuple):
    """What cells are saved as."""

    format: str
    version: int


def digest(spec: "DataclassInstance", free: Sequence[str] = ()) -> str:
    """Return what distinguishes a spec from all others, whatever its `free` fields are."""
    told = {name: value for name, value in asdict(spec).items() if name not in free}
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def claim(place: Path, spec: "DataclassInstance", free: Sequence[str] = ()) -> None:
    """Make the folder this experiment's; refuse one that holds another experiment, or anything else.

    The `free` fields of the spec that is there may differ; those of this one replace them.
    """
    held = place / SPEC
    if held.exists():
        mine, theirs = json.loads(json.dumps(asdict(spec))), _read(held)
        theirs |= {name: mine[name] for name in free}
        if theirs != mine:
            differs = ", ".join(name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name))
            what = f"holds another experiment, which differs in {differs} (see {SPEC} there)"
            raise ArtefactExists(f"{place}: {what}; choose another folder")
    elif any(one.name != ".lock" for one in place.iterdir()):
        raise ArtefactExists(f"{place}: is not empty, and holds no experiment; choose another folder")
    artefact.write_file(held, json.dumps(asdict(spec), indent=1).encode())


def read_spec(place: Path) -> dict[str, Any]:
    """Return the fields of a folder's spec, as JSON has them."""
    if not (place / SPEC).is_file():
        raise InvalidArgument("experiment", "folder", "one where an experiment was run", str(place))
    return _read(place / SPEC)


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path}: cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise ArtefactError(f"{path}: holds no spec")
    return told


def read_cell(place: Path, name: str, kind: Kind, wanted: str) -> artefact.Contents | None:
    """Return a finished cell of the spec with this digest; None if there is none, or it is damaged."""
    try:
        found = artefact.read(place / "cells" / name, *kind)
    except ArtefactError:
        return None
    return found if found.info.get("spec_sha256") == wanted else None


def run_cells(
    place: Path,
    cells: Mapping[str, tuple[Any, ...]],
    kind: Kind,
    wanted: str,
    work: Callable[..., artefact.Contents],
    shared: Sequence[str],
    *,
    processes: int | None,
    on: str,
    report: Progress,
) -> None:
    """Compute the cells that are not there yet: ``work(folder, *cell)``, where tasks can read the names in `shared`."""
    left = [name for name in cells if read_cell(place, name, kind, wanted) is None]
    before = len(cells) - len(left)
    report("cells", before, len(cells))
    if not left:
        return
    for name in left:  # also what is damaged
        shutil.rmtree(place / "cells" / name, ignore_errors=True)
    with tasks(on, processes) as workers:
        folder = workers.share(place, [SPEC, *shared])
        pieces = [(folder, *cells[name]) for name in left]
        for done, (number, made) in enumerate(workers.each(work, pieces), before + 1):
            artefact.write(place / "cells" / left[number], *kind, made, overwrite=True)
            report("cells", done, len(cells))


def finished(place: Path, names: Sequence[str], kind: Kind, wanted: str) -> list[artefact.Contents]:
    """Return all cells of a finished run."""
    found = [read_cell(place, name, kind, wanted) for name in names]
    made = [one for one in found if one is not None]
    if len(made) < len(found):
        rule = "of a finished experiment; run it again to go on where it stopped"
        missing = f"{place}: {len(found) - len(made)} of {len(found)} cells are missing"
        raise InvalidArgument("report", "folder", rule, missing)
    return made
