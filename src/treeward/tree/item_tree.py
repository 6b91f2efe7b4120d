"""`ItemTree`: a catalogue as a tree of clusters."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, Seed
from treeward.core.errors import ArtefactCorrupt, InvalidArgument
from treeward.core.progress import Progress, silent
from treeward.core.tasks import tasks
from treeward.core.types import Floats, Integers, TreeArrays, frozen
from treeward.core.version import __version__
from treeward.data.columns import column
from treeward.tree import categories, naming, tree_arrays
from treeward.tree.build import default_widths, grow
from treeward.tree.describe import TreeDescription, describe
from treeward.tree.distributed import grow_sharded
from treeward.tree.draw import draw, inline
from treeward.tree.row_groups import Groups, Rows, mean_of
from treeward.tree.shard_files import find
from treeward.tree.tree_arrays import assemble, faults

FORMAT, VERSION = "treeward.tree", 1
FILES = (*TreeArrays._fields, "names")


class ItemTree:
    """An immutable tree over the rows of a catalogue. Make one with `build`, `from_categories`, `from_paths` or `flat`.

    Nodes are numbered breadth-first, the children of a node are contiguous, and items are stored in leaf order: a
    node's children and a node's items are slices.

    Examples
    --------
    >>> tree = ItemTree.build([[1, 0], [9, 1], [0, 1], [1, 8]], widths=(2,), seed=0)
    >>> tree
    ItemTree(4 items x 2 dimensions, 3 nodes, widths (2,))
    >>> [sorted(tree.items_of(node).tolist()) for node in tree.children_of(0)]
    [[0, 1], [2, 3]]
    """

    __slots__ = ("arrays", "names", "provenance")

    arrays: TreeArrays
    """The arrays as one NamedTuple, ready for compiled code."""
    names: tuple[str, ...] | None
    """A name for every node, if they were named."""
    provenance: Mapping[str, Any]
    """How the tree was made: parameters, version, and the digest of the vectors."""

    def __init__(
        self, arrays: TreeArrays, *, names: Sequence[str] | None = None, provenance: Mapping[str, Any] | None = None
    ) -> None:
        fault = faults(arrays)
        if fault:
            raise InvalidArgument("ItemTree", "arrays", "a tree that partitions its items", fault)
        if names is not None and len(names) != len(arrays.parent):
            raise InvalidArgument("ItemTree", "names", f"{len(arrays.parent)} names", f"{len(names)} names")
        object.__setattr__(self, "arrays", frozen(arrays))
        object.__setattr__(self, "names", None if names is None else tuple(names))
        object.__setattr__(self, "provenance", MappingProxyType(dict(provenance or {})))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ItemTree is immutable: cannot set {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (tuple(self.arrays), self.names, dict(self.provenance))

    def __repr__(self) -> str:
        return f"ItemTree({len(self)} items x {self.dim} dimensions, {len(self.parent)} nodes, widths {self.widths})"

    def __len__(self) -> int:
        return len(self.items)

    # --- the arrays --------------------------------------------------------------------------------------------------

    @property
    def vectors(self) -> Floats:
        """(nodes, d): a leaf's is the mean of its items, an inner node's the unweighted mean of its children's."""
        return self.arrays.vectors

    @property
    def parent(self) -> Integers:
        """(nodes,): -1 for the root."""
        return self.arrays.parent

    @property
    def level(self) -> Integers:
        """(nodes,): the root is on level 1."""
        return self.arrays.level

    @property
    def first_child(self) -> Integers:
        """(nodes + 1,): the children of n are ``first_child[n]:first_child[n + 1]``."""
        return self.arrays.first_child

    @property
    def item_range(self) -> Integers:
        """(nodes, 2): the items of n are ``items[item_range[n, 0]:item_range[n, 1]]``."""
        return self.arrays.item_range

    @property
    def items(self) -> Integers:
        """(items,): catalogue rows in leaf order."""
        return self.arrays.items

    @property
    def dim(self) -> int:
        """The vectors' dimension."""
        return int(self.vectors.shape[1])

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of nodes on each level below the root."""
        return tuple(int(count) for count in np.bincount(self.level)[2:])

    @property
    def normalized(self) -> bool:
        """Whether item vectors are l2-normalised before they meet this tree."""
        return bool(self.provenance.get("normalize", True))

    @property
    def leaves(self) -> Integers:
        """The nodes without children, in the order of their items."""
        return tree_arrays.leaves(self.arrays)

    def children_of(self, node: int) -> range:
        """Return the numbers of a node's children."""
        node = self._node("children_of", node)
        return range(int(self.first_child[node]), int(self.first_child[node + 1]))

    def items_of(self, node: int) -> Integers:
        """Return the catalogue rows under a node."""
        node = self._node("items_of", node)
        first, last = self.item_range[node]
        return self.items[first:last]

    def _node(self, method: str, node: int) -> int:
        return checks.integer(f"ItemTree.{method}", "node", node, low=0, high=len(self.parent) - 1)

    # --- making one --------------------------------------------------------------------------------------------------

    @classmethod
    @checks.checked()
    def build(
        cls,
        vectors: ArrayLike,
        widths: Sequence[int] | None = None,
        *,
        seed: Seed = 0,
        normalize: bool = True,
        max_leaf: Count | None = None,
        threads: Count | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster items bottom-up with K-Means: items to leaves, leaves to parents, parents to the root.

        Parameters
        ----------
        vectors
            (items, dimensions); a memory map is read piece by piece.
        widths
            Nodes per level, from below the root to the leaves, e.g. ``(100, 10_000)``. By default about 16 items per
            leaf, at most about 100 children per node, and as many levels as that takes.
        seed
            Same seed, vectors, machine and versions: same tree, whatever the number of threads.
        normalize
            Scale item vectors to length 1 first (zero vectors stay zero). Node vectors are plain means in any case.
        max_leaf
            Split leaves of more items than this into even parts; there are then more leaves than ``widths[-1]``.
        threads
            By default the cores this process may use.
        progress
            Called with (stage, done, total) as the work goes on.
        """
        matrix = checks.vectors("ItemTree.build", vectors)
        made = _options("ItemTree.build", len(matrix), widths, seed, normalize, max_leaf)
        arrays = grow(matrix, **made, threads=threads, progress=progress or silent)
        return cls(arrays, provenance={"made_by": "build", **made} | _source(matrix))

    @classmethod
    @checks.checked()
    def from_shards(
        cls,
        folder: StrPath,
        widths: Sequence[int] | None = None,
        *,
        column: str = "vector",
        seed: Seed = 0,
        normalize: bool = True,
        max_leaf: Count | None = None,
        on: str = "processes",
        processes: int | None = None,
        scratch: StrPath | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster vectors that lie in many files, too many for one machine, as `build` would.

        Parameters
        ----------
        folder
            .npy matrices, or Parquet tables with a `column` of vectors; items are numbered in the order of the files'
            names. All machines must see the folder under the same path.
        widths, seed, normalize, max_leaf, progress
            As `build` has them. The tree is nearly that of `build`: the same but for sums in another order.
        on
            Where: ``"processes"``, ``"ray"``, or a cluster at ``"ray://host:port"``. The tree is the same to the bit.
        processes
            How many, on one machine; by default one per core.
        scratch
            Folder for what processes exchange, twice the size of the vectors; by default among temporary files.
        """
        shards = find(Path(folder).resolve(), column)
        made = _options("ItemTree.from_shards", shards[-1].first + shards[-1].rows, widths, seed, normalize, max_leaf)
        with tasks(on, processes, None if scratch is None else Path(scratch)) as workers:
            arrays, digest = grow_sharded(shards, workers, **made, threads=processes, progress=progress or silent)
        return cls(arrays, provenance={"made_by": "from_shards", **made, **_versions(), "vectors_sha256": digest})

    @classmethod
    def from_categories(cls, vectors: ArrayLike, labels: categories.Labels, *, normalize: bool = True) -> Self:
        """Put items under one node per category; items without one (None) go to "(other)".

        Examples
        --------
        >>> tree = ItemTree.from_categories([[1, 0], [0, 1], [1, 1]], ["tea", "pot", "tea"])
        >>> tree.names
        ('all', 'pot', 'tea')
        """
        return cls._from_paths("ItemTree.from_categories", "labels", vectors, labels, None, normalize)

    @classmethod
    def from_paths(
        cls, vectors: ArrayLike, paths: categories.Labels, *, separator: str = ">", normalize: bool = True
    ) -> Self:
        """Put items under a taxonomy: paths such as ``"Apparel > Clothing > Dresses"``, or sequences of names.

        Paths may be of uneven depth; items that end at an inner node get a leaf "(other)" of their own there.
        """
        return cls._from_paths("ItemTree.from_paths", "paths", vectors, paths, separator, normalize)

    @classmethod
    def _from_paths(
        cls,
        owner: str,
        parameter: str,
        vectors: ArrayLike,
        labels: categories.Labels,
        separator: str | None,
        normalize: bool,
    ) -> Self:
        matrix = checks.vectors(owner, vectors)
        normalize = checks.flag(owner, "normalize", normalize)
        paths = categories.as_paths(owner, parameter, labels, len(matrix), separator)
        arrays, names = categories.hang(matrix, paths, normalize=normalize)
        made = {"made_by": owner.split(".")[1], "normalize": normalize}
        return cls(arrays, names=names, provenance=made | _source(matrix))

    @classmethod
    def flat(cls, vectors: ArrayLike, *, normalize: bool = True) -> Self:
        """Put every item under the root: the tree on which a hierarchical policy is a flat one."""
        return cls.build(vectors, widths=(), normalize=normalize)

    def leaves_only(self) -> "ItemTree":
        """Return the tree of the root and this tree's leaves, without the levels between."""
        nodes = self.leaves
        if len(self.parent) == 1:
            return self
        parent = np.concatenate([[-1], np.zeros(len(nodes), dtype=np.int32)]).astype(np.int32)
        place = np.empty_like(self.items)
        place[self.items] = np.repeat(
            np.arange(1, len(nodes) + 1, dtype=np.int32), np.diff(self.item_range[nodes]).ravel()
        )
        vectors = np.concatenate([np.zeros((1, self.dim), dtype=np.float32), self.vectors[nodes]])
        arrays, _ = assemble(parent, place, vectors)
        names = None if self.names is None else [self.names[0], *(self.names[node] for node in nodes)]
        return ItemTree(arrays, names=names, provenance={**self.provenance, "leaves_only": True})

    def over(self, vectors: ArrayLike) -> "ItemTree":
        """Return the same tree over other vectors of the same items, not normalised; node vectors are their means."""
        matrix = checks.vectors("ItemTree.over", vectors)
        if len(matrix) != len(self):
            raise InvalidArgument("ItemTree.over", "vectors", f"of {len(self)} items", f"{len(matrix)} rows")
        leaves = self.leaves
        means = np.zeros((len(self.parent), matrix.shape[1]), dtype=np.float32)
        sizes = np.diff(self.item_range[leaves]).ravel()
        members = Groups(self.items, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        held = np.zeros((len(leaves), matrix.shape[1]), dtype=np.float32)
        mean_of(Rows(matrix, False), members, 0, len(leaves), held)
        means[leaves] = held
        for node in range(len(self.parent) - 1, -1, -1):
            first, last = self.first_child[node], self.first_child[node + 1]
            if first < last:
                means[node] = means[first:last].mean(axis=0)
        made = {**self.provenance, "normalize": False} | _source(matrix)
        return ItemTree(self.arrays._replace(vectors=means), names=self.names, provenance=made)

    @checks.checked()
    def named(self, titles: Sequence[str | None] | pl.Series, *, words: Count = 3) -> "ItemTree":
        """Return this tree with a name for every node: the words that set its items' titles apart from others."""
        series = column("ItemTree.named", "titles", titles, len(self))
        if series.dtype not in (pl.String, pl.Null):
            raise InvalidArgument("ItemTree.named", "titles", "texts", f"dtype {series.dtype}")
        return ItemTree(self.arrays, names=naming.name_nodes(self.arrays, series, words), provenance=self.provenance)

    # --- keeping it --------------------------------------------------------------------------------------------------

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the tree to a directory of .npy files under a checksummed manifest, all or nothing."""
        documents = {} if self.names is None else {"names": self.names}
        contents = artefact.Contents(self.arrays._asdict(), {}, documents, dict(self.provenance))
        artefact.write(path, FORMAT, VERSION, contents, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath, *, verify: bool = True) -> Self:
        """Open a saved tree, memory-mapped; refuse one that is not exactly as it was written."""
        contents = artefact.read(path, FORMAT, VERSION, verify=verify)
        try:
            return cls(TreeArrays(**contents.arrays), names=contents.documents.get("names"), provenance=contents.info)
        except (TypeError, InvalidArgument) as error:
            raise ArtefactCorrupt(f"{path}: does not hold a tree: {error}") from error

    # --- looking at it -----------------------------------------------------------------------------------------------

    def describe(self, vectors: ArrayLike | None = None) -> TreeDescription:
        """Return sizes, balance and, given the items' vectors, the error within nodes, level by level."""
        rows = None
        if vectors is not None:
            rows = Rows(checks.vectors("ItemTree.describe", vectors), self.normalized)
            if rows.matrix.shape != (len(self), self.dim):
                raise InvalidArgument(
                    "ItemTree.describe", "vectors", f"of shape ({len(self)}, {self.dim})", f"shape {rows.matrix.shape}"
                )
        return describe(self.arrays, rows)

    def purity(self, labels: categories.Labels) -> tuple[float, float]:
        """Return the share of items in the main category of their leaf, and the share of the commonest category.

        Parameters
        ----------
        labels
            One category per item; items without one are left out.
        """
        column = labels if isinstance(labels, pl.Series) else pl.Series(list(labels), dtype=pl.String)
        if len(column) != len(self):
            raise InvalidArgument("ItemTree.purity", "labels", f"{len(self)} of them, one per item", f"{len(column)}")
        return categories.purity(self.arrays, column.cast(pl.String))

    def draw(
        self, path: StrPath, *, titles: Sequence[str | None] | pl.Series | None = None, heading: str = "Item tree"
    ) -> Path:
        """Draw the tree: a page to click through (.html, needs no network) or a picture (.png).

        Parameters
        ----------
        path
            The file to write; its ending says which of the two.
        titles
            One per item; the page then shows examples from each leaf.
        heading
            The title.
        """
        if titles is not None and len(titles) != len(self):
            raise InvalidArgument("ItemTree.draw", "titles", f"{len(self)} titles, one per item", f"{len(titles)}")
        return draw(self.arrays, self.names, titles, Path(path), heading)

    def _repr_png_(self) -> bytes:  # how a notebook shows a tree
        return inline(self.arrays, self.names)


def _rebuilt(arrays: tuple[Any, ...], names: Sequence[str] | None, provenance: Mapping[str, Any]) -> ItemTree:
    return ItemTree(TreeArrays(*arrays), names=names, provenance=provenance)


def _options(
    owner: str, items: int, widths: Sequence[int] | None, seed: int, normalize: bool, max_leaf: int | None
) -> dict[str, Any]:
    """Return the options of a build, checked."""
    checked = default_widths(items) if widths is None else checks.widths(owner, widths, items)
    return {"widths": checked, "seed": seed, "normalize": normalize, "max_leaf": max_leaf}


def _source(vectors: Floats) -> dict[str, str]:
    return {"vectors_sha256": artefact.digest(vectors), **_versions()}


def _versions() -> dict[str, str]:
    return {"treeward": __version__, "numpy": np.__version__}
