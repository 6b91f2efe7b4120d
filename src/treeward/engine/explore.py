"""One decision: the best of a few candidate arms under a rule."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.compiled import inner, multiply
from treeward.core.types import Floats
from treeward.engine.posterior import factorise

UCB, SAMPLE, GREEDY_LINEAR, GREEDY_MEAN = range(4)
"""How a score is made: mean plus width, a sampled theta, the posterior mean, or the mean of the arm's own rewards."""

_TIES = 1 << 14
_DRAWS = 32
_CLOSE = np.float32(1e-6)
_FEW = 64
"""Up to this many arms, sampling their scores jointly is cheaper than sampling theta."""


class Draws(NamedTuple):
    """A source of random numbers: `counter` and all after it are unused."""

    seed: int
    stream: int
    counter: int


class Belief(NamedTuple):
    """What is known of the parameters of a user's arms of one kind."""

    inverse: Floats
    """(d, d): A^-1."""
    theta: Floats
    """(d,): the posterior mean."""
    taste: Floats
    """(d, d) or (0, 0): `CrowdArrays.root`; only Thompson sampling reads it."""


class Candidates(NamedTuple):
    """Working memory for the candidates of one decision. The caller fills in the candidates; decisions reuse it."""

    arm: NDArray[np.int64]
    """(most,): the caller's number of each candidate: a node or a place."""
    vectors: Floats
    """(most, d)."""
    usable: NDArray[np.int64]
    """(widest,): for the caller, when candidates are selected from a longer list ..."""
    rank: Floats
    """(widest,): ... by rank."""
    visits: NDArray[np.float64]
    """(most,): how often the user tried the arm. Only filled for the rule that reads the arm's own mean."""
    rewards: NDArray[np.float64]
    """(most,): the total reward of these tries."""
    factor: Floats
    """(most,): the score is multiplied by it; 1 in the paper."""
    bonus: Floats
    """(most,): added to the score; 0 in the paper."""
    offset: Floats
    """(most,): what the crowd adds to the mean; 0 in the paper."""
    spread: Floats
    """(most, d): x A^-1."""
    shared: Floats
    """(most, d): x A^-1 M, see `CrowdArrays`."""
    root: NDArray[np.float64]
    """(d, d): L, where L L' = A^-1."""
    joint: NDArray[np.float64]
    """(2, few, few): the covariance of the candidates' scores and its root. Empty if there may be many candidates."""
    normal: Floats
    """(d or few,): normal draws."""
    drawn: Floats
    """(d,): a sampled theta ..."""
    sampled: Floats
    """(most,): ... and the scores under it."""
    mean: Floats
    """(most,): output: expected reward."""
    width: Floats
    """(most,): output: sqrt(x' A^-1 x), if the rule needs it."""
    one: Floats
    """(2, d): for a single vector."""
    found: NDArray[np.int64]
    """(searches,): for a beam: the best item that each of several searches found."""

    @classmethod
    def empty(cls, most: int, dim: int, widest: int = 0, searches: int = 0, *, known: bool = False) -> "Candidates":
        """Return memory for `most` candidates out of `widest`; without vectors if means and widths are `known`."""
        vectors = 0 if known else most
        few = most if most <= _FEW else 0
        return cls(
            np.zeros(most, dtype=np.int64),
            np.zeros((vectors, dim), dtype=np.float32),
            np.zeros(widest, dtype=np.int64),
            np.zeros(widest, dtype=np.float32),
            np.zeros(most),
            np.zeros(most),
            np.ones(most, dtype=np.float32),
            np.zeros(most, dtype=np.float32),
            np.zeros(most, dtype=np.float32),
            np.zeros((vectors, dim), dtype=np.float32),
            np.zeros((vectors, dim), dtype=np.float32),
            np.zeros((dim, dim)),
            np.zeros((2, few, few)),
            np.zeros(max(dim, few), dtype=np.float32),
            np.zeros(dim, dtype=np.float32),
            np.zeros(most, dtype=np.float32),
            np.zeros(most, dtype=np.float32),
            np.zeros(most, dtype=np.float32),
            np.zeros((2, dim), dtype=np.float32),
            np.zeros(searches, dtype=np.int64),
        )


