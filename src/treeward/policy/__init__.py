"""Policies: which items a bandit looks at, and what it learns from a reward. One file a policy."""

from treeward.policy.base import Policy
from treeward.policy.expansion import Expansion, LogLevel, Thresholds
from treeward.policy.hcb import HCB, CBCategory, CBLeaf, Flat
from treeward.policy.phcb import PHCB

POLICIES: dict[str, type[Policy]] = {
    "flat": Flat,
    "cb-category": CBCategory,
    "cb-leaf": CBLeaf,
    "hcb": HCB,
    "phcb": PHCB,
}

__all__ = ["HCB", "PHCB", "POLICIES", "CBCategory", "CBLeaf", "Expansion", "Flat", "LogLevel", "Policy", "Thresholds"]
