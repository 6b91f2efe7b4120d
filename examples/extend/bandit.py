"""A bandit of your own: LinUCB whose alpha follows from a confidence level instead of tuning.

Abbasi-Yadkori, Pal and Szepesvari (2011): after n events of noise R, the true reward of every arm lies within
alpha * width of its estimate with probability 1 - delta, for
alpha = R sqrt(d ln((1 + n / (ridge d)) / delta)) + sqrt(ridge) S, where theta is at most S long.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import treeward as tw
from treeward.bandit.rules import UCB, Rule
from treeward.core import checks
from treeward.core.checks import Count, NotNegative, Number, Positive
from treeward.testing import check_bandit


@dataclass(frozen=True)
class Confident:
    """LinUCB with alpha from the dimensions.

    Parameters
    ----------
    delta
        How often an estimate may be off by more than its width.
    events
        How many events of a user that should hold for.
    noise
        R: how far a reward strays from its mean; 0.5 is enough for clicks, which are 0 or 1.
    length
        S: how long theta may be.
    ridge
        A = ridge * I at the start.
    """

    delta: Annotated[float, Number(above=0, below=1)] = 0.1
    events: Count = 1_000
    noise: NotNegative = 0.5
    length: NotNegative = 1.0
    ridge: Positive = 1.0

    def rule(self, dim: int) -> Rule:
        """Return the rule, checked: the kernel takes a kind, a strength and a ridge."""
        own = checks.validate(self)
        grown = math.log((1 + own.events / (own.ridge * dim)) / own.delta)
        return Rule(UCB, own.noise * math.sqrt(dim * grown) + math.sqrt(own.ridge) * own.length, own.ridge)


if __name__ == "__main__":
    check_bandit(Confident())
    world = tw.World.synthetic(items=2_000, users=20, dim=8, seed=0)
    for bandit in (Confident(), Confident(noise=0.05, length=0.1), tw.LinUCB()):
        result = tw.simulate(tw.Flat(bandit), world, rounds=200, seed=0, reward="click")
        print(f"{bandit}: alpha {bandit.rule(8).strength:.2f}, {result.cumulative[-1]:.1f} clicks in 200 rounds")
