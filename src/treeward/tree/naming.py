"""Names for nodes from the titles of their items, so that people read "marathon, runner, race" and not "node 4711"."""

import numpy as np
import polars as pl

from treeward.core.types import Integers, TreeArrays
from treeward.tree.tree_arrays import leaves, owners

ROOT = "all"
_WORD = r"\p{L}[\p{L}\p{M}\p{N}'\x{2019}-]+"
_LEAST_LIFT = 1.5


def name_nodes(tree: TreeArrays, titles: pl.Series, words: int = 3) -> list[str]:
    """Return the `words` most characteristic words of every node, the most characteristic first.

    Class-based TF-IDF: the nodes of a level are the classes, and a word's weight in one is its share of the node's
    words times log(1 + mean words per node / the word's count). Words hardly more frequent in the node than everywhere
    (a lift under 1.5, which is what stop words look like in any language) are left out.
    """
    leaf_of = np.empty_like(tree.items)
    leaf_of[tree.items] = owners(tree, leaves(tree))
    counts = _count_words(leaf_of, titles)
    names = np.full(len(tree.parent), "", dtype=object)
    # A node on a shallower level than the deepest is a class of its own level only, so counts move up level by level.
    for level in range(int(tree.level[-1]), 1, -1):
        first, last = np.searchsorted(tree.level, [level, level + 1])
        here = counts.filter(pl.col("node").is_between(first, last - 1))
        for node, name in _best_words(here, words).iter_rows():
            names[node] = name
        raised = here.with_columns(pl.col("node").replace_strict(np.arange(first, last), tree.parent[first:last]))
        counts = pl.concat([counts.filter(pl.col("node") < first), raised.cast(counts.schema)])
        counts = counts.group_by("node", "word").agg(pl.col("count").sum())
    names[0] = ROOT
    return [name or f"node {node}" for node, name in enumerate(names)]


def _count_words(leaf_of: Integers, titles: pl.Series) -> pl.DataFrame:
    table = pl.LazyFrame({"node": leaf_of, "word": titles.cast(pl.String)})
    return (
        table.with_columns(pl.col("word").str.to_lowercase().str.extract_all(_WORD).list.unique())
        .explode("word")
        .drop_nulls("word")
        .with_columns(pl.col("word").cast(pl.Categorical))
        .group_by("node", "word")
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .collect()
    )


def _best_words(counts: pl.DataFrame, words: int) -> pl.DataFrame:
    """Return (node, name) for the nodes of one level from (node, word, count)."""
    share = pl.col("count") / pl.col("count").sum().over("node")
    everywhere = pl.col("count").sum().over("word")
    total = pl.col("count").sum()
    weighed = counts.lazy().with_columns(
        weight=share * (1 + total / pl.col("node").n_unique() / everywhere).log(),
        lift=share * total / everywhere,
        word=pl.col("word").cast(pl.String),
    )
    return (
        weighed.filter(pl.col("lift") >= _LEAST_LIFT)
        .sort("node", "weight", "word", descending=[False, True, False])
        .group_by("node", maintain_order=True)
        .agg(pl.col("word").head(words))
        .with_columns(pl.col("word").list.join(", "))
        .collect()
    )
