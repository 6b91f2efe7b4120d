"""`treeward data`: read data sets in their original form and say what is in them."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import say, show_table, timed
from treeward.cli.inputs import Data, LogAndItemFlags
from treeward.cli.options import Force, expanded
from treeward.core import artefact, checks
from treeward.core.errors import DataError
from treeward.data.dataset import FORMAT
from treeward.data.dataset_summary import DatasetSummary, describe, histogram
from treeward.data.public_sets import PublicSet, check_copy, public_sets

app = typer.Typer()


@app.callback()
def _data() -> None:
    pass


@app.command()
@expanded
def inspect(
    data: Data,
    log: LogAndItemFlags,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")] = False,
    save: Annotated[
        Path | None, typer.Option(help="Also write the data set to this directory.", show_default=False)
    ] = None,
    force: Force = False,
) -> None:
    """Print what is in a data set, what was left out and why, and how its events are distributed."""
    if save is not None:
        artefact.check_free(save, FORMAT, (), overwrite=force)
    made = log.read(data, strict=strict)
    _show(describe(made))
    if save is not None:
        with timed("Saving"):
            made.save(save, overwrite=force)
        say(f"Saved to {save}")


@app.command()
def fetch(
    name: Annotated[str | None, typer.Argument(help="One of the data sets.", show_default=False)] = None,
    path: Annotated[
        Path | None, typer.Argument(help="The folder with your copy of it, to check.", show_default=False)
    ] = None,
) -> None:
    """Say where public data sets are found, under which terms, and which files are read. Nothing is downloaded.

    With a folder, check each file in it by SHA-256. Exits with 2 if one is missing or differs.
    """
    sets = public_sets()
    shown = sets if name is None else [checks.one_of("data fetch", "NAME", name, sets)]
    if name is None or path is None:
        for one in shown:
            _tell(one, sets[one])
        say(f"Nothing is downloaded. To check what you downloaded: treeward data fetch {name or 'NAME'} FOLDER")
        return
    known = sets[name]
    with timed("Computing SHA-256"):
        found = check_copy(known, path)
    for file in found:
        say(str(file))
    wrong = [file.file.name for file in found if file.copy is None]
    if wrong:
        say(known.note or f"The files are found at {known.found}")
        raise DataError(f"{path}: missing or different: {', '.join(wrong)}")
    say(f"All files of {name} are there, and none differs.")


def _tell(name: str, told: PublicSet) -> None:
    files = [
        file.name if file.published == file.name else f"{file.name} (there: {file.published})" for file in told.files
    ]
    say(f"{name}: {told.title}")
    rows = {"found at": told.found, "terms": told.terms, "loader": told.loader, "files": ", ".join(files)}
    for what, text in (rows | {"note": told.note} if told.note else rows).items():
        say(f"  {what:<8}  {text}")
    say("")


def _show(found: DatasetSummary) -> None:
    others = {"before the filter": found.read, "paper": found.paper}
    compared = {title: counts for title, counts in others.items() if counts}
    values = {
        **{name: f"{getattr(found.counts, name):,}" for name in ("users", "items", "categories", "clicks", "skips")},
        **{name: f"{count:,}" for name, count in found.kinds.items()},
        "items listed": f"{found.counts.listed:,}",
        "share of clicks": f"{found.positive_share:.1%}",
        "density": f"{found.density:.3%}",
        **{f"{split} users": f"{users:,}" for split, users in found.splits.items()},
        **{f"action {action}": f"{count:,}" for action, count in found.actions.items()},
        **{f"action {action}, left out": f"{count:,}" for action, count in found.other_actions.items()},
        **dict(zip(("from", "to"), found.times or (), strict=False)),
    }
    rows = [(name, value, *(f"{counts[name]:,}" if name in counts else "" for counts in compared.values()))
            for name, value in values.items()]  # fmt: skip
    show_table(found.name, ("", "here", *compared), rows)
    for title, counted in (("events per user", found.events_per_user), ("events per item", found.events_per_item)):
        bars = histogram(counted)
        most = max((count for _, count in bars), default=1)
        lines = [(label, f"{count:,}", "█" * round(40 * count / most) or ("▏" if count else ""))
                 for label, count in bars]  # fmt: skip
        show_table(
            title, ("range", "events", ""), lines, left=("range", ""), box=None, padding=(0, 1), show_header=False
        )
    if found.dropped:
        rows = [(reason, f"{count:,}", where) for reason, (count, where) in found.dropped.items()]
        show_table("left out or noted", ("what", "how many", "first"), rows, left=("what", "first"))
    say(f"sha256 {found.source.get('sha256', 'unknown')}")
