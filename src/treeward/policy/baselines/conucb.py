"""ConUCB: a bandit that also asks users what they think of key-terms (Zhang et al., WWW 2020)."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.core.checks import NotNegative, Number, Positive
from treeward.core.compiled import kernel
from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.engine.explore import UCB
from treeward.policy.baselines.base import Questions, RoundPolicy, RoundSession, Setup
from treeward.policy.baselines.kernels import TIE, BatchDraws, Chosen, Drawn, Scored, project, scored, take_best
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows


@dataclass(frozen=True)
class ConUCB(RoundPolicy):
    """LinUCB over sampled items, with conversations: key-terms are the catalogue's categories.

    By round t a user has been asked about 5 * floor(ln(t + 1)) key-terms, each time the one whose answer says most
    about the round's candidates. Questions are not scores: `result.settings` counts them separately.

    Parameters
    ----------
    weight
        lambda: how much items count against key-terms.
    key_ridge
        lambda~: the key-terms' ridge.
    key_alpha
        alpha~: how much to prefer an item about which key-terms say little. The bandit's alpha is for items; its ridge
        is not used.
    """

    families: ClassVar[tuple[int, ...]] = (UCB,)
    needs_categories: ClassVar[bool] = True

    weight: Annotated[float, Number(above=0, below=1)] = 0.5
    key_ridge: Positive = 1.0
    key_alpha: NotNegative = 0.25

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return Conversation(self, self._by_category(tree, catalogue), catalogue, setup)


class Rule(NamedTuple):
    """lambda, alpha and alpha~; `key_most` |M^-1 x| is an upper bound of the width of x by key-terms."""

    weight: float
    alpha: float
    key_alpha: float
    key_most: float


class State(NamedTuple):
    """Per user: M^-1, sum of r x, M~^-1, sum of r~ x~."""

    inverse: NDArray[np.float64]
    sums: NDArray[np.float64]
    key_inverse: NDArray[np.float64]
    key_sums: NDArray[np.float64]
    key_theta: NDArray[np.float64]
    """theta~, which changes only with an answer."""


class Conversation(RoundSession):
    """ConUCB at work."""

    def __init__(self, policy: ConUCB, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> None:
        super().__init__(tree.items, setup)
        users, dim, ridge = self.users, catalogue.dim, policy.key_ridge
        self.each = 2 * dim * (dim + 1)
        most = (1 + 1e-5) / math.sqrt(ridge)
        self.rule = Rule(policy.weight, policy.bandit.rule(dim).strength, policy.key_alpha, most)
        self.vectors = Rows(catalogue.vectors, tree.normalized).take(tree.items).astype(np.float64)
        terms = range(int(tree.first_child[0]), int(tree.first_child[1]))
        self.terms = np.ascontiguousarray(tree.vectors[terms.start : terms.stop], dtype=np.float64)
        self.groups = [tree.items_of(term).astype(np.int64) for term in terms]
        self.asked = 0
        self._round, self._left = -1, 0
        eye = np.broadcast_to(np.eye(dim), (users, dim, dim))
        inverse, key_inverse = np.ascontiguousarray(eye / (1 - policy.weight)), np.ascontiguousarray(eye / ridge)
        sums = np.zeros((users, dim))
        self.state = State(inverse, sums, key_inverse, sums.copy(), sums.copy())

    def ask(self, users: ArrayLike, nonce: int) -> Questions | None:
        """Return one question per user, or None if no question is left in this round."""
        if nonce != self._round:
            self._round, self._left = nonce, questions_by(nonce) - questions_by(nonce - 1)
        if not self._left or not len(self.terms):
            return None
        self._left -= 1
        who = self.who(users)
        drawn = self.draw_any(who, nonce, None)
        groups = np.zeros(len(who), dtype=np.int64)
        _ask(self.state, self.vectors, self.terms, who, drawn, groups)
        self.asked += len(who)
        return Questions(who, groups)

    def hear(self, questions: Questions, rewards: ArrayLike) -> None:
        """Learn the answers."""
        values = np.asarray(rewards, dtype=np.float64)
        if values.shape != questions.user.shape or not np.isfinite(values).all():
            raise InvalidArgument("session", "rewards", f"{len(questions.user)} finite numbers", rewards)
        key_inverse, key_sums = self.state.key_inverse, self.state.key_sums
        _learn(key_inverse, key_sums, 1.0, self.terms, questions.user, questions.group, values)
        _solve(self.state, questions.user)

    def choose(self, step: int, who: NDArray[np.int64], drawn: Drawn, draws: BatchDraws, out: Chosen) -> None:
        """Choose an item."""
        _select(self.state, self.rule, self.vectors, who, drawn, draws, out)

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Add rewards of items."""
        inverse, sums = self.state.inverse, self.state.sums
        _learn(inverse, sums, self.rule.weight, self.vectors, decisions.user, decisions.place, rewards)


def questions_by(round: int) -> int:
    """Return how many questions a user was asked by the decision of a round, counted from 0.

    Examples
    --------
    >>> [questions_by(round) for round in (-1, 0, 2, 7, 2000)]
    [0, 0, 5, 10, 35]
    """
    return 5 * math.floor(math.log(max(round, 0) + 1))


class Work(NamedTuple):
    """Room for one user's candidates, beyond `Scored`."""

    bound: NDArray[np.float64]
    vector: Floats
    product: Floats
    inverse: Floats


@kernel
def _work(most: int, dim: int) -> Work:
    """Return room for `most` candidates."""
    single = np.float32
    vector, product = np.empty((most, dim), dtype=single), np.empty((most, dim), dtype=single)
    return Work(np.empty(most), vector, product, np.empty((dim, dim), dtype=single))


