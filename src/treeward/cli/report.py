"""`treeward report`: write the report of a finished experiment once more."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.outcome import finish


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Page to write (.html). Default: report.html in the folder.", show_default=False
        ),
    ] = None,
) -> None:
    """Write the report of an experiment: an offline page, with the curves as PNG and the table as CSV next to it."""
    from treeward.core import checks
    from treeward.experiment import load

    target = folder / "report.html" if out is None else out
    checks.one_of("report", "--out", target.suffix.lower(), (".html",))
    finish(load(folder), folder, target)
