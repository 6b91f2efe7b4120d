"""Worlds to try policies in, and the loop that tries them."""

import sys
from inspect import signature
from types import ModuleType
from typing import Any

from treeward.simulate.context_free import context_free_ceiling
from treeward.simulate.curves import draw_curves
from treeward.simulate.off_policy import off_policy
from treeward.simulate.replay import replay
from treeward.simulate.result import Result
from treeward.simulate.run import simulate
from treeward.simulate.world import World

__all__ = ["Result", "World", "context_free_ceiling", "draw_curves", "off_policy", "replay", "simulate"]


class _Callable(ModuleType):
    """Lets ``treeward.simulate(...)`` work whether the name means this package or the function in it."""

    __signature__ = signature(simulate)

    def __call__(self, *args: Any, **options: Any) -> Result:
        return simulate(*args, **options)


sys.modules[__name__].__class__ = _Callable