@kernel
def _select(
    state: State,
    rule: Rule,
    vectors: NDArray[np.float64],
    who: NDArray[np.int64],
    drawn: Drawn,
    draws: BatchDraws,
    out: Chosen,
) -> None:
    here, work = scored(drawn.place.shape[1]), _work(drawn.place.shape[1], vectors.shape[1])
    for i in range(len(who)):
        if drawn.taken[i] > 0:
            _score(state, rule, vectors, who[i], drawn.place[i, : drawn.taken[i]], here, work)
            take_best(here, drawn, i, draws, out)


@kernel(sums=True)
def _score(
    state: State,
    rule: Rule,
    vectors: NDArray[np.float64],
    user: int,
    places: NDArray[np.int64],
    here: Scored,
    work: Work,
) -> None:
    """Write the scores, means and widths of a user's candidates to `here`."""
    count, dim = len(places), vectors.shape[1]
    target = rule.weight * state.sums[user] + (1 - rule.weight) * state.key_theta[user]
    theta = np.dot(state.inverse[user], target)
    x, z = work.vector[:count], work.product[:count]
    for j in range(count):
        row, mean = places[j], 0.0
        for k in range(dim):
            x[j, k] = vectors[row, k]
            mean += vectors[row, k] * theta[k]
        here.mean[j] = mean
    for j in range(dim):  # in single precision: the products with it take most of a round
        for k in range(dim):
            work.inverse[j, k] = state.inverse[user, j, k]
    np.dot(x, work.inverse, z)
    for j in range(count):
        square, length = np.float32(0.0), np.float32(0.0)
        for k in range(dim):
            square += x[j, k] * z[j, k]
            length += z[j, k] * z[j, k]
        here.width[j] = np.sqrt(max(square, np.float32(0.0)))
        here.score[j] = here.mean[j] + rule.weight * rule.alpha * here.width[j]
        work.bound[j] = here.score[j] + (1 - rule.weight) * rule.key_alpha * rule.key_most * np.sqrt(length)
    _finish(state.key_inverse[user], (1 - rule.weight) * rule.key_alpha, z, work.bound, here.score)


@kernel(allocates=False, inline=True, sums=True)
def _finish(
    key_inverse: NDArray[np.float64],
    strength: float,
    z: Floats,
    bounds: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> None:
    """Add the widths of key-terms, which take d x d products each, to the scores that can be the best.

    `bounds` has upper bounds of all scores, which are tight as long as few questions were asked. A candidate whose
    bound is below the best score found so far is skipped.
    """
    most = -np.inf
    for _ in range(len(z)):
        next = 0
        for j in range(1, len(z)):
            if bounds[j] > bounds[next]:
                next = j
        if bounds[next] < most - 2 * TIE:
            break
        bounds[next] = -np.inf
        square = 0.0
        for k in range(z.shape[1]):
            along = 0.0
            for m in range(z.shape[1]):
                along += key_inverse[k, m] * z[next, m]
            square += along * z[next, k]
        scores[next] += strength * np.sqrt(max(square, 0.0))
        most = max(most, scores[next])


@kernel
def _learn(
    inverse: NDArray[np.float64],
    sums: NDArray[np.float64],
    weight: float,
    vectors: NDArray[np.float64],
    who: NDArray[np.int64],
    rows: NDArray[np.int64],
    rewards: NDArray[np.float64],
) -> None:
    """Add rewards of items, or answers about key-terms, to the users' posteriors."""
    z = np.empty(vectors.shape[1])
    for i in range(len(who)):
        x = vectors[rows[i]]
        _shrink(inverse[who[i]], x, weight, z)
        for j in range(len(x)):
            sums[who[i], j] += rewards[i] * x[j]


@kernel
def _solve(state: State, who: NDArray[np.int64]) -> None:
    for user in who:
        state.key_theta[user] = np.dot(state.key_inverse[user], state.key_sums[user])


@kernel(allocates=False, inline=True, sums=True)
def _shrink(inverse: NDArray[np.float64], x: NDArray[np.float64], weight: float, z: NDArray[np.float64]) -> None:
    """Turn A^-1 into (A + weight x x')^-1."""
    scale = weight / (1.0 + weight * project(inverse, x, z))
    for i in range(len(x)):
        for j in range(len(x)):
            inverse[i, j] -= scale * z[i] * z[j]


@kernel
def _ask(
    state: State,
    vectors: NDArray[np.float64],
    terms: NDArray[np.float64],
    who: NDArray[np.int64],
    drawn: Drawn,
    groups: NDArray[np.int64],
) -> None:
    for i in range(len(who)):
        groups[i] = _question(state, vectors, terms, who[i], drawn.place[i, : drawn.taken[i]])


@kernel
def _question(
    state: State,
    vectors: NDArray[np.float64],
    terms: NDArray[np.float64],
    user: int,
    places: NDArray[np.int64],
) -> int:
    """Return the key-term whose answer says most about the candidates."""
    x = np.empty((len(places), vectors.shape[1]))
    for j in range(len(places)):
        for k in range(x.shape[1]):
            x[j, k] = vectors[places[j], k]
    spread = np.dot(terms, state.key_inverse[user])  # rows: M~^-1 x~, which is symmetric
    along = np.dot(np.dot(x, state.inverse[user]), spread.T)
    chosen, most = 0, -1.0
    for k in range(len(terms)):
        gain = 0.0
        for j in range(len(places)):
            gain += along[j, k] * along[j, k]
        gain /= 1.0 + np.dot(terms[k], spread[k])
        if gain > most:
            chosen, most = k, gain
    return chosen
