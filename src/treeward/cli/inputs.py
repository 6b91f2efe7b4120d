"""Logs and items as users give them: the options that say how to read a table, and the reading itself."""

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.bandit.changed_vectors import check_vectors
from treeward.bandit.crowd import Crowd
from treeward.cli.console import progress, say, timed, warn
from treeward.cli.options import ITEMS, Columns
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.registry import LOADERS
from treeward.data.catalogue import Catalogue
from treeward.data.column_roles import ITEM_ROLES, LOG_ROLES
from treeward.data.dataset import Dataset
from treeward.data.loaders import load_dataset

Data = Annotated[
    Path,
    typer.Argument(
        help="MIND, Taobao, MovieLens, MovieTweetings, Coat, Open Bandit, RecBole's files or sequences as published, a "
        "table of events, or saved data.",
        show_default=False,
    ),
]
Items = Annotated[Path, typer.Argument(help=ITEMS, show_default=False)]
Loader = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(LOADERS)}, or your own: FILE.py:FUNCTION. Default: inferred from the file names.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class LogFlags:
    """How to read a log: the options of every command that reads one."""

    loader: Loader = None
    loader_option: Annotated[
        list[str] | None,
        typer.Option(
            help="An option of the loader, e.g. --loader-option least=10 --loader-option test=0.2. Repeatable.",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None
    column: Columns = None
    action: Annotated[
        list[str] | None,
        typer.Option(
            help="Reward of an action of the log, e.g. --action view=0.1 --action cart=0.5 --action buy=1; 0: a skip. "
            "Events of other actions are left out. Repeatable. Default: the reward column, or 1 for every event.",
            metavar="NAME=WEIGHT",
            show_default=False,
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """Return the options for the loader."""
        given = {}
        for name, text in pairs("--loader-option", self.loader_option, "NAME=VALUE, e.g. test=0.2").items():
            try:
                given[name] = json.loads(text)
            except ValueError:
                given[name] = text
            # The `items` of a synthetic world are a number; those of a log have a flag.
            if name in _FLAGS and not (name == "items" and isinstance(given[name], int) and given[name] >= 100):
                rule = f"an option that is not given as {_FLAGS[name]}"
                raise InvalidArgument("treeward", "--loader-option", rule, name)
        columns = columns_of(self.column, (*LOG_ROLES, *ITEM_ROLES))
        return given | ({"columns": columns} if columns else {}) | ({"actions": self._weights()} if self.action else {})

    def read(self, data: Path, *, strict: bool = False) -> Dataset:
        """Read the log, and say so where every event counts the same although the log distinguishes actions."""
        options = self.options()
        with progress() as report:
            made = load_dataset(data, self.loader, strict=strict, progress=report, **options)
        log = made.interactions.table
        if made.source.get("rewards") != "every event":
            return made
        if "action" in log.columns:
            found = log.group_by("action").len().sort("len", descending=True).head(9).iter_rows()
            counts = ", ".join(f"{name} {events:,}" for name, events in found)
            hint = "Weights: --action NAME=WEIGHT for each that counts."
            say(f"Every event counts 1, whatever its action ({counts}). {hint}")
        elif made.source.get("not_used"):
            say(
                f"Columns not used: {', '.join(made.source['not_used'])}. Every event counts 1. If one distinguishes "
                "views from purchases: --column action=NAME, and --action NAME=WEIGHT for each that counts."
            )
        return made

    def words(self) -> list[str]:
        """Return these options as they are typed, for a command that reads the same log but other items."""
        words = [] if self.loader is None else ["--loader", self.loader]
        of_log = [f"{role}={name}" for role, name in self.split()[0].items()]
        for option, given in (("--loader-option", self.loader_option), ("--column", of_log), ("--action", self.action)):
            words += [word for one in given or [] for word in (option, one)]
        return words

    def split(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the columns of the log and those of the items, by role."""
        columns = columns_of(self.column, (*LOG_ROLES, *ITEM_ROLES))
        of_log, of_items = ({role: columns[role] for role in columns if role in r} for r in (LOG_ROLES, ITEM_ROLES))
        return of_log, of_items

    def of_log(self) -> "LogFlags":
        """Return these options without the columns of items, for a log whose items are read apart."""
        return LogFlags(
            self.loader, self.loader_option, [f"{role}={n}" for role, n in self.split()[0].items()], self.action
        )

    def _weights(self) -> dict[str, float]:
        made = {}
        for name, weight in pairs("--action", self.action, "NAME=WEIGHT, e.g. buy=1").items():
            try:
                made[name] = float(weight)
            except ValueError as error:
                raise InvalidArgument("treeward", "--action", "of the form NAME=WEIGHT", f"{name}={weight}") from error
        return made


@dataclass(frozen=True)
class LogAndItemFlags(LogFlags):
    """How to read a log and the table of its items."""

    items: Annotated[
        Path | None,
        typer.Option(help="Table or saved catalogue of the log's items; needs no vectors.", show_default=False),
    ] = None

    def options(self) -> dict[str, Any]:
        """Return the options for the loader."""
        return super().options() | ({} if self.items is None else {"items": str(self.items)})


_FLAGS = {
    "columns": "--column", "actions": "--action", "items": "--items", "strict": "--strict", "path": "DATA",
    "progress": "a progress bar",
}  # fmt: skip


def pairs(option: str, given: list[str] | None, example: str) -> dict[str, str]:
    """Return what was given as NAME=VALUE, each name once; `option` is the option it was given with."""
    made: dict[str, str] = {}
    for entry in given or []:
        name, equals, value = entry.partition("=")
        if not equals or not name or not value:
            raise InvalidArgument("treeward", option, f"of the form {example}", entry)
        if name in made:
            raise InvalidArgument("treeward", option, f"given once for {name}", f"{name}={made[name]} and {entry}")
        made[name] = value
    return made


def columns_of(given: list[str] | None, roles: tuple[str, ...] = ITEM_ROLES) -> dict[str, str]:
    """Return the columns that --column names, by role."""
    made = pairs("--column", given, "ROLE=NAME, e.g. id=sku")
    for role in made:
        if role not in roles:
            raise InvalidArgument("treeward", "--column", f"a role of {', '.join(roles)}, then =NAME", role)
    return made


def fresh(name: str) -> str:
    """Return a path at which nothing exists yet, for a suggested command."""
    free = (number for number in count(2) if not Path(f"{name}{number}").exists())
    return f"{name}{next(free)}" if Path(name).exists() else name


def load_items(
    path: Path, columns: dict[str, str] | None = None, vectors: Path | None = None, *, need_vectors: bool = True
) -> Catalogue:
    """Read items, and say so where their ids are mere row numbers."""
    with timed(f"Reading {path}"):
        made = Catalogue.load(path, columns=columns, vectors=vectors, need_vectors=need_vectors)
    if not len(made):
        raise DataError(f"{path}: holds no items")
    if made.ids_are_row_numbers:
        others = ", ".join(made.table.columns[1:]) or "no others"
        say(
            f"{path}: no column is called id, so items go by their row numbers, 0 to {len(made) - 1}. "
            f"If a column holds their ids, say which: --column id=NAME (it has {others})"
        )
    return made


def load_prior(owner: str, path: Path, catalogue: Catalogue) -> Crowd:
    """Read a prior, and refuse one that was fitted to other vectors than the items have."""
    made = Crowd.load(path)
    if catalogue.dim == made.dim:  # another number of dimensions is refused when the prior is applied
        check_vectors(owner, made, catalogue, path)
    return made


def compare_columns(shop: Catalogue, existing: Catalogue, like: Path) -> None:
    """Warn of columns that a service of the existing items would refuse."""
    more, lacking = ([name for name in one.schema if name not in two.schema]
                     for one, two in ((shop, existing), (existing, shop)))  # fmt: skip
    if not more:
        return
    role = next((name for name in lacking if name in ITEM_ROLES), None)
    fix = f"If one is the {role}: --column {role}={more[0]}. " if role else ""
    warn(
        f"{like} has no column {', '.join(more)}: a service of those items refuses new ones that have it. "
        f"{fix}Else leave it out. {like} has {', '.join(existing.schema)}."
    )
