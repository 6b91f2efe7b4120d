"""`treeward doctor`: whether everything is here that treeward needs, and works."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, errors, say

if TYPE_CHECKING:
    from treeward.cli.checkup import Checkup


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what is installed, what each extra lacks and how to get it, and try whether a tiny explorer decides.

    Exits with 1 if something that the base needs is missing or does not work.
    """
    from treeward.cli.checkup import look

    with errors.status("Looking, and deciding once (the first time ever, after compiling for half a minute) ..."):
        told = look()
    if as_json:
        typer.echo(json.dumps(plain(told), indent=1))
    else:
        _show(told)
    if not told.sound:
        raise typer.Exit(1)


def plain(told: "Checkup") -> dict[str, Any]:
    """Return a checkup as JSON has it."""
    made = told._asdict()
    made["packages"] = [one._asdict() for one in told.packages]
    made["checks"] = [one._asdict() for one in told.checks]
    made["extras"] = {
        extra: {"complete": not lacking, "missing": lacking, "get": get(extra)}
        for extra, lacking in made.pop("missing").items()
    }
    return made | {"sound": told.sound}


def get(extra: str) -> str:
    """Return the command that installs an extra in the versions that were tried."""
    from treeward.cli.checkup import constraints

    place = constraints()
    return f"pip install 'treeward[{extra}]'" + ("" if place is None else f" -c {place}")


def _show(told: "Checkup") -> None:
    say(f"treeward {told.treeward}, Python {told.python}")
    memory = "memory unknown" if told.memory is None else f"{told.memory / 2**30:.1f} GiB of memory"
    say(f"{told.platform}, {told.cores} cores, {memory}")
    free = told.temp["free"]
    say(f"temporary files: {told.temp['folder']}, {'unknown' if free is None else f'{free / 2**30:.1f} GiB'} free")
    say(f"compiled kernels: {_kernels(told.kernels)}")
    say(f"GPU: {told.gpu}")
    _show_packages(told)
    for extra, lacking in told.missing.items():
        say(f"extra {extra}: " + (f"lacks {', '.join(lacking)}: {get(extra)}" if lacking else "complete"))
    for one in told.checks:
        say(f"{'works' if one.fine else 'FAILS'}: {one.name} ({one.told}; {one.seconds:.1f} s)")
    say("sound" if told.sound else "not sound: see what is missing or fails above")


def _show_packages(told: "Checkup") -> None:
    if not told.packages:
        say("packages: unknown, for treeward is not installed here as a package (pip install -e .)")
        return
    table = Table(box=SIMPLE_HEAD, padding=0)
    for name in ("package", "for", "required", "tried", "installed", ""):
        table.add_column(name)
    for one in told.packages:
        state = "" if one.fine else ("missing" if one.installed is None else "too old or other")
        table.add_row(one.name, one.extra or "base", one.required, one.tried or "", one.installed or "", state)
    console.print(table)


def _kernels(told: dict[str, Any]) -> str:
    if told["folder"] is None:
        return "nowhere to keep them: every process compiles again, for half a minute; set NUMBA_CACHE_DIR to a folder"
    state = "there" if told["compiled"] else "not there yet: the first decision takes half a minute"
    return f"{state} ({told['folder']}{'' if told['writable'] else ', which cannot be written'})"
