"""What the page looks at: parts of the tree, of a user's field, of lists; nothing here changes anything."""

import re
from contextlib import suppress
from itertools import islice

import numpy as np
import polars as pl
from msgspec import UnsetType

from treeward.core.errors import TreewardError, UnknownId
from treeward.core.types import AnyArray, Integers
from treeward.core.version import __version__
from treeward.explorer.looks import Option, item_name, node_name
from treeward.explorer.maps import around
from treeward.explorer.views import Views
from treeward.serve import sights, wire
from treeward.serve.crowd import crowd_view
from treeward.serve.service import Service
from treeward.store.base import User, everyone
from treeward.tree.item_tree import ItemTree

_LONGEST = 80


class Looks:
    """A service, looked at.

    Parameters
    ----------
    service
        Which.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._explorer = service, service.explorer

    def about(self, role: str) -> sights.About:
        """Return what is served, and how."""
        view, settings = self._explorer.view(), self._service.settings
        shop, tree = view.catalogue, view.tree
        return sights.About(
            __version__, len(view), shop.dim, int(tree.level[-1]), len(tree.parent), shop.titles is not None,
            self._explorer.policy.name, settings.policy == "phcb", settings.mode, settings.holdout,
            settings.reward_low, settings.reward_high, role,
        )  # fmt: skip

    def map(self, node: int) -> sights.MapView:
        """Return a node and what is worth drawing below it."""
        view = self._explorer.view()
        _check(view, node)
        around_it = around(view.tree, view.sizes(), node)
        return sights.MapView(node, int(view.tree.level[node]), _path(view, node), _nodes(view, around_it))

    def items(self, node: int, part: sights.Slice) -> sights.Listing:
        """Return some of the items under a node."""
        view = self._explorer.view()
        _check(view, node)
        rows = view.items_of(node)
        return sights.Listing(len(rows), _listed(view, rows[part.after : part.after + part.n]))

    def children(self, node: int, part: sights.Slice) -> sights.Groups:
        """Return some of a node's children, the largest first."""
        view = self._explorer.view()
        _check(view, node)
        below = np.arange(view.tree.first_child[node], view.tree.first_child[node + 1], dtype=np.int32)
        largest = below[np.argsort(-view.sizes(below), kind="stable")]
        return sights.Groups(len(below), _nodes(view, largest[part.after : part.after + part.n]))

    def field(self, user: User, when: sights.When) -> sights.FieldView:
        """Return what was known of a user's interests."""
        view = self._explorer.view()
        _check(view, when.node)
        upto = None if isinstance(when.upto, UnsetType) else min(when.upto, view.store.counts([user])[0])
        told = view.field(user, node=when.node, upto=upto)
        last = self._service.told(told.last)
        return sights.FieldView(
            user, told.upto, told.events, told.opened, last[0] if last else None, _path(view, when.node),
            _nodes(view, told.node), told.visible.tolist(), _short(told.mean), _short(told.width),
            told.visits.tolist(), _short(told.reward),
        )  # fmt: skip

    def crowd(self) -> wire.CrowdView:
        """Return what everybody taught so far."""
        return crowd_view(self._explorer, self._service.publisher)

    def find(self, what: sights.Find) -> sights.Found:
        """Return items by id or title, and nodes by name."""
        view, text = self._explorer.view(), what.q.strip()
        tree = view.tree
        if not text:
            return sights.Found([], 0, [], 0)
        rows = _rows_with(view, text)
        nodes = _containing(pl.Series(tree.names if tree.names is not None else [], dtype=pl.String), text)
        if re.fullmatch(r"(node )?\d{1,9}", text) and int(text.split()[-1]) < len(tree.parent):
            nodes = np.unique(np.append(nodes, int(text.split()[-1])))
        size = view.sizes()
        best = nodes[np.argsort(-size[nodes], kind="stable")[: what.n]]
        found = [sights.FoundNode(node, _name(tree, node), int(size[node])) for node in best.tolist()]
        return sights.Found(_listed(view, rows[: what.n]), len(rows), found, len(nodes))

    def users(self, what: sights.Find) -> sights.Users:
        """Return some users whose name contains what is looked for, those asked for lately first."""
        store, text = self._explorer.store, what.q.strip().lower()
        known = list(everyone(store))
        lately = self._explorer.recent_users(4 * what.n)
        if not text:
            return sights.Users(list(islice(dict.fromkeys([*lately, *known[: what.n]]), what.n)), len(known))
        exact: list[User] = [what.q.strip()]
        if re.fullmatch("-?[0-9]{1,19}", text):
            exact.append(int(text))
        named = [user for user, count in zip(exact, store.counts(exact), strict=True) if count]
        found = (user for user in (*lately, *known) if text in str(user).lower())
        return sights.Users(list(islice(dict.fromkeys([*named, *islice(found, 2 * what.n)]), what.n)), len(known))

    def explain(self, decision: str) -> sights.ExplanationView:
        """Return how a decision came about."""
        told = self._explorer.explain(decision)
        steps = [
            sights.StepView(step.kind, [_option(one) for one in step.considered], step.total, step.chance)
            for step in told.steps
        ]
        return sights.ExplanationView(
            told.user, told.item, told.title, steps, told.reproduced, [_option(one) for one in told.way]
        )


