"""Trees from category labels and taxonomy paths."""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core.errors import InvalidArgument
from treeward.core.parallel import workers
from treeward.core.types import Floats, Integers, TreeArrays
from treeward.tree.kmeans import means
from treeward.tree.row_groups import Rows, group
from treeward.tree.tree_arrays import assemble, leaves

OTHER = "(other)"
Path = tuple[str, ...]
Labels = Iterable[object] | pl.Series | NDArray[np.generic]


def as_paths(owner: str, parameter: str, labels: Labels, count: int, separator: str | None) -> list[Path]:
    """Read labels as paths from the top category down; a missing label is the empty path."""
    if isinstance(labels, np.ndarray | pl.Series):
        labels = labels.to_list() if isinstance(labels, pl.Series) else labels.tolist()
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InvalidArgument(owner, parameter, "a list of labels", labels)
    listed = list(labels)
    if len(listed) != count:
        raise InvalidArgument(owner, parameter, f"{count} labels, one for each item", f"{len(listed)} labels")
    known: dict[object, Path] = {}
    paths = []
    for label in listed:
        key = tuple(label) if isinstance(label, list) else label
        try:
            path = known.get(key)
        except TypeError as error:
            raise InvalidArgument(owner, parameter, "strings, integers, paths or None", label) from error
        if path is None:
            path = known[key] = _as_path(owner, parameter, key, separator)
        paths.append(path)
    return paths


def _as_path(owner: str, parameter: str, label: object, separator: str | None) -> Path:
    if label is None or label != label:  # NaN is how some tables spell "missing"
        return ()
    if isinstance(label, tuple):
        parts: Sequence[object] = label
    elif isinstance(label, str) and separator:
        parts = label.split(separator)
    elif isinstance(label, str | int):
        parts = (label,)
    else:
        raise InvalidArgument(owner, parameter, "strings, integers, paths or None", label)
    return tuple(text for part in parts if (text := str(part).strip()))


def _free_name(path: Path, inner: set[Path]) -> str:
    """Name the leaf for items whose path ends at an inner node; no inner node may have that name."""
    names = (OTHER, *(f"{OTHER} {number}" for number in range(2, len(inner) + 3)))
    return next(name for name in names if (*path, name) not in inner)


def hang(vectors: Floats, paths: list[Path], *, normalize: bool) -> tuple[TreeArrays, list[str]]:
    """Return the tree of the categories that have items, and a name for every node.

    Siblings stand in the order of their names. Items whose path ends at an inner node go to a leaf ``"(other)"`` there.
    """
    inner = {path[:depth] for path in set(paths) for depth in range(len(path))}
    ends = [(*path, _free_name(path, inner)) if path in inner else path for path in paths]
    nodes = sorted({path[:depth] for path in set(ends) for depth in range(len(path) + 1)}, key=lambda p: (len(p), p))
    number = {path: index for index, path in enumerate(nodes)}
    parent = np.array([number[path[:-1]] if path else -1 for path in nodes], dtype=np.int32)
    leaf: Integers = np.fromiter((number[path] for path in ends), dtype=np.int32, count=len(ends))
    layer = np.zeros((len(nodes), vectors.shape[1]), dtype=np.float32)
    with workers() as pool:
        means(Rows(vectors, normalize), group(leaf, len(nodes)), layer, pool)
    arrays, old = assemble(parent, leaf, layer)
    return arrays, ["all" if not nodes[node] else nodes[node][-1] for node in old]


def purity(tree: TreeArrays, labels: pl.Series) -> tuple[float, float]:
    """Return the share of items in the main category of their leaf, and the share of the commonest category."""
    ends = leaves(tree)
    held = np.repeat(np.arange(len(ends)), np.diff(tree.item_range[ends]).ravel())
    table = pl.DataFrame({"leaf": held, "label": labels[tree.items]}).drop_nulls()
    counts = table.group_by("leaf", "label").len()
    main = counts.group_by("leaf").agg(pl.col("len").max())["len"]
    of_all = table.group_by("label").len()["len"].to_numpy()
    return float(main.sum()) / max(table.height, 1), float(of_all.max(initial=0)) / max(table.height, 1)
