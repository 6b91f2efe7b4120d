"""`treeward key`: API keys of a service."""

import json
from typing import Annotated, Literal

import typer

from treeward.cli.console import say

app = typer.Typer()


@app.callback()
def _key() -> None:
    pass


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the key: who or what will use it.", show_default=False)],
    role: Annotated[Literal["read", "write", "admin"], typer.Option(help="What the key may do.")] = "write",
) -> None:
    """Make an API key. Print it once, and the lines to append to the settings, which hold only its hash."""
    from treeward.serve.keys import new_key

    key, digest = new_key()
    say(f"The key, shown once: {key}")
    say(f'Last in the settings:\n[[keys]]\nname = {json.dumps(name)}\nrole = "{role}"\nsha256 = "{digest}"')
