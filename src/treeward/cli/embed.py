"""`treeward embed`: item vectors from a log."""

from pathlib import Path
from typing import Annotated

import typer

from treeward.cli.console import progress, say, timed
from treeward.cli.data import As, Data, Options, read

app = typer.Typer(help="Make item vectors.", no_args_is_help=True)


@app.callback()
def _embed() -> None:
    pass


@app.command()
def svd(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the items to.", show_default=False)],
    loader: As = None,
    options: Options = None,
    dim: Annotated[int, typer.Option(help="Dimensions of the vectors.", min=1)] = 64,
    seed: Annotated[int, typer.Option(help="Everything random comes from here.", min=0)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Give items vectors by which training users interacted with them: singular value decomposition, without torch."""
    from treeward.core import artefact
    from treeward.data.catalogue import FORMAT
    from treeward.embed.svd import svd_vectors

    artefact.check_free(out, FORMAT, ("vectors", "items"), overwrite=force)
    made = read(data, loader, options)
    with progress() as report:
        items = svd_vectors(made.part("train"), made.catalogue, dim, seed=seed, progress=report)
    with timed("Saving"):
        items.save(out, overwrite=force)
    say(f"Saved {len(items):,} items x {dim} to {out}. Next: treeward tree build {out} -o tree")
