"""The folder of a run: its spec, and one checksummed artefact per cell, so that a run can be stopped and resumed.

A cell is a piece of work that depends on nothing but the spec: one arm, one repeat and, for some kinds of experiment,
some of the users. It is written once, whole, and never computed again.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from treeward.core import artefact
from treeward.core.errors import ArtefactError, ArtefactExists, ArtefactWrite, InvalidArgument
from treeward.core.locks import lock_whole
from treeward.core.progress import Progress
from treeward.core.tasks import tasks

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SPEC = "spec.json"


class Kind(NamedTuple):
    """What cells are saved as."""

    format: str
    version: int


def cell_seed(seed: int, repeat: int) -> int:
    """Return the seed of a repeat; experiments with neighbouring seeds share none."""
    return int.from_bytes(sha256(f"{seed}/{repeat}".encode()).digest()[:6], "little")


def digest(spec: "DataclassInstance", free: Sequence[str] = ()) -> str:
    """Return what distinguishes a spec from all others, whatever its `free` fields are."""
    told = {name: value for name, value in asdict(spec).items() if name not in free}
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Make the folder and keep other runs out of it; the lock goes with the process, however it ends."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtefactWrite(f"{place}: cannot be made ({error.strerror})") from error
    with (place / ".lock").open("w") as file:
        try:
            alone = lock_whole(file)
        except OSError as error:  # the file system has no locks
            raise ArtefactWrite(f"{place}: cannot be locked ({error.strerror})") from error
        if not alone:
            raise ArtefactExists(f"{place}: another run is at work there")
        yield


def refuse_strangers(place: Path, spec: str = SPEC) -> None:
    """Refuse a folder that holds something else than a run."""
    if place.exists() and not place.is_dir():
        raise ArtefactExists(f"{place}: is not a folder")
    if place.exists() and not (place / spec).exists() and any(one.name != ".lock" for one in place.iterdir()):
        raise ArtefactExists(f"{place}: is not empty, and holds no experiment; choose another folder")


def claim(place: Path, spec: "DataclassInstance", free: Sequence[str] = ()) -> None:
    """Make the folder this experiment's; refuse one that holds another experiment, or anything else.

    The `free` fields of the spec that is there may differ; those of this one replace them.
    """
    refuse_strangers(place)
    held = place / SPEC
    if held.exists():
        mine, theirs = json.loads(json.dumps(asdict(spec))), read_spec(place)
        theirs |= {name: mine[name] for name in free}
        if theirs != mine:
            differs = ", ".join(name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name))
            what = f"holds another experiment, which differs in {differs} (see {SPEC} there)"
            raise ArtefactExists(f"{place}: {what}; choose another folder")
    artefact.write_file(held, json.dumps(asdict(spec), indent=1).encode())


def read_spec(place: Path) -> dict[str, Any]:
    """Return the fields of a folder's spec, as JSON has them."""
    path = place / SPEC
    if not path.is_file():
        raise InvalidArgument("experiment", "folder", "one where an experiment was run", str(place))
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path}: cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise ArtefactError(f"{path}: holds no spec")
    return told


def read_cell(
    place: Path, name: str, kind: Kind, spec_digest: str, code: str | None = None
) -> artefact.Contents | None:
    """Return a finished cell of this spec and, if given, of this code; None if there is none, or it is damaged."""
    try:
        found = artefact.read(place / "cells" / name, *kind)
    except ArtefactError:
        return None
    right = found.info.get("spec_sha256") == spec_digest and code in (None, found.info.get("code"))
    return found if right else None


def run_cells(
    place: Path,
    cells: Mapping[str, tuple[Any, ...]],
    kind: Kind,
    spec_digest: str,
    work: Callable[..., artefact.Contents],
    shared: Sequence[str],
    *,
    processes: int | None,
    on: str,
    report: Progress,
    codes: Mapping[str, str] | None = None,
) -> None:
    """Compute the cells that are not there yet: ``work(folder, *cell)``, where tasks can read the names in `shared`.

    `codes`: the digest of the code that a cell runs, by its name; results of other code are computed again.
    """
    left = [name for name in cells if read_cell(place, name, kind, spec_digest, (codes or {}).get(name)) is None]
    before = len(cells) - len(left)
    report("cells", before, len(cells))
    if not left:
        return
    for name in left:  # also what is damaged, or was computed for another spec
        shutil.rmtree(place / "cells" / name, ignore_errors=True)
    with tasks(on, processes) as workers:
        folder = workers.share(place, list(shared))
        pieces = [(folder, *cells[name]) for name in left]
        for done, (number, made) in enumerate(workers.each(work, pieces), before + 1):
            artefact.write(place / "cells" / left[number], *kind, made, overwrite=True)
            report("cells", done, len(cells))


def finished(place: Path, names: Sequence[str], kind: Kind, spec_digest: str) -> list[artefact.Contents]:
    """Return all cells of a finished run."""
    found = [read_cell(place, name, kind, spec_digest) for name in names]
    made = [one for one in found if one is not None]
    if len(made) < len(found):
        rule = "of a finished experiment; run it again to go on where it stopped"
        missing = f"{place}: {len(found) - len(made)} of {len(found)} cells are missing"
        raise InvalidArgument("report", "folder", rule, missing)
    return made