@inner
def best_of(kind: int, strength: float, belief: Belief, x: Floats, candidates: Candidates, draws: Draws) -> int:
    """Return the index of the candidate to take; `x` are the candidates' vectors.

    Scores that differ only by rounding are ties. A tie goes to the first candidate from a random start: otherwise all
    new users would meet the same arms.
    """
    count, theta = len(x), belief.theta
    mean = candidates.mean[:count]
    if kind == UCB:
        multiply(x, belief.inverse, candidates.spread[:count])
        _means_and_widths(x, theta, candidates)
    elif kind == GREEDY_MEAN:
        for i in range(count):
            mean[i] = candidates.rewards[i] / candidates.visits[i] if candidates.visits[i] > 0 else 0.0
    else:
        for i in range(count):
            mean[i] = dot(x[i], theta) + candidates.offset[i]
    if kind == SAMPLE:
        draw(candidates, belief, strength, draws)
        return best_drawn(theta, x, candidates, draws)
    return best_scored(kind, strength, count, candidates, draws)


@inner
def best_drawn(theta: Floats, x: Floats, candidates: Candidates, draws: Draws) -> int:
    """Return the index of the candidate with the highest score under the sampled theta."""
    count = len(x)
    for i in range(count):
        candidates.mean[i] = dot(x[i], theta) + candidates.offset[i]
        candidates.sampled[i] = dot(x[i], candidates.drawn) + candidates.offset[i]
    start = _random_start(count, draws)
    return _highest(candidates.sampled[:count], candidates.width, np.float32(0.0), candidates, start)


@inner
def best_scored(kind: int, strength: float, count: int, candidates: Candidates, draws: Draws) -> int:
    """Return the index of the candidate to take, given the means and, for LinUCB, the widths."""
    mean, start = candidates.mean[:count], _random_start(count, draws)
    if kind == UCB:
        return _highest(mean, candidates.width, np.float32(strength), candidates, start)
    if rng.uniform(draws.seed, draws.stream, draws.counter) < strength:
        return rng.below(draws.seed, draws.stream, draws.counter + 1, count)
    return _highest(mean, candidates.width, np.float32(0.0), candidates, start)


@inner
def chance_of(
    chosen: int,
    kind: int,
    strength: float,
    belief: Belief,
    count: int,
    x: Floats,
    candidates: Candidates,
    draws: Draws,
) -> float:
    """Return the probability that `best_of`, or `best_scored`, takes `chosen` of the candidates it was just given.

    Exact for LinUCB and epsilon-greedy. For Thompson sampling it is the share of the decision's own draw and `_DRAWS`
    more, from a stream of their own, that choose it; only that reads the vectors `x`.
    """
    if kind == SAMPLE:
        return _share_of_draws(chosen, strength, belief, count, x, candidates, draws)
    share = _tie_share(
        chosen,
        candidates.mean[:count],
        candidates.width,
        np.float32(strength if kind == UCB else 0.0),
        candidates,
    )
    return share if kind == UCB else strength / count + (1.0 - strength) * share


@inner(inline=False)
def _share_of_draws(
    chosen: int, strength: float, belief: Belief, count: int, x: Floats, candidates: Candidates, draws: Draws
) -> float:
    """Return the share of this decision's draw and `_DRAWS` more that choose `chosen`."""
    wins, sampled, few = 1, candidates.sampled[:count], count <= candidates.joint.shape[1]
    if few:
        _join(belief, x, candidates)
    for turn in range(1, _DRAWS + 1):
        other = Draws(draws.seed, draws.stream ^ turn << 56, draws.counter)
        if few:
            _sample_jointly(count, candidates, strength, other)
        else:
            _sample(x, candidates, belief, strength, other)
        start = _random_start(count, other)
        wins += _highest(sampled, candidates.width, np.float32(0.0), candidates, start) == chosen
    return wins / (_DRAWS + 1)


@inner
def _random_start(count: int, draws: Draws) -> int:
    """Return the candidate from which ties are searched."""
    return rng.below(draws.seed, draws.stream, draws.counter + _TIES, count)


@inner
def _score(mean: Floats, width: Floats, weight: np.float32, candidates: Candidates, i: int) -> np.float32:
    score: np.float32 = candidates.factor[i] * (mean[i] + weight * width[i] if weight != 0 else mean[i])
    score += candidates.bonus[i]
    return score


@inner
def _enough(mean: Floats, width: Floats, weight: np.float32, candidates: Candidates) -> np.float32:
    """Return the lowest score that counts as the best, allowing for rounding."""
    best = np.float32(-np.inf)
    for i in range(len(mean)):
        best = max(best, _score(mean, width, weight, candidates, i))
    return best - _CLOSE * abs(best)


