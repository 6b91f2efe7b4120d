"""What settings name, loaded: the items, the tree, the policy and the explorer that a service decides with."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit import bandit_named, strength_of
from treeward.bandit.changed_vectors import check_vectors
from treeward.bandit.crowd import Crowd
from treeward.bandit.rules import Bandit, Rule
from treeward.core import checks
from treeward.core.errors import InvalidArgument, NothingLeft, TreewardError
from treeward.core.progress import Progress, silent
from treeward.core.registry import make
from treeward.data.catalogue import Catalogue
from treeward.data.tables import READERS
from treeward.embed.features import load_features
from treeward.explorer.explorer import Explorer
from treeward.explorer.filters import fulfilled
from treeward.explorer.rewards import checked_range
from treeward.policy import TREE_POLICIES, policy_named
from treeward.policy.base import PRIOR, Policy
from treeward.serve.settings import Settings
from treeward.serve.snapshots import choice_of
from treeward.store.base import EventStore
from treeward.store.opening import abandon, open_store
from treeward.tree.item_tree import ItemTree

_EXPOSED_WITHIN = 0.02
"""How long an exposure may wait for others to share a commit; the commit takes the rest of the promised 50 ms."""


# --- single settings -------------------------------------------------------------------------------------------------


def check(settings: Settings) -> None:
    """Refuse settings that name no policy, no bandit, no range of rewards, or no condition."""
    rule = make_policy(settings).bandit.rule(1)
    if not isinstance(rule, Rule):
        raise InvalidArgument("serve", "bandit", "a class whose rule(dim) returns a Rule", f"{rule!r:.80}")
    low, high = checked_range((settings.reward_low, settings.reward_high))
    if settings.default_reward is not None:
        checks.number("serve", "default_reward", settings.default_reward, low=low, high=high)
    condition(settings)


def condition(settings: Settings) -> pl.Expr | None:
    """Return the condition for items to be shown; None: all may be."""
    try:
        return pl.sql_expr(settings.where) if settings.where else None
    except pl.exceptions.PolarsError as error:
        rule = "a condition in SQL on the catalogue's columns, such as stock > 0"
        raise InvalidArgument("serve", "where", rule, f"{settings.where} ({str(error).splitlines()[0]})") from error


def load_items(settings: Settings) -> Catalogue:
    """Return the catalogue: a saved one, or a table whose columns have roles."""
    table = Path(settings.items).suffix.lower() in READERS  # after a rebuild, `items` is a saved catalogue
    return Catalogue.load(settings.items, columns=settings.roles() if table else None)


def fulfilling(settings: Settings, catalogue: Catalogue) -> NDArray[np.bool_]:
    """Return which items fulfil `where`; refuse a condition that does not fit the catalogue's columns."""
    shown = condition(settings)
    try:
        return np.ones(len(catalogue), np.bool_) if shown is None else fulfilled(catalogue, shown)
    except InvalidArgument as error:
        rule = f"a condition on the columns {', '.join(catalogue.table.columns)}"
        raise InvalidArgument("serve", "where", rule, f"{settings.where} ({error.value})") from error


def make_policy(settings: Settings, **aids: object) -> Policy:
    """Return the policy, with its bandit and budget; `aids` are its prior and features."""
    kind = policy_named("serve", "policy", settings.policy, TREE_POLICIES)
    if kind.shared_state or not kind.replayable:
        rule = "one whose state for a user follows from that user's events alone"
        raise InvalidArgument("serve", "policy", rule, settings.policy)
    given = {**aids, "budget": settings.budget} if settings.budget else aids
    made: Policy = make("serve", "policy", settings.policy, kind, _make_bandit(settings), **given)
    return made


def _make_bandit(settings: Settings) -> Bandit:
    kind = bandit_named("serve", "bandit", settings.bandit)
    parameter = strength_of(kind)
    if settings.strength and parameter is None:
        raise InvalidArgument("serve", "strength", f"0: {settings.bandit} declares no strength", settings.strength)
    given = {str(parameter): settings.strength} if settings.strength else {}
    made: Bandit = make("serve", "bandit", settings.bandit, kind, **given)
    return made


# --- all of them together --------------------------------------------------------------------------------------------


def open_explorer(settings: Settings, progress: Progress = silent, *, chosen: bool = False) -> Explorer:
    """Return the explorer of the settings or, if `chosen`, of the snapshot that a swap or a rebuild chose instead."""
    store = open_store(settings.store, progress)
    try:
        choice = choice_of(store, settings) if chosen else None
        try:
            if choice is None or choice.now == choice.settings:
                return explorer_over(store, settings, progress)
            return explorer_over(store, choice.now.into(settings), progress, accepted=True)
        except TreewardError as error:
            if choice is None or choice.now == choice.settings:
                raise
            raise unservable(choice.now.items, error) from error
    except BaseException:
        abandon(store)
        raise


def unservable(items: str, error: TreewardError) -> TreewardError:
    """Return an error that says why the chosen items cannot be served, and what to do."""
    told = f"what a swap or a rebuild put in place, as the store notes ({items}), cannot be served: {error}"
    return TreewardError(f"{told}. Bring it back, or serve what the settings name: treeward serve --from-settings")


