"""One Gaussian linear posterior, three ways to explore with it. Sees feature matrices, never a tree."""

from treeward.bandit.population import PopulationPrior
from treeward.bandit.prior import Prior
from treeward.bandit.rules import Bandit, EpsilonGreedy, LinUCB, Thompson

BANDITS: dict[str, type[Bandit]] = {
    "linucb": LinUCB,
    "thompson": Thompson,
    "epsilon": EpsilonGreedy,
}

STRENGTHS = {"linucb": "alpha", "thompson": "v", "epsilon": "epsilon"}
"""What each calls the parameter that says how much it explores."""

__all__ = ["BANDITS", "STRENGTHS", "Bandit", "EpsilonGreedy", "LinUCB", "PopulationPrior", "Prior", "Thompson"]