@inner
def _highest(mean: Floats, width: Floats, weight: np.float32, candidates: Candidates, start: int) -> int:
    limit = _enough(mean, width, weight, candidates)
    for turn in range(len(mean)):
        i = start + turn if start + turn < len(mean) else start + turn - len(mean)
        if _score(mean, width, weight, candidates, i) >= limit:
            return i
    return start


@inner
def _tie_share(chosen: int, mean: Floats, width: Floats, weight: np.float32, candidates: Candidates) -> float:
    """Return the share of random starts from which `_highest` finds `chosen`; 0 if it is not among the best."""
    count, limit = len(mean), _enough(mean, width, weight, candidates)
    if not _score(mean, width, weight, candidates, chosen) >= limit:
        return 0.0
    starts = 1
    while starts < count and not _score(mean, width, weight, candidates, (chosen - starts) % count) >= limit:
        starts += 1
    return starts / count


@inner(sums=True)
def _means_and_widths(x: Floats, theta: Floats, candidates: Candidates) -> None:
    for i in range(len(x)):
        row, wide = x[i], candidates.spread[i]
        mean, square = np.float32(0.0), np.float32(0.0)
        for j in range(len(theta)):
            mean += row[j] * theta[j]
            square += row[j] * wide[j]
        candidates.mean[i] = mean + candidates.offset[i]
        candidates.width[i] = np.sqrt(max(square, np.float32(0.0)))


@inner(sums=True)
def dot(a: Floats, b: Floats) -> np.float32:
    """Return the inner product."""
    total = np.float32(0.0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@inner
def draw(candidates: Candidates, belief: Belief, v: float, draws: Draws) -> None:
    """Sample a theta into `candidates.drawn`: from N(theta, v^2 A^-1), or by the uncertainty of the shared taste."""
    if len(belief.taste) == 0:
        factorise(belief.inverse, candidates.root)
    _draw(candidates, belief, v, draws)


@inner(sums=True)
def _draw(candidates: Candidates, belief: Belief, v: float, draws: Draws) -> None:
    """Write theta + v L z; with a crowd theta + v A^-1 M z, since the shared taste is uncertain."""
    inverse, theta, taste = belief
    drawn, root, normal, one = candidates.drawn, candidates.root, candidates.normal, candidates.one[0]
    for k in range(len(theta)):
        normal[k] = np.float32(rng.normal(draws.seed, draws.stream, draws.counter + k))
    if len(taste) > 0:
        for i in range(len(theta)):
            one[i] = dot(taste[i], normal)
    for i in range(len(theta)):
        moved: Any = 0.0
        if len(taste) > 0:
            moved += dot(inverse[i], one)
        else:
            for k in range(i + 1):
                moved += root[i, k] * normal[k]
        drawn[i] = np.float32(theta[i] + v * moved)


@inner
def _sample(x: Floats, candidates: Candidates, belief: Belief, v: float, draws: Draws) -> None:
    """Sample a theta and write the candidates' scores under it."""
    _draw(candidates, belief, v, draws)
    for i in range(len(x)):
        candidates.sampled[i] = dot(x[i], candidates.drawn) + candidates.offset[i]


@inner(inline=False)
def _join(belief: Belief, x: Floats, candidates: Candidates) -> None:
    """Write the covariance of the candidates' scores, and its root."""
    count, joint, taste = len(x), candidates.joint[0], belief.taste
    spread, shared = candidates.spread[:count], candidates.shared[:count]
    multiply(x, belief.inverse, spread)
    if len(taste) > 0:
        multiply(spread, taste, shared)
    for i in range(len(joint)):
        for j in range(len(joint)):
            joint[i, j] = 0.0
            if i < count and j < count:
                joint[i, j] = dot(shared[i], shared[j]) if len(taste) > 0 else dot(spread[i], x[j])
    factorise(joint, candidates.joint[1])


@inner(sums=True)
def _sample_jointly(count: int, candidates: Candidates, v: float, draws: Draws) -> None:
    """Sample the candidates' scores from the joint distribution that `_join` wrote."""
    root, normal = candidates.joint[1], candidates.normal
    for i in range(count):
        normal[i] = np.float32(rng.normal(draws.seed, draws.stream, draws.counter + i))
        moved = 0.0
        for k in range(i + 1):
            moved += root[i, k] * normal[k]
        candidates.sampled[i] = np.float32(candidates.mean[i] + v * moved)
