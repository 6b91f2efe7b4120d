"""When pHCB opens a visible node. Thresholds are arrays by level, so that kernels need no Python function."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.checks import Fraction, NotNegative


class Thresholds(NamedTuple):
    """By level, from 0 (unused) to the deepest: what a visible node needs in order to open."""

    visits: NDArray[np.float64]
    mean: NDArray[np.float64]
    at_least: bool = False
    """Whether a mean reward equal to the threshold is enough."""


class Expansion(Protocol):
    """Anything that says, level by level, when a node opens. You can pass your own."""

    def thresholds(self, levels: int) -> Thresholds:
        """Return the thresholds for a tree of `levels` levels; the root is on level 1."""
        ...


@dataclass(frozen=True)
class LogThreshold:
    """The paper's rule: at least floor(q ln l) visits and a mean reward above p ln l on level l.

    Parameters
    ----------
    q, p
        10 and 0.1 in the paper.
    authors
        As in the paper's authors' code: visits not rounded down, and a mean equal to the threshold is enough.
    """

    q: NotNegative = 10
    p: Fraction = 0.1
    authors: bool = False

    def thresholds(self, levels: int) -> Thresholds:
        """Return the thresholds for a tree of `levels` levels."""
        own = checks.validate(self)
        logs = np.array([0.0] + [math.log(level) for level in range(1, levels + 1)])
        visits = own.q * logs if own.authors else np.floor(own.q * logs)
        return Thresholds(visits, own.p * logs, own.authors)