def _check(view: Views, node: int) -> None:
    last = len(view.tree.parent) - 1
    if not 0 <= node <= last:
        raise UnknownId(f"the tree has no node {node}; its nodes are 0 to {last}")


def _name(tree: ItemTree, node: int) -> str:
    return node_name(tree, node)[:_LONGEST]


def _path(view: Views, node: int) -> list[sights.Named]:
    path, tree = [], view.tree
    while node >= 0:
        path.append(sights.Named(node, _name(tree, node)))
        node = int(tree.parent[node])
    return path[::-1]


def _nodes(view: Views, nodes: Integers) -> sights.Nodes:
    tree, counts = view.tree, view.counts_of(nodes)
    return sights.Nodes(
        nodes.tolist(), tree.parent[nodes].tolist(), [_name(tree, node) for node in nodes.tolist()],
        view.sizes(nodes).tolist(), np.diff(tree.first_child)[nodes].tolist(),
        counts.shown.tolist(), _short(counts.earned), _short(view.opinions()[1][nodes]) if view.has_crowd else [],
    )  # fmt: skip


def _listed(view: Views, rows: AnyArray) -> list[sights.Listed]:
    shop, counts = view.catalogue, view.counts_at(rows)
    return [
        sights.Listed(shop.ids[row], item_name(shop, row) if shop.titles is not None else None, shown, earned)
        for row, shown, earned in zip(rows.tolist(), counts.shown.tolist(), counts.earned.tolist(), strict=True)
    ]


def _rows_with(view: Views, text: str) -> AnyArray:
    """Return the rows of items with this id or, among the rest, whose title (or id, if there are none) has it."""
    shop = view.catalogue
    integers = shop.ids.dtype.is_integer()
    exact = []
    with suppress(ValueError, TreewardError):
        exact.append(shop.row(int(text) if integers else text))
    held = shop.titles if shop.titles is not None else (pl.Series([], dtype=pl.String) if integers else shop.ids)
    rows = _containing(held.cast(pl.String), text)
    found: AnyArray = np.concatenate([np.array(exact, dtype=np.int64), rows[~np.isin(rows, exact)]])
    return found[view.are_open(found)]


def _containing(texts: pl.Series, part: str) -> AnyArray:
    """Return which of some texts contain another, whatever the case."""
    found = texts.str.contains("(?i)" + pl.escape_regex(part))
    return found.fill_null(False).arg_true().to_numpy().astype(np.int64)


def _short(values: AnyArray) -> list[float]:
    """Return numbers without digits that nobody can see."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def _option(one: Option) -> sights.OptionView:
    return sights.OptionView(one.id, one.name[:_LONGEST], one.mean, one.width, one.chosen)
