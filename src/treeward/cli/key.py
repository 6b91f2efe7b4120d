"""`treeward key`: API keys of a service."""

import json
import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from treeward.cli.console import say
from treeward.core.errors import InvalidArgument

app = typer.Typer()


@app.callback()
def _key() -> None:
    pass


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the key: who or what will use it.", show_default=False)],
    role: Annotated[Literal["read", "write", "admin"], typer.Option(help="What the key may do.")] = "write",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the key to this new file.", show_default=False)
    ] = None,
) -> None:
    """Make an API key. Print it once, and the lines to append to the settings, which hold only its hash.

    With --out, the key is written to a file that only its owner can read, and not printed. The settings name the file.
    """
    from treeward.serve.keys import new_key

    key, digest = new_key()
    if out is None:
        say(f"The key, shown once: {key}")
        proof = f'sha256 = "{digest}"'
    else:
        _write(out, key)
        proof = f"file = {_quoted(str(out.absolute()))}"
    say(f'Last in the settings:\n[[keys]]\nname = {_quoted(name)}\nrole = "{role}"\n{proof}')


def _quoted(text: str) -> str:
    """Return a text as a string of TOML, which knows no surrogates and no bare DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: Path, key: str) -> None:
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(made, "w") as file:
                file.write(key + "\n")
        except OSError:
            path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidArgument("key new", "out", "a new file in a folder that can be written to", str(path)) from error
