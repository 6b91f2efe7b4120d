"""How a posterior becomes a score: LinUCB, Thompson sampling, epsilon-greedy.

Each is a few numbers. The kernel in `treeward.engine.explore` computes all scores from the same posterior.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol

from treeward.core import checks
from treeward.core.checks import Fraction, NotNegative, Number, Positive
from treeward.engine.explore import GREEDY_LINEAR, GREEDY_MEAN, SAMPLE, UCB

__all__ = [
    "GREEDY_LINEAR",
    "GREEDY_MEAN",
    "SAMPLE",
    "UCB",
    "Bandit",
    "EpsilonGreedy",
    "LinUCB",
    "Rule",
    "Thompson",
]


class Rule(NamedTuple):
    """What the kernel needs to know about a bandit."""

    kind: int
    strength: float
    """alpha, v or epsilon."""
    ridge: float


class Bandit(Protocol):
    """Anything that becomes a rule for vectors of `dim` dimensions.

    A class may name the parameter that says how much it explores: ``strength: ClassVar[str] = "alpha"``. Then settings
    and experiments can set it.
    """

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked."""
        ...


@dataclass(frozen=True)
class LinUCB:
    """Score = mean + alpha * width, where width = sqrt(x' A^-1 x).

    Parameters
    ----------
    alpha
        How much an uncertain arm is preferred; 0.5 in the paper.
    ridge
        A = ridge * I at the start.
    """

    strength: ClassVar[str] = "alpha"
    alpha: NotNegative = 0.5
    ridge: Positive = 1.0

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked."""
        own = checks.validate(self)
        return Rule(UCB, own.alpha, own.ridge)


@dataclass(frozen=True)
class Thompson:
    """Score = x' theta with theta ~ N(mean, v^2 A^-1), drawn once per decision.

    Parameters
    ----------
    v
        Spread of the draws. None: from the three below, v^2 = R^2 * 24 / epsilon * d * ln(1 / delta)
        (Agrawal and Goyal, 2013); R = 1e-4, delta = 0.1, epsilon = 0.05 are the paper's authors' numbers.
    R, delta, epsilon
        Sub-Gaussian scale of the noise, failure probability, and a free parameter in (0, 1).
    ridge
        A = ridge * I at the start.
    """

    strength: ClassVar[str] = "v"
    v: NotNegative | None = 0.2
    R: NotNegative = 1e-4
    delta: Annotated[float, Number(above=0, below=1)] = 0.1
    epsilon: Annotated[float, Number(above=0, below=1)] = 0.05
    ridge: Positive = 1.0

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked."""
        own = checks.validate(self)
        spread = own.R * math.sqrt(24 / own.epsilon * dim * math.log(1 / own.delta)) if own.v is None else own.v
        return Rule(SAMPLE, spread, own.ridge)


@dataclass(frozen=True)
class EpsilonGreedy:
    """With probability epsilon any candidate, else the best by estimate; drawn for every decision of a round.

    Parameters
    ----------
    epsilon
        Probability of a random arm; 0.05 in the paper.
    estimate
        ``"linear"``: x' theta. ``"mean"``: the arm's own mean reward for this user, 0 before the first.
    ridge
        A = ridge * I at the start.
    """

    strength: ClassVar[str] = "epsilon"
    epsilon: Fraction = 0.05
    estimate: Literal["linear", "mean"] = "linear"
    ridge: Positive = 1.0

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked."""
        own = checks.validate(self)
        return Rule(GREEDY_LINEAR if own.estimate == "linear" else GREEDY_MEAN, own.epsilon, own.ridge)
