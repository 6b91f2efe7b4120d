"""Three ways to explore with a Gaussian linear posterior, and priors for it. Knows vectors, never a tree."""

from inspect import isclass

from treeward.bandit.crowd import Crowd
from treeward.bandit.prior import Prior
from treeward.bandit.rules import Bandit, EpsilonGreedy, LinUCB, Thompson
from treeward.core import checks, registry
from treeward.core.errors import InvalidArgument
from treeward.core.registry import Registry, find, is_own

BANDITS: Registry[type[Bandit]] = Registry(registry.BANDITS)


def bandit_named(owner: str, parameter: str, name: str) -> type[Bandit]:
    """Return a bandit by its name, or a user's own: ``file.py:Class`` or ``package.module:Class``."""
    if not is_own(name):
        return BANDITS[checks.one_of(owner, parameter, name, [*BANDITS, "FILE.py:CLASS"])]
    what = "a bandit (a class with a method `rule`)"
    found: type[Bandit] = find(owner, parameter, name, what)
    if not isclass(found) or not callable(getattr(found, "rule", None)):
        raise InvalidArgument(owner, parameter, what, name)
    return found


def strength_of(kind: type[Bandit]) -> str | None:
    """Return which parameter of a bandit says how much it explores; None: the bandit does not declare it."""
    return getattr(kind, "strength", None)


__all__ = [
    "BANDITS",
    "Bandit",
    "Crowd",
    "EpsilonGreedy",
    "LinUCB",
    "Prior",
    "Thompson",
    "bandit_named",
    "strength_of",
]
