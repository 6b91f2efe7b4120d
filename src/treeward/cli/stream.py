"""`treeward experiment stream`: a shop from its first day."""

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, warn
from treeward.cli.data import Actions, As, LogItems, Options, loader_options
from treeward.cli.experiment import Data, Dim, Leave, On, Out, Processes, Repeats, Seed
from treeward.cli.tables import LogColumns


def stream(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    items: LogItems = None,
    vectors: Annotated[
        str,
        typer.Option(
            help="Item vectors: clicks (of training users), attributes, text, or own (the data's, as a world needs)."
        ),
    ] = "clicks",
    dim: Dim = 64,
    users: Annotated[int, typer.Option(help="At most so many users visit.")] = 12_000,
    training: Annotated[float, typer.Option(help="Share of all users who do not visit, but train.")] = 0.5,
    days: Annotated[int, typer.Option(help="How many days.")] = 20,
    visits: Annotated[float, typer.Option(help="Visits of the median user.")] = 4.0,
    tail: Annotated[float, typer.Option(help="Exponent of the tail of visits per user; less: heavier.")] = 3.5,
    batch: Annotated[int, typer.Option(help="Visits that are decided before feedback on them comes.")] = 50,
    arm: Annotated[
        list[str] | None, typer.Option("--arm", help="An arm to run; repeatable. Default: all.", show_default=False)
    ] = None,
    without: Leave = None,
    repeats: Repeats = 3,
    seed: Seed = 0,
    processes: Processes = None,
    on: On = "processes",
) -> None:
    """Let users arrive over days in a shop that starts empty: who earns how many clicks per visit, from the first on.

    A finished run may be given again with other arms or more repeats: only what is new is computed.
    """
    from treeward.core import checks
    from treeward.experiment.stream import Stream, able_als, run_stream
    from treeward.experiment.stream_arms import ARMS
    from treeward.experiment.stream_report import row_of, size_of, write_stream
    from treeward.experiment.stream_summary import arm_summaries

    left_out = {checks.one_of("experiment stream", "--without", one, ARMS) for one in without or ()}
    if arm is None and not able_als():
        missing = {label for label, one in ARMS.items() if "als" in one.needs} - left_out
        for label in sorted(missing):
            warn(f"{label} is left out: it needs the extra als (pip install 'treeward[als]')")
        left_out |= missing
    spec = Stream(
        str(data), loader or "", loader_options(options, column, action, items), vectors, dim, users, training, days,
        visits, tail, batch, tuple(one for one in arm or ARMS if one not in left_out), repeats, seed,
    )  # fmt: skip
    with progress() as report:
        streamed = run_stream(spec, out, processes=processes, on=on, progress=report)
    table = Table(title=f"Clicks per visit: {size_of(streamed)}", title_justify="left", box=SIMPLE_HEAD, padding=0)
    for head in ("arm", "clicks\nper visit", "last\nthird", "over\nBeam", "over\nlist", "items\nshown", "µs"):
        table.add_column(head, justify="left" if head == "arm" else "right", no_wrap=True)
    for line in arm_summaries(streamed):  # what fits into 80 columns; the report has the rest
        label, clicks, _, *gaps, shown, _, _, time = (cell.replace("± 0.", "± .") for cell in row_of(line))
        table.add_row(label, clicks, f"{line.last.mean:.3f}", *gaps, shown, time)
    console.print(table)
    for path in write_stream(streamed, out):
        say(f"Wrote {path}")
