"""The `treeward` command: its subcommands, and how errors reach the user."""

import io
import os
import re
import sys
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import treeward
from treeward.cli.console import complain, console
from treeward.core.errors import TreewardError

COMMANDS = {
    "demo": "See everything at work on a synthetic catalogue, up to a service with a page.",
    "doctor": "Check whether everything that treeward needs is installed and works.",
    "warm": "Compile all kernels ahead, for instance while an image is built.",
    "data": "Read data sets in their original form.",
    "embed": "Make item vectors, and measure how good they are.",
    "prior": "Learn from the logs of earlier users what to expect of new ones.",
    "tree": "Build, show and draw trees of items.",
    "serve": "Serve a catalogue over HTTP: recommend and learn from feedback.",
    "items": "Add items to a running service, change them, or remove them.",
    "swap": "Let a running service serve other items or another tree, without a stop.",
    "key": "Make API keys for a service.",
    "store": "Check, back up, restore, copy, export or import a store of events.",
    "off-policy": "Estimate from a service's log what other policies would have earned.",
    "simulate": "Compare policies on the users of a synthetic world.",
    "world": "Learn a world from a log, to try policies in.",
    "experiment": "Run the paper's comparisons, and others, on your data.",
    "bench": "Measure how fast this machine recommends and learns.",
}
"""Every command, in the order of `treeward --help`; its module has the same name."""

_RULES = (
    ("valid integer", "an integer"),
    ("valid number", "a number"),
    (r"greater than or equal to (\S+)", r"at least \1"),
    (r"less than or equal to (\S+)", r"at most \1"),
    (r"is not one of '(.*)'", r"one of \1"),
)
"""What the parser of arguments complains of, and the rule in our own words."""


class _Commands(TyperGroup):
    """All commands. The module of a command is imported when the command is called, so that --help is quick."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name=name, help=help) for name, help in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest


def load(name: str) -> Any:
    """Return a command, or a group of commands, with all its options."""
    module = import_module(f"treeward.cli.{name.replace('-', '_')}")
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.help, group.no_args_is_help = COMMANDS[name], True
        for one in group.commands.values():
            one.help = _unwrapped(one.help)
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(getattr(module, name.replace("-", "_")))
    command = typer.main.get_command(alone)
    command.help = _unwrapped(command.help)
    return command


def _unwrapped(text: str | None) -> str:
    """Return a docstring with one line per paragraph, for a terminal of any width."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text or "")


app = typer.Typer(
    cls=_Commands,
    help="Explore an entire item catalogue with contextual bandits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def run() -> int:
    """Run a command and return its exit status; an error is one sentence on stderr and status 2, never a traceback."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")  # a name the terminal cannot show is no reason to stop
    try:
        status = app(prog_name="treeward", standalone_mode=False)
        console.file.flush()
        return status or 0
    except TreewardError as error:
        complain(str(error))
    except OSError as error:  # the output is closed or full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        complain(f"cannot write the output: {error.strerror}")
    except Exception as error:
        if not hasattr(error, "format_message"):  # all that the parser of arguments raises has it
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
        else:
            complain(_usage_error(error))
    return 2


def _usage_error(error: Any) -> str:
    """Return what is wrong with the arguments in one sentence: the command, the option, the rule and the value."""
    command = error.ctx.command_path.removeprefix("treeward ") if getattr(error, "ctx", None) else "treeward"
    options = getattr(getattr(error, "param", None), "opts", ())
    words = [part for word in sys.argv for part in (word.split("=", 1) if word.startswith("--") else [word])]
    given = [(name, value) for name, value in pairwise(words) if name in options]
    for pattern, rule in _RULES:
        found = re.search(pattern, error.format_message())
        if given and found:
            return f"{command}: {given[-1][0]} must be {found.expand(rule)}, got {given[-1][1]!r}".replace("', '", ", ")
    return f"{command}: {error.format_message().rstrip('.')}"
