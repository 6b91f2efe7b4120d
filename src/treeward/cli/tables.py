"""`--column ROLE=NAME`: which column of a table is what; the same for logs and for items, in every command."""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treeward.cli.console import say, timed, warn
from treeward.core.errors import InvalidArgument
from treeward.data.column_roles import ITEM_ROLES, LOG_ROLES

if TYPE_CHECKING:
    from treeward.bandit.crowd import Crowd
    from treeward.data.catalogue import Catalogue

ItemColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Which column of the table is what, e.g. --column id=sku --column title=name. "
        f"Roles: {', '.join(ITEM_ROLES)}. Repeatable.",
        show_default=False,
    ),
]
LogColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Which column of a table is what, e.g. --column user=visitor --column id=sku. "
        f"Roles of a log: {', '.join(LOG_ROLES)}; of items: {', '.join(ITEM_ROLES)}. Repeatable.",
        show_default=False,
    ),
]


def pairs(option: str, given: list[str] | None, example: str) -> dict[str, str]:
    """Return what was given as NAME=VALUE, each name once; `option` is what it was given with."""
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
    """Return a path for the command to type next, at which there is nothing yet."""
    taken = (number for number in count(2) if not Path(f"{name}{number}").exists())
    return f"{name}{next(taken)}" if Path(name).exists() else name


def sides(column: list[str] | None) -> tuple[list[str], list[str]]:
    """Return what --column says of the log, and what it says of the items, for a command that reads one of each."""
    columns = columns_of(column, (*LOG_ROLES, *ITEM_ROLES))
    of_log, of_items = ([f"{role}={columns[role]}" for role in columns if role in r] for r in (LOG_ROLES, ITEM_ROLES))
    return of_log, of_items


def load_items(
    path: Path, column: list[str] | None = None, vectors: Path | None = None, *, need_vectors: bool = True
) -> "Catalogue":
    """Read items as the user gave them, and say so where their ids are mere row numbers."""
    from treeward.data.catalogue import Catalogue

    with timed(f"Reading {path}"):
        made = Catalogue.load(path, columns=columns_of(column), vectors=vectors, need_vectors=need_vectors)
    if made.ids_are_row_numbers:
        others = ", ".join(made.table.columns[1:]) or "no others"
        say(
            f"{path}: no column is called id, so items go by their row numbers, 0 to {len(made) - 1}. "
            f"If a column holds their ids, say which: --column id=NAME (it has {others})"
        )
    return made


def load_prior(owner: str, path: Path, catalogue: "Catalogue") -> "Crowd":
    """Read a prior, and refuse one that was fitted to other vectors than the items have."""
    from treeward.bandit.changed_vectors import check_vectors
    from treeward.bandit.crowd import Crowd

    made = Crowd.load(path)
    if catalogue.dim == made.dim:  # else it is refused by what it makes of them
        check_vectors(owner, made, catalogue, path)
    return made


def compare_columns(shop: "Catalogue", there: "Catalogue", like: Path) -> None:
    """Warn of columns that a service of the old items would refuse."""
    more, lacking = ([name for name in one.schema if name not in two.schema]
                     for one, two in ((shop, there), (there, shop)))  # fmt: skip
    if not more:
        return
    role = next((name for name in lacking if name in ITEM_ROLES), None)
    fix = f"If one is the {role}: --column {role}={more[0]}. " if role else ""
    warn(
        f"{like} has no column {', '.join(more)}: a service of those items refuses new ones that have it. "
        f"{fix}Else leave it out. {like} has {', '.join(there.schema)}."
    )
