"""Items that a request adds or changes, completed with what is known of them and checked before they are taken over."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import UNSET

from treeward.bandit.changed_vectors import count_turned
from treeward.bandit.crowd import Crowd
from treeward.core.errors import InvalidArgument
from treeward.data.catalogue import Catalogue, Id
from treeward.explorer.explorer import Explorer
from treeward.serve import wire

_ENOUGH = 10
"""With fewer changed vectors, it is not clear whether they come from another embedding."""


def put_items(explorer: Explorer, rows: Sequence[wire.PutItem]) -> int:
    """Add items, or change what is known of them, and return how many."""
    with explorer.changes.lock:  # what is known must not change before it is written back
        items = _completed(explorer, rows)
        _check_embedding(explorer, items)
        return explorer.add(items)


def check_ids(explorer: Explorer, ids: Sequence[Id]) -> None:
    """Refuse ids of the wrong type."""
    integers = explorer.catalogue.ids_are_integers
    if any(isinstance(id, str) == integers for id in ids):
        rule = f"{'integers' if integers else 'strings'}, as in the catalogue"
        raise InvalidArgument("items", "ids", rule, list(ids[:5]))


def _completed(explorer: Explorer, rows: Sequence[wire.PutItem]) -> Catalogue:
    """Return items with all their columns and vectors: what a request leaves out stays as it is."""
    shop = explorer.catalogue
    names = [name for name in shop.schema if name != "id"]
    check_ids(explorer, [row.item for row in rows])
    vectors, columns = list[Any](), list[dict[str, Any]]()
    for row in rows:
        unknown = [name for name in row.columns if name not in names]
        if unknown:
            rule = f"among those of the items that are served ({', '.join(names)})"
            raise InvalidArgument("items", "columns", rule, f"{', '.join(unknown)} of the item {row.item!r}")
        if row.item in explorer:
            at = shop.row(row.item)
            vectors.append(shop.vector_at(at) if row.vector is UNSET else row.vector)
            columns.append(shop.some([at]).row(0, named=True) | row.columns)
        elif row.vector is UNSET:
            raise InvalidArgument("items", "vector", "given, as the item is new", row.item)
        else:
            vectors.append(row.vector)
            columns.append(row.columns)
    if any(len(vector) != shop.dim for vector in vectors):
        raise InvalidArgument("items", "vector", f"{shop.dim} numbers", f"{[len(one) for one in vectors][:5]}")
    held = {name: [one.get(name) for one in columns] for name in names}
    return Catalogue.of_table(_table([row.item for row in rows], held, shop), np.array(vectors, dtype=np.float32))


def _check_embedding(explorer: Explorer, items: Catalogue) -> None:
    """Refuse vectors of another embedding than the one that the prior was fitted to."""
    if not isinstance(explorer.policy.prior, Crowd):
        return
    shop, at = explorer.catalogue, [i for i, id in enumerate(items.ids.to_list()) if id in explorer]
    if len(at) < _ENOUGH:
        return
    before = np.array([shop.vector_at(shop.row(items.ids[i])) for i in at], dtype=np.float64)
    far, changed = count_turned(before, items.vectors[at].astype(np.float64))
    if changed >= _ENOUGH and 2 * far > changed:
        rule = (
            "of the space that the prior was fitted to. These seem to be of another: fit a prior to them, and use "
            "`treeward swap ADMIN_ADDRESS ITEMS --prior PRIOR`"
        )
        value = f"{far} of the {changed} known items that change point elsewhere"
        raise InvalidArgument("items", "vector", rule, value)


def _table(ids: list[Id], columns: dict[str, list[Any]], shop: Catalogue) -> pl.DataFrame:
    """Return a table of the catalogue's types; the error for a wrong value names its column and its item."""
    try:
        return pl.DataFrame({"id": ids, **columns}, schema=shop.schema)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        for name, kind in shop.schema.items():
            for id, value in zip(ids, columns.get(name, ids), strict=True):
                try:
                    pl.Series([value], dtype=kind)
                except (TypeError, OverflowError, pl.exceptions.PolarsError):
                    rule = f"of the type that the items served have ({name}: {kind})"
                    raise InvalidArgument("items", "columns", rule, f"{value!r:.80} of the item {id!r}") from error
        raise InvalidArgument("items", "items", "of the columns' types", str(error).splitlines()[0]) from error
