"""The loaders by name, and which of them a path is for."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from inspect import signature
from pathlib import Path

from treeward.core import artefact, checks, registry
from treeward.core.artefact import StrPath
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.registry import Registry, find, is_own
from treeward.data.dataset import Dataset
from treeward.data.tables import READERS

Loader = Callable[..., Dataset]

LOADERS: Registry[Loader] = Registry(registry.LOADERS)


def load_dataset(path: StrPath, loader: str | Loader | None = None, **options: object) -> Dataset:
    """Read data in its original form, or what `Dataset.save` wrote.

    Parameters
    ----------
    path
        A folder or file.
    loader
        ``"coat"``, ``"gorse"``, ``"mind"``, ``"movielens"``, ``"open-bandit"``, ``"recbole"``, ``"sequences"``,
        ``"tabular"`` or ``"taobao"``; by default inferred from the file names. One of your own: the function itself,
        ``"package.module:function"`` or ``"file.py:function"``.
    options
        What that loader takes. All loaders take `test` and `validation` (how many users, or which share of them, are
        for test and validation), `seed` (draws who is for what), `strict` (raise at the first malformed line) and
        `progress` (called with stage, done, total).
    """
    place = Path(path)
    if loader is None and artefact.is_artefact(place):
        others = sorted(set(options) - {"progress", "strict"})
        if others:
            raise InvalidArgument("load_dataset", "options", "none for saved data, which is as it was saved", others)
        return Dataset.load(place)
    name = kind_of(place) if loader is None else loader
    load = find_loader("load_dataset", name)
    name = name if isinstance(name, str) else getattr(name, "__qualname__", repr(name))
    takes = signature(load).parameters.values()
    known = {one.name for one in takes if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)} - {"path"}
    if not any(one.kind == one.VAR_KEYWORD for one in takes):
        for option in sorted(set(options) - known):
            rule = f"one of {', '.join(sorted(known)) or 'none'} for {name}"
            raise InvalidArgument("load_dataset", "options", rule, option)
    checks.flag(name, "strict", options.get("strict", False))
    made: object = load(place, **options)
    if not isinstance(made, Dataset):
        raise InvalidArgument("load_dataset", "loader", "a function that returns a Dataset", f"{name}: {made!r:.80}")
    return made


def find_loader(owner: str, loader: str | Loader) -> Loader:
    """Return a loader: one of `LOADERS` by name, one that is ``module:function`` or ``file.py:function``, or itself."""
    if not isinstance(loader, str):
        if not callable(loader):
            raise InvalidArgument(owner, "loader", "a name or a function", loader)
        return loader
    if not is_own(loader):
        return LOADERS[checks.one_of(owner, "loader", loader, LOADERS)]
    made: Loader = find(owner, "loader", loader, "a function")
    if not callable(made):
        raise InvalidArgument(owner, "loader", "a function", loader)
    return made


def kind_of(path: Path) -> str:
    """Return the name of the loader for a path."""
    if not path.exists():
        raise DataError(f"{path}: cannot be read: there is no such file or folder")
    for name in LOADERS:
        signs: tuple[str, ...] = getattr(LOADERS.module(name), "SIGNS", ())
        if any((path.is_dir() and any(path.glob(sign))) or fnmatchcase(path.name, sign) for sign in signs):
            return name
    if path.is_file() and path.suffix.lower() in READERS:
        return "tabular"
    raise DataError(
        f"{path}: of no form that treeward knows ({', '.join(LOADERS)}); say which (--loader NAME, or loader=)"
    )
