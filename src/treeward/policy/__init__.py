"""Policies: which items a bandit looks at, and what it learns from a reward. One file a policy."""

from collections.abc import Mapping
from types import MappingProxyType

from treeward.core import checks
from treeward.core.named import find_class, is_own
from treeward.policy.base import Policy
from treeward.policy.baselines.context_free import ContextFree
from treeward.policy.baselines.conucb import ConUCB
from treeward.policy.baselines.hmab import HMAB
from treeward.policy.baselines.ictr import ICTR
from treeward.policy.beam import Beam
from treeward.policy.expansion import Expansion, LogThreshold, Thresholds
from treeward.policy.hcb import HCB, CBCategory, CBLeaf, Flat
from treeward.policy.phcb import PHCB

TREE_POLICIES: dict[str, type[Policy]] = {
    "flat": Flat,
    "cb-category": CBCategory,
    "cb-leaf": CBLeaf,
    "hcb": HCB,
    "phcb": PHCB,
    "beam": Beam,
}
"""Those that walk a tree, with a posterior of each user's own."""

POLICIES: dict[str, type[Policy]] = {
    **TREE_POLICIES,
    "hmab": HMAB,
    "ictr": ICTR,
    "conucb": ConUCB,
    "context-free": ContextFree,
}
"""All there are; the others are baselines, which run in simulations only."""


def policy_named(
    owner: str, parameter: str, name: str, known: Mapping[str, type[Policy]] = MappingProxyType(POLICIES)
) -> type[Policy]:
    """Return a policy by its name, or somebody's own: ``file.py:Class`` or ``package.module:Class``."""
    if is_own(name):
        found: type[Policy] = find_class(owner, parameter, name, Policy, "a subclass of treeward's Policy")
        return found
    return known[checks.one_of(owner, parameter, name, [*known, "FILE.py:CLASS"])]


__all__ = [
    "HCB",
    "HMAB",
    "ICTR",
    "PHCB",
    "POLICIES",
    "TREE_POLICIES",
    "Beam",
    "CBCategory",
    "CBLeaf",
    "ConUCB",
    "ContextFree",
    "Expansion",
    "Flat",
    "LogThreshold",
    "Policy",
    "Thresholds",
    "policy_named",
]
