"""`Dataset`: a catalogue, its log, the split of users, and where it all came from."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import polars as pl

from treeward.core import artefact, checks, rng
from treeward.core.artefact import StrPath
from treeward.core.errors import InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.data.delimited import Problem
from treeward.data.interactions import Interactions

FORMAT, VERSION = "treeward.dataset", 1

SPLITS = ("train", "validation", "test")
Split = Literal["train", "validation", "test"]


class Dataset:
    """Items, events, and which users are for training, validation and test.

    Vectors, trees and priors are made from training users only, parameters tuned on validation users, and results
    reported on test users.

    Parameters
    ----------
    name
        A name for reports.
    catalogue
        The items; they need no vectors yet.
    interactions
        The events.
    splits
        (user, split): every user of the log, once.
    dropped
        What was left out, how often, and where first.
    source
        How it was read: loader, options, digest of the files.
    random
        Events of items that were shown at random, where the data has them apart: they belong to no split.
    user_features
        A column `user`, and numeric columns.
    decisions
        What a known policy decided, as `off_policy` reads it: user, row, slot, propensity, reward.
    """

    def __init__(
        self,
        name: str,
        catalogue: Catalogue,
        interactions: Interactions,
        splits: pl.DataFrame,
        *,
        dropped: Mapping[str, Problem] | None = None,
        source: Mapping[str, Any] | None = None,
        random: Interactions | None = None,
        user_features: pl.DataFrame | None = None,
        decisions: pl.DataFrame | None = None,
    ) -> None:
        self.name, self.catalogue, self.interactions, self.splits = name, catalogue, interactions, splits
        self.dropped, self.source = dict(dropped or {}), dict(source or {})
        self.random, self.user_features, self.decisions = random, user_features, decisions

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {self.interactions!r}, {len(self.catalogue):,} items listed)"

    def users(self, split: Split) -> pl.Series:
        """Return the users of a split."""
        checks.one_of("Dataset.users", "split", split, SPLITS)
        return self.splits.filter(pl.col("split") == split)["user"]

    def part(self, split: Split) -> Interactions:
        """Return the events of a split's users."""
        return self.interactions.of_users(self.users(split))

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write everything to a directory, with checksums."""
        tables = {"items": self.catalogue.table, "events": self.interactions.table, "splits": self.splits}
        random = None if self.random is None else self.random.table
        extra = {"random": random, "user_features": self.user_features, "decisions": self.decisions}
        contents = artefact.Contents(
            {"vectors": self.catalogue.vectors},
            tables | {name: table for name, table in extra.items() if table is not None},
            {},
            {
                "name": self.name,
                "dropped": {reason: list(problem) for reason, problem in self.dropped.items()},
                "source": self.source,
            },
        )
        artefact.write(path, FORMAT, VERSION, contents, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath, *, verify: bool = True) -> Self:
        """Read what `save` wrote."""
        contents = artefact.read(path, FORMAT, VERSION, verify=verify)
        info, random = contents.info, contents.tables.get("random")
        return cls(
            info["name"],
            Catalogue.of_table(contents.tables["items"], contents.arrays["vectors"]),
            Interactions.of_table(contents.tables["events"]),
            contents.tables["splits"],
            dropped={reason: Problem(*problem) for reason, problem in info["dropped"].items()},
            source=info["source"],
            random=None if random is None else Interactions.of_table(random),
            user_features=contents.tables.get("user_features"),
            decisions=contents.tables.get("decisions"),
        )


class Sizes(NamedTuple):
    """Users for test and validation: numbers, or shares of all users."""

    test: int | float
    validation: int | float


def split_users(users: pl.Series, sizes: Sizes, seed: int) -> pl.DataFrame:
    """Return (user, split) for every user, drawn at random.

    Examples
    --------
    >>> made = split_users(pl.Series(range(10)), Sizes(test=3, validation=0.2), seed=0)
    >>> sorted(made["split"].to_list())[:3], made["user"].to_list() == list(range(10))
    (['test', 'test', 'test'], True)
    """
    checks.integer("split_users", "seed", seed, low=0)
    everybody = users.unique(maintain_order=True).sort()  # the split must not depend on the order of the log
    counts = {name: _count(name, size, len(everybody)) for name, size in sizes._asdict().items()}
    if sum(counts.values()) >= max(2, len(everybody)):
        rule = f"sizes that leave some of the {len(everybody)} users for training"
        raise InvalidArgument("split_users", "sizes", rule, counts)
    order = rng.sample(seed, rng.stream("split"), len(everybody), len(everybody))
    split = np.full(len(everybody), SPLITS[0], dtype=object)
    split[order[: counts["test"]]] = "test"
    split[order[counts["test"] : counts["test"] + counts["validation"]]] = "validation"
    return pl.DataFrame({"user": everybody, "split": pl.Series(split.tolist(), dtype=pl.Enum(SPLITS))})


def _count(name: str, size: int | float, users: int) -> int:
    if isinstance(size, int) and not isinstance(size, bool):
        return checks.integer("split_users", name, size, low=0)
    return int(users * checks.number("split_users", name, size, low=0, below=1))


def given_split(users: pl.Series, earlier: pl.Series, validation: int | float, seed: int) -> pl.DataFrame:
    """Return (user, split): the earlier users are for training and validation, all others for test."""
    splits = split_users(earlier, Sizes(0, validation), seed)
    others = users.unique().sort()
    others = others.filter(~others.is_in(earlier.implode())).rename("user")
    return pl.concat([splits, pl.DataFrame(others).with_columns(pl.lit("test", pl.Enum(SPLITS)).alias("split"))])
