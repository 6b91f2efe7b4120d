"""What may be served, but is hardly what somebody meant."""

import shlex
from collections.abc import Iterator

from treeward.bandit.crowd import Crowd
from treeward.data.catalogue import Catalogue
from treeward.policy.base import PRIOR, Policy
from treeward.serve.settings import Settings
from treeward.tree.item_tree import ItemTree


def doubts(settings: Settings, catalogue: Catalogue, policy: Policy, tree: ItemTree | None) -> Iterator[str]:
    """Say what somebody should know of settings that are sound, a sentence each."""
    if catalogue.ids_are_row_numbers:
        yield (
            f"{settings.items}: no column is called id, so items go by their row numbers, 0 to {len(catalogue) - 1}; "
            f"--column id=NAME says which holds their ids (it has {', '.join(catalogue.table.columns[1:])})"
        )
    prior = policy.prior
    if not isinstance(prior, Crowd):
        return
    if prior.provenance.get("trial", {}).get("worse"):
        told = prior.provenance["trial"]
        yield (
            f"the prior {settings.prior} may do harm: when it was fitted, it earned {told['prior']:.4f} per "
            f"recommendation, a list of the most popular items {told['popularity']:.4f}, no prior {told['nothing']:.4f}"
        )
    clustered = tree is not None and policy.features is None and tree.provenance.get("made_by") == "build"
    if tree is not None and clustered and tree.provenance.get(PRIOR) != prior.digest:
        what = "another prior" if PRIOR in tree.provenance else "no prior"
        fix = shlex.join(
            ["treeward", "tree", "build", settings.items, "--prior", settings.prior, "-o", settings.tree, "--force"]
            + [word for one in settings.columns for word in ("--column", one)]
        )
        yield f"the tree {settings.tree} was built with {what}; one that fits {settings.prior}: {fix}"
