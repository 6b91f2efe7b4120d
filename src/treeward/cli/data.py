"""`treeward data`: read data sets in their original form and say what is in them."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import say, show_table, timed
from treeward.cli.inputs import Data, LogAndItemFlags
from treeward.cli.options import Force, expanded
from treeward.core import artefact
from treeward.data.dataset import FORMAT
from treeward.data.dataset_summary import DatasetSummary, describe, histogram

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
