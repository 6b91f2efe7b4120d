"""What all loaders share: options, the split of users, and the record of what was read and left out."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.data.dataset import Dataset, Sizes, given_split, split_users
from treeward.data.delimited import Reading
from treeward.data.interactions import Interactions


class Loaded(NamedTuple):
    """What the files of a data set hold."""

    name: str
    catalogue: Catalogue
    interactions: Interactions
    source: dict[str, Any]
    """How it was read, for `Dataset.source`: numbers, texts, lists and mappings."""
    sizes: Sizes = Sizes(0.2, 0.1)
    """Users for test and validation unless the caller says otherwise."""
    earlier: pl.Series | None = None
    """Users of a part of the files that is meant for training; all others are for test. None: users are drawn."""
    random: Interactions | None = None
    user_features: pl.DataFrame | None = None
    decisions: pl.DataFrame | None = None
    """See `Dataset`."""


def loader(name: str) -> Callable[[Callable[..., Loaded]], Callable[..., Dataset]]:
    """Make a loader of a function that reads files: ``read(path, reading, **options) -> Loaded``.

    The loader takes the function's own options and those that all loaders take:

    test, validation
        Users for test and validation: numbers, or shares of all.
    seed
        Draws who is for what.
    strict
        Raise at the first malformed line.
    progress
        Called with (stage, done, total).
    """

    def made(read: Callable[..., Loaded]) -> Callable[..., Dataset]:
        def load(
            path: Path,
            *,
            test: int | float | None = None,
            validation: int | float | None = None,
            seed: int = 0,
            strict: bool = False,
            progress: Progress | None = None,
            **options: Any,
        ) -> Dataset:
            reading = Reading(strict, progress)
            found = read(path, reading, **options)
            sizes = Sizes(
                found.sizes.test if test is None else test, found.sizes.validation if validation is None else validation
            )
            users = found.interactions.users.unique()
            users = users.cast(pl.Int64 if users.dtype.is_integer() else pl.String)
            if found.earlier is None:
                splits = split_users(users, sizes, seed)
            else:
                splits = given_split(users, found.earlier, sizes.validation, seed)
            source = {"loader": name, "sha256": reading.digest.hexdigest(), **found.source, **sizes._asdict()}
            parts = found.catalogue, found.interactions, splits
            extra = {name: getattr(found, name) for name in ("random", "user_features", "decisions")}
            return Dataset(found.name, *parts, dropped=reading.found, source=source | {"seed": seed}, **extra)

        # What `load_dataset` checks options against.
        own = list(signature(read).parameters.values())[2:]
        shared = [one for one in signature(load).parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        load.__signature__ = Signature([shared[0], *own, *shared[1:]])  # type: ignore[attr-defined]
        load.__doc__ = read.__doc__
        return load

    return made
