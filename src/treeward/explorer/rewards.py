"""Rewards: which there may be, and what another one for the same decision does."""

import math
from collections.abc import Sequence

from treeward.core import checks
from treeward.core.errors import FeedbackConflict, InvalidArgument
from treeward.policy.session import LARGEST

REPEATS = ("reject", "max", "sum", "last")


def checked_range(value: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the largest reward there may be."""
    if not isinstance(value, Sequence) or len(value) != 2:
        raise InvalidArgument("Explorer", "reward_range", "two numbers, the least and the largest", value)
    low = checks.number("Explorer", "reward_range", value[0], low=-LARGEST, high=LARGEST)
    return low, checks.number("Explorer", "reward_range", value[1], above=low, high=LARGEST)


def change_of(id: str, given: list[float], reward: float, on_repeat: str) -> float | None:
    """Return by how much a reward changes what a decision earned so far; None: not at all."""
    if not given:
        return reward
    total = math.fsum(given)
    same = math.isclose(total, reward, rel_tol=1e-12, abs_tol=1e-12)
    if on_repeat == "sum":
        return None if reward in given or reward == 0 else reward
    if same or (on_repeat == "max" and reward < total):
        return None
    if on_repeat == "reject":
        raise FeedbackConflict(f"the decision {id[:12]}... has the reward {total:g} already, and now got {reward:g}")
    return reward - total
