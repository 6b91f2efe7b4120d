"""The most that a policy can earn that knows what is good on average, and nothing about single users."""

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from treeward.core import checks
from treeward.core.errors import InvalidArgument
from treeward.simulate.world import World


def context_free_ceiling(world: World, users: Sequence[int], budget: int) -> float:
    """Return the most that a context-free policy can expect per round, if it sees a random sample of items.

    Each round such a policy is given `budget` items, drawn uniformly without replacement. At best it shows the item
    of the sample with the highest mean probability over `users`. Out of N items the k-th best is the best of the
    sample with probability C(N - k, budget - 1) / C(N, budget). The result is the mean under these probabilities: it
    is exact, not simulated. Multiply it by the number of rounds to compare it with a cumulative reward.

    Items may be shown again, all users count equally, and the policy does not tell users apart. A policy that does,
    or that looks at more items, can earn more.

    Parameters
    ----------
    world
        The world that answers.
    users
        The users' numbers in the world: those the policies are tried on.
    budget
        Items that are looked at per round, at least 1. With as many as the catalogue has, or more, the result is the
        mean probability of the commonly best item.

    Examples
    --------
    >>> from treeward.data.catalogue import Catalogue
    >>> world = World.from_matrix([[1.0, 0.5, 0.0], [0.0, 0.5, 0.0]], Catalogue(["a", "b", "c"]))
    >>> round(context_free_ceiling(world, [0, 1], budget=2), 6)
    0.5
    """
    owner = "context_free_ceiling"
    checks.integer(owner, "budget", budget, low=1)
    chosen = [checks.integer(owner, "users", user, low=0, high=world.users - 1) for user in users]
    if not chosen:
        raise InvalidArgument(owner, "users", "at least one", "none")
    means = np.zeros(len(world.catalogue))
    for user in chosen:
        means += world.probabilities(user)
    means = -np.sort(-means) / len(chosen)
    items, sample = len(means), min(budget, len(means))
    rank = np.arange(1, items - sample + 2)  # the worst sample - 1 items are never the best of a sample
    chance = np.exp(_log_choose(items - rank, sample - 1) - _log_choose(np.array([items]), sample))
    return float(chance @ means[: len(rank)])


def _log_choose(count: np.ndarray, taken: int) -> np.ndarray:
    """Return log C(count, taken), in logs because C itself overflows for a few hundred items."""
    made: np.ndarray = gammaln(count + 1.0) - gammaln(taken + 1.0) - gammaln(count - taken + 1.0)
    return made
