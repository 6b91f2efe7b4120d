"""Policies: which items a bandit looks at, and what it learns from a reward. One file per policy."""

from collections.abc import Mapping

from treeward.core import checks, registry
from treeward.core.registry import Registry, find_class, is_own
from treeward.policy.base import Policy, Thresholds
from treeward.policy.baselines.context_free import ContextFree
from treeward.policy.baselines.conucb import ConUCB
from treeward.policy.baselines.diag_linucb import DiagLinUCB
from treeward.policy.baselines.enr import ENR
from treeward.policy.baselines.hmab import HMAB
from treeward.policy.baselines.ictr import ICTR
from treeward.policy.baselines.mips import MIPS
from treeward.policy.baselines.spanner import SpannerGreedy, SpannerIGW
from treeward.policy.baselines.xcb import XCB
from treeward.policy.beam import Beam
from treeward.policy.hcb import HCB, CBCategory, CBLeaf, Flat
from treeward.policy.phcb import PHCB, Expansion, LogThreshold

TREE_POLICIES: Registry[type[Policy]] = Registry(registry.TREE_POLICIES)
"""Those that walk a tree, with a posterior per user."""

POLICIES: Registry[type[Policy]] = Registry(registry.TREE_POLICIES | registry.BASELINES)
"""All of them; baselines run in simulations only."""


def policy_named(owner: str, parameter: str, name: str, known: Mapping[str, type[Policy]] = POLICIES) -> type[Policy]:
    """Return a policy by its name, or a user's own: ``file.py:Class`` or ``package.module:Class``."""
    if is_own(name):
        found: type[Policy] = find_class(owner, parameter, name, Policy, "a subclass of treeward's Policy")
        return found
    return known[checks.one_of(owner, parameter, name, [*known, "FILE.py:CLASS"])]


__all__ = [
    "ENR",
    "HCB",
    "HMAB",
    "ICTR",
    "MIPS",
    "PHCB",
    "POLICIES",
    "TREE_POLICIES",
    "XCB",
    "Beam",
    "CBCategory",
    "CBLeaf",
    "ConUCB",
    "ContextFree",
    "DiagLinUCB",
    "Expansion",
    "Flat",
    "LogThreshold",
    "Policy",
    "SpannerGreedy",
    "SpannerIGW",
    "Thresholds",
    "policy_named",
]
