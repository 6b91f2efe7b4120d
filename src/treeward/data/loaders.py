"""The loaders by name, and which of them a path is for."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.errors import DataError, InvalidArgument
from treeward.data import mind, movielens, sequences, table, taobao
from treeward.data.dataset import Dataset
from treeward.data.tabular import READERS

LOADERS: dict[str, Callable[..., Dataset]] = {
    "mind": mind.load,
    "movielens": movielens.load,
    "sequences": sequences.load,
    "tabular": table.load,
    "taobao": taobao.load,
}

_SIGNS = {
    "behaviors.tsv": "mind",
    "*/behaviors.tsv": "mind",
    "UserBehavior.csv": "taobao",
    "ratings.csv": "movielens",
    "ratings.dat": "movielens",
    "u.data": "movielens",
    "sequences.txt": "sequences",
}


def load_dataset(path: StrPath, loader: str | None = None, **options: object) -> Dataset:
    """Read data in its original form, or what `Dataset.save` wrote.

    Parameters
    ----------
    path
        A folder or file.
    loader
        ``"mind"``, ``"movielens"``, ``"sequences"``, ``"tabular"`` or ``"taobao"``; by default told by the file names.
    options
        What that loader takes.
    """
    place = Path(path)
    if loader is None and artefact.is_artefact(place):
        others = sorted(set(options) - {"progress", "strict"})
        if others:
            raise InvalidArgument("load_dataset", "options", "none for saved data, which is as it was saved", others)
        return Dataset.load(place)
    name = kind_of(place) if loader is None else checks.one_of("load_dataset", "loader", loader, LOADERS)
    known = set(signature(LOADERS[name]).parameters) - {"path"}
    for option in options:
        if option not in known:
            raise InvalidArgument("load_dataset", "options", f"one of {', '.join(sorted(known))} for {name}", option)
    for option in ("strict", "until_stable", "complete_only"):
        if option in options:
            checks.flag(name, option, options[option])
    return LOADERS[name](place, **options)


def kind_of(path: Path) -> str:
    """Return the name of the loader for a path."""
    if not path.exists():
        raise DataError(f"{path}: cannot be read: there is no such file or folder")
    for sign, name in _SIGNS.items():
        if (path.is_dir() and any(path.glob(sign))) or path.name == sign:
            return name
    if path.is_file() and path.suffix.lower() in READERS:
        return "tabular"
    raise DataError(f"{path}: of no form that treeward knows ({', '.join(LOADERS)}); say which with loader")
