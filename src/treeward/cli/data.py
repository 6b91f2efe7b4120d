"""`treeward data`: read data sets in their original form and say what is in them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.cli.tables import LogColumns, columns_of, pairs
from treeward.core.errors import InvalidArgument
from treeward.core.registry import LOADERS
from treeward.data.column_roles import ITEM_ROLES, LOG_ROLES

if TYPE_CHECKING:
    from treeward.data.dataset import Dataset
    from treeward.data.dataset_summary import DatasetSummary

app = typer.Typer(help="Read data sets in their original form.", no_args_is_help=True)

Data = Annotated[
    Path,
    typer.Argument(
        help="MIND, Taobao, MovieLens, MovieTweetings or sequences as published, a table of events, or saved data.",
        show_default=False,
    ),
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        help=f"{', '.join(LOADERS)}, or your own: FILE.py:FUNCTION. Default: inferred from the file names.",
        show_default=False,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="An option of the loader, e.g. --set least=10 --set test=0.2 --set until_stable=true. Repeatable.",
        show_default=False,
    ),
]
Actions = Annotated[
    list[str] | None,
    typer.Option(
        "--action",
        help="What an action of the log is worth, e.g. --action view=0.1 --action cart=0.5 --action buy=1; 0: a skip. "
        "Events of other actions are left out. Repeatable. Default: the reward column, or 1 for every event.",
        show_default=False,
    ),
]
LogItems = Annotated[
    Path | None,
    typer.Option("--items", help="Table or saved catalogue of a log's items; needs no vectors.", show_default=False),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")]


def read(
    path: Path,
    loader: str | None,
    options: list[str] | None,
    column: list[str] | None = None,
    action: list[str] | None = None,
    items: Path | None = None,
    *,
    strict: bool = False,
) -> "Dataset":
    """Read a data set, with bars; say so where every event counts the same although the log tells actions apart."""
    from treeward.data.loaders import load_dataset

    given = loader_options(options, column, action, items)
    for name in ("path", "strict", "progress"):
        if name in given:
            raise InvalidArgument("data", "--set", "an option of the loader", name)
    with progress() as report:
        made = load_dataset(path, loader, strict=strict, progress=report, **given)
    log = made.interactions.table
    if made.source.get("rewards") == "every event" and "action" in log.columns:
        found = log.group_by("action").len().sort("len", descending=True).head(9).iter_rows()
        told = ", ".join(f"{name} {count:,}" for name, count in found)
        say(f"Every event counts 1, whatever its action ({told}). Weights: --action NAME=WEIGHT for each that counts.")
    elif made.source.get("rewards") == "every event" and made.source.get("not_used"):
        say(
            f"Columns not used: {', '.join(made.source['not_used'])}. Every event counts 1. If one tells views from "
            "purchases: --column action=NAME, and --action NAME=WEIGHT for each that counts."
        )
    return made


def loader_options(
    options: list[str] | None, column: list[str] | None, action: list[str] | None, items: Path | None
) -> dict[str, Any]:
    """Return what a loader is told, of --set, --column, --action and --items."""
    given = given_options(options)
    told: dict[str, Any] = {
        "columns": columns_of(column, (*LOG_ROLES, *ITEM_ROLES)),
        "actions": _weights(action),
        "items": None if items is None else str(items),
    }
    for name, value in told.items():
        if value and name in given:
            raise InvalidArgument("data", "--set", f"used without the option for {name}", f"{name}={given[name]}")
    return given | {name: value for name, value in told.items() if value}


def _weights(action: list[str] | None) -> dict[str, float]:
    made = {}
    for name, weight in pairs("--action", action, "NAME=WEIGHT, e.g. buy=1").items():
        try:
            made[name] = float(weight)
        except ValueError as error:
            raise InvalidArgument("treeward", "--action", "of the form NAME=WEIGHT", f"{name}={weight}") from error
    return made


def given_options(options: list[str] | None) -> dict[str, Any]:
    """Return what was given as NAME=VALUE."""
    given = {}
    for option in options or []:
        name, equals, value = option.partition("=")
        if not equals:
            raise InvalidArgument("data", "--set", "of the form NAME=VALUE", option)
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given


@app.command()
def inspect(
    data: Data,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    strict: Strict = False,
    out: Annotated[
        Path | None, typer.Option("--save", help="Also write the data set to this directory.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Print what is in a data set, what was left out and why, and how its events are spread."""
    from treeward.data.dataset_summary import describe

    made = read(data, loader, options, column, action, items, strict=strict)
    show(describe(made))
    if out is not None:
        with timed("Saving"):
            made.save(out, overwrite=force)
        say(f"Saved to {out}")


def show(card: "DatasetSummary") -> None:
    """Print a card."""
    from treeward.data.dataset_summary import histogram

    table = Table(title=card.name, title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("")
    table.add_column("here", justify="right")
    others = {"before the filter": card.read, "paper": card.paper}
    compared = {title: counts for title, counts in others.items() if counts}
    for title in compared:
        table.add_column(title, justify="right")

    def row(name: str, value: str) -> None:
        table.add_row(name, value, *(f"{counts[name]:,}" if name in counts else "" for counts in compared.values()))

    more = {
        **{name: f"{getattr(card.counts, name):,}" for name in ("users", "items", "categories", "clicks", "skips")},
        **{name: f"{count:,}" for name, count in card.kinds.items()},
        "items listed": f"{card.counts.listed:,}",
        "share of clicks": f"{card.positive_share:.1%}",
        "density": f"{card.density:.3%}",
        **{f"{split} users": f"{users:,}" for split, users in card.splits.items()},
        **{f"action {action}": f"{count:,}" for action, count in card.actions.items()},
        **{f"action {action}, left out": f"{count:,}" for action, count in card.other_actions.items()},
        **dict(zip(("from", "to"), card.times or (), strict=False)),
    }
    for name, value in more.items():
        row(name, value)
    console.print(table)
    for what, values in (("events per user", card.events_a_user), ("events per item", card.events_an_item)):
        _bars(what, histogram(values))
    if card.dropped:
        left = Table(title="left out or noted", title_justify="left", box=SIMPLE_HEAD, padding=0)
        for name in ("what", "how many", "first"):
            left.add_column(name, justify="right" if name == "how many" else "left")
        for reason, (count, where) in card.dropped.items():
            left.add_row(reason, f"{count:,}", where)
        console.print(left)
    say(f"sha256 {card.source.get('sha256', 'unknown')}")


def _bars(what: str, counts: list[tuple[str, int]]) -> None:
    most = max((count for _, count in counts), default=1)
    table = Table(title=what, title_justify="left", box=None, padding=(0, 1), show_header=False)
    for label, count in counts:
        table.add_row(label, f"{count:,}", "█" * round(40 * count / most) or ("▏" if count else ""))
    console.print(table)
