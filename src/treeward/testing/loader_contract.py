"""The contract of a loader."""

import inspect
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from treeward.core.artefact import StrPath
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.dataset import SPLITS, Dataset
from treeward.testing.contract import ContractBroken, refuses, require


def check_loader(load: Callable[..., Dataset], path: StrPath, events: str | None = None) -> None:
    r"""Check that a loader reads the valid sample `path`, and reports what it left out of a copy with a malformed line.

    Parameters
    ----------
    load
        The loader: a function of a path and, by keyword, `test`, `validation`, `seed`, `strict` and `progress`.
    path
        A small, valid file or folder in its format, with the events of at least three users.
    events
        If `path` is a folder: the path, within it, of the file with the events.

    Examples
    --------
    >>> from treeward.data.loaders import sequences
    >>> with TemporaryDirectory() as folder:
    ...     sample = Path(folder, "sequences.txt")
    ...     _ = sample.write_text("1 10 11 12\n2 11 13\n3 10 13\n4 12\n")
    ...     check_loader(sequences.load, sample)
    """
    taken = set(inspect.signature(load).parameters)
    for option in ("test", "validation", "seed", "strict", "progress"):
        require(option in taken, f"a loader takes {option}")
    place = Path(path).resolve()  # so that "." has a name, too
    file = place / (events or "") if place.is_dir() else place
    require(file.is_file(), "where the path is a folder, `events` names a file in it")
    raw, reported = file.read_bytes(), list[tuple[str, int, int]]()
    made = load(place, seed=1, progress=lambda *step: reported.append(step))
    require(isinstance(made, Dataset), "it returns a Dataset")
    _check_dataset(made)
    require(
        reported and all(0 < done <= total for _, done, total in reported),
        "it reports its progress: stage, done, total",
    )
    require(_same_data(made, load(place, seed=1)), "the same file and seed give the same data")
    if made.splits.height >= 10:
        others = (load(place, seed=seed).splits for seed in range(2, 8))
        require(not all(other.equals(made.splits) for other in others), "another seed splits users another way")
    refuses(lambda: load(place, validation=-1), InvalidArgument, "a bad size of a split is an InvalidArgument")
    with TemporaryDirectory() as folder:
        _check_faults(load, made, place, file, Path(folder))
    require(file.read_bytes() == raw, "reading changes nothing")


def _check_dataset(made: Dataset) -> None:
    log = made.interactions
    require(made.name and isinstance(made.name, str), "the data has a name")
    require(len(log) > 0, "a sample with events gives events")
    require(made.splits.columns == ["user", "split"], "splits are a table of user and split")
    require(set(made.splits["split"].cast(pl.String)) <= set(SPLITS), f"a split is one of {', '.join(SPLITS)}")
    users = made.splits["user"]
    require(not users.is_duplicated().any(), "every user is in one split only")
    require(set(users.to_list()) == set(log.users.to_list()), "every user of the log is in a split, and no other user")
    require((made.splits["split"] == "train").any(), "some users are left for training")
    require(log.items.dtype.is_integer() == made.catalogue.ids.dtype.is_integer(), "items and ids are of one kind")
    unlisted = len(set(log.items.to_list()) - set(made.catalogue.ids.to_list()))
    require(unlisted == 0 or made.dropped, "items with events are in the catalogue, or counted in dropped")
    digest = str(made.source.get("sha256", ""))
    require(made.source.get("loader"), 'source["loader"] names the loader')
    require(re.fullmatch("[0-9a-f]{64}", digest), 'source["sha256"] is the digest of what was read')
    with TemporaryDirectory() as folder:
        try:
            made.save(Path(folder, "saved"))
        except TypeError as error:
            raise ContractBroken(f"broken: source holds only what JSON can hold: {error}") from error
        require(_same_data(Dataset.load(Path(folder, "saved")), made), "saved data is read back unchanged")


def _same_data(one: Dataset, other: Dataset) -> bool:
    return (
        one.interactions.table.equals(other.interactions.table)
        and one.catalogue.table.equals(other.catalogue.table)
        and one.splits.equals(other.splits)
        and (one.source, one.dropped) == (other.source, other.dropped)
    )


def _check_faults(load: Callable[..., Dataset], made: Dataset, place: Path, file: Path, folder: Path) -> None:
    """Check what a loader does with a malformed line, an empty file, and a missing file."""
    copy = folder / place.name
    (shutil.copytree if place.is_dir() else shutil.copyfile)(place, copy)
    spoilt, raw = copy / file.relative_to(place), file.read_bytes()
    spoilt.write_bytes(raw + (b"" if raw.endswith(b"\n") else b"\n") + b"this is \xff no line of it\n")
    try:
        found: Dataset | None = load(copy, seed=1)
    except DataError:  # a format may treat the whole file as damaged
        found = None
    except Exception as error:
        raise ContractBroken(f"broken: a malformed line is counted or a DataError, not {error!r}") from error
    if found is not None:
        before, after = (sum(problem.times for problem in data.dropped.values()) for data in (made, found))
        require(after > before, "a malformed line is counted in dropped, never ignored")
        require(len(found.interactions) == len(made.interactions), "other lines are read despite a malformed one")
        require(found.source["sha256"] != made.source["sha256"], "another file has another sha256")
    refuses(lambda: load(copy, strict=True), DataError, "with strict, a malformed line is a DataError")
    spoilt.write_bytes(b"")
    refuses(lambda: load(copy), DataError, "an empty file is a DataError")
    spoilt.unlink()
    refuses(lambda: load(copy), DataError, "a missing file is a DataError")
