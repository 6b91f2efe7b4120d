"""How a score is made of a posterior: LinUCB, Thompson sampling, epsilon-greedy.

Each is a few numbers; the kernel in `treeward.engine.explore` does the rest, from the same posterior for all three.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from treeward.core import checks
from treeward.engine.explore import GREEDY_LINEAR, GREEDY_MEAN, SAMPLE, UCB


class Rule(NamedTuple):
    """What the kernel needs to know of a bandit."""

    kind: int
    strength: float
    """alpha, v or epsilon."""
    ridge: float


class Bandit(Protocol):
    """Anything that becomes a rule for vectors of `dim` dimensions."""

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

    alpha: float = 0.5
    ridge: float = 1.0

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked."""
        alpha = checks.number("LinUCB", "alpha", self.alpha, low=0)
        return Rule(UCB, alpha, checks.number("LinUCB", "ridge", self.ridge, above=0))


@dataclass(frozen=True)
class Thompson:
    """Score = x' theta with theta ~ N(mean, v^2 A^-1), drawn once a decision.

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

    v: float | None = 0.2
    R: float = 1e-4
    delta: float = 0.1
    epsilon: float = 0.05
    ridge: float = 1.0

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked."""
        owner = "Thompson"
        ridge = checks.number(owner, "ridge", self.ridge, above=0)
        if self.v is not None:
            return Rule(SAMPLE, checks.number(owner, "v", self.v, low=0), ridge)
        scale = checks.number(owner, "R", self.R, low=0)
        delta = checks.number(owner, "delta", self.delta, above=0, below=1)
        epsilon = checks.number(owner, "epsilon", self.epsilon, above=0, below=1)
        return Rule(SAMPLE, scale * math.sqrt(24 / epsilon * dim * math.log(1 / delta)), ridge)


@dataclass(frozen=True)
class EpsilonGreedy:
    """With probability epsilon any candidate, else the best by estimate; drawn at every decision of a round.

    Parameters
    ----------
    epsilon
        Probability of a random arm; 0.05 in the paper.
    estimate
        ``"linear"``: x' theta. ``"mean"``: the arm's own mean reward for this user, 0 before the first.
    ridge
        A = ridge * I at the start.
    """

    epsilon: float = 0.05
    estimate: Literal["linear", "mean"] = "linear"
    ridge: float = 1.0

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked."""
        owner = "EpsilonGreedy"
        kinds = {"linear": GREEDY_LINEAR, "mean": GREEDY_MEAN}
        kind = kinds[checks.one_of(owner, "estimate", self.estimate, kinds)]
        epsilon = checks.number(owner, "epsilon", self.epsilon, low=0, high=1)
        return Rule(kind, epsilon, checks.number(owner, "ridge", self.ridge, above=0))
