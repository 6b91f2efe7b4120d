"""The `treeward` command: its subcommands, and how errors reach the person who typed it."""

import io
import os
import signal
import sys
from typing import Annotated

import typer

import treeward
from treeward.cli import (
    bench,
    changing_catalogue,
    data,
    demo,
    doctor,
    embed,
    experiment,
    health,
    items,
    key,
    off_policy,
    prior,
    reference,
    regret,
    serve,
    simulate,
    store,
    stream,
    swap,
    tree,
    warm,
    world,
)
from treeward.cli.console import complain, console, errors
from treeward.core.errors import TreewardError

app = typer.Typer(
    help="Explore an entire item catalogue with contextual bandits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.add_typer(embed.app, name="embed")
experiment.app.command("changing-catalogue")(changing_catalogue.changing_catalogue)
experiment.app.command()(reference.reference)
experiment.app.command()(regret.regret)
experiment.app.command()(stream.stream)
app.add_typer(experiment.app, name="experiment")
app.add_typer(items.app, name="items")
app.add_typer(key.app, name="key")
app.add_typer(prior.app, name="prior")
app.add_typer(store.app, name="store")
tree.app.command()(health.health)
app.add_typer(tree.app, name="tree")
app.add_typer(world.app, name="world")
app.command()(bench.bench)
app.command()(demo.demo)
app.command()(doctor.doctor)
app.command()(serve.serve)
app.command()(simulate.simulate)
app.command("off-policy")(off_policy.off_policy)
app.command()(swap.swap)
app.command()(warm.warm)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"treeward {treeward.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a bad input is one line on stderr and exit status 2, never a traceback."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")  # a name the terminal cannot show is no reason to stop
    try:
        app()
        console.file.flush()
    except TreewardError as error:
        complain(str(error))
        sys.exit(2)
    except OSError as error:  # the output is closed or full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        complain(f"cannot write the output: {error.strerror}")
        sys.exit(2)
    except SystemError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # which was raised while a kernel was loaded
            raise
        errors.print("interrupted")
        sys.exit(128 + signal.SIGINT)
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            errors.print("interrupted")
        raise