def parts(settings: Settings, *, accepted: bool = False) -> tuple[Catalogue, Policy, ItemTree | None]:
    """Return the items, the policy and, if there is one, the tree of the settings; refuse them if they do not fit.

    `accepted`: they were served before. Items may have got other vectors one by one since, so they are not compared
    with the sample of vectors that the prior has.
    """
    check(settings)
    catalogue = load_items(settings)
    prior = Crowd.load(settings.prior) if settings.prior else None
    features = load_features(settings.features) if settings.features else None
    policy = make_policy(settings, prior=prior, features=features)
    if prior is not None and len(catalogue):
        policy.catalogue_for(
            Catalogue.of_table(catalogue.table[:1], catalogue.vectors[:1])
        )  # refuses other dimensions, and other ids
        if not settings.features and not accepted:  # with features, the prior was fitted to their vectors
            check_vectors("serve", prior, catalogue, settings.prior)
    tree = ItemTree.load(settings.tree) if settings.tree else None
    if tree is not None and (len(tree) != len(catalogue) or (features is None and _is_foreign(tree, catalogue))):
        rule = f"built of these {len(catalogue):,} items, in this order"
        raise InvalidArgument("serve", "tree", rule, f"{settings.tree}, of {len(tree):,}")
    fulfilling(settings, catalogue)
    return catalogue, policy, tree


def warnings_about(settings: Settings, catalogue: Catalogue, policy: Policy, tree: ItemTree | None) -> Iterator[str]:
    """Return sentences about settings that can be served, but are hardly what the operator meant."""
    if catalogue.ids_are_row_numbers:
        yield (
            f"{settings.items}: no column is called id, so items go by their row numbers, 0 to {len(catalogue) - 1}; "
            f"--column id=NAME says which holds their ids (it has {', '.join(catalogue.table.columns[1:])})"
        )
    prior = policy.prior
    if not isinstance(prior, Crowd):
        return
    if prior.provenance.get("trial", {}).get("worse"):
        found = prior.provenance["trial"]
        yield (
            f"the prior {settings.prior} may do harm: when it was fitted, it earned {found['prior']:.4f} per "
            f"recommendation, a list of the most popular items {found['popularity']:.4f}, no prior "
            f"{found['nothing']:.4f}"
        )
    clustered = tree is not None and policy.features is None and tree.provenance.get("made_by") == "build"
    if tree is not None and clustered and tree.provenance.get(PRIOR) != prior.digest:
        what = "another prior" if PRIOR in tree.provenance else "no prior"
        fix = shlex.join(
            ["treeward", "tree", "build", settings.items, "--prior", settings.prior, "-o", settings.tree, "--force"]
            + [word for one in settings.columns for word in ("--column", one)]
        )
        yield f"the tree {settings.tree} was built with {what}; one that fits {settings.prior}: {fix}"


def _is_foreign(tree: ItemTree, catalogue: Catalogue) -> bool:
    """Return whether a tree was built of other items: most leaves are far from the mean of the items they contain."""
    if tree.dim != catalogue.dim:  # it was built over vectors that a prior has changed
        return False
    some, far = tree.leaves[:: max(1, len(tree.leaves) // 50)], 0
    for leaf in some:
        items = catalogue.vectors[tree.items_of(int(leaf))].astype(np.float64)
        if tree.normalized:
            items /= np.maximum(np.linalg.norm(items, axis=1, keepdims=True), 1e-12)
        off = items.mean(axis=0) - tree.vectors[leaf]
        far += int(off @ off > 0.05**2 * np.square(items).sum(axis=1).mean())
    return 2 * far > len(some)


def explorer_over(
    store: EventStore, settings: Settings, progress: Progress = silent, *, accepted: bool = False
) -> Explorer:
    """Return the explorer of the settings over an open store, warm; `accepted`: as for `parts`."""
    catalogue, policy, tree = parts(settings, accepted=accepted)
    made = Explorer(
        catalogue,
        _grown(policy, catalogue, progress) if tree is None else tree,
        policy,
        store,
        repeats=settings.repeats,
        on_repeat=settings.on_repeat,
        reward_range=(settings.reward_low, settings.reward_high),
        exposures="all",
        exposed_within=None if settings.exposures == "strict" else _EXPOSED_WITHIN,
        window=settings.window or None,
        learns=settings.mode != "frozen",
        counts=True,
        cold=settings.cold,
        spare=settings.spare,
        where=condition(settings),
        progress=progress,
        memory=settings.memory << 20,
        crowd=settings.crowd,
        half_life=settings.half_life or None,
        publishes=False,
    )
    with suppress(NothingLeft):  # nothing may be in stock
        made.preview("")  # compiles and loads what the first request would have to wait for
    return made


def _grown(policy: Policy, catalogue: Catalogue, progress: Progress) -> ItemTree:
    tree = policy.grow(catalogue, progress=progress)
    if catalogue.titles is None:
        return tree
    progress("naming nodes", 0, 1)
    named = tree.named(catalogue.titles)
    progress("naming nodes", 1, 1)
    return named
