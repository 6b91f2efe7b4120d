"""ConUCB: a bandit that also asks users what they think of key-terms (Zhang et al., WWW 2020)."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit.rules import UCB
from treeward.core import checks
from treeward.core.compiled import kernel, summing_kernel, tight_summing
from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.policy.rounds import ROUND, STEP, Drawn, Questions, RoundPolicy, RoundSession, best, project
from treeward.policy.session import Decisions, Session
from treeward.tree.item_tree import ItemTree
from treeward.tree.rows import Rows


@dataclass(frozen=True)
class ConUCB(RoundPolicy):
    """LinUCB over sampled items, with conversations: key-terms are the catalogue's categories.

    By round t a user has been asked about 5 * floor(ln(t + 1)) key-terms, each the one whose answer says most about the
    round's candidates. Questions are not scores: `result.settings` counts them apart.

    Parameters
    ----------
    weight
        lambda: how much items count against key-terms.
    key_ridge
        lambda~: the key-terms' ridge.
    key_alpha
        alpha~: how much an item is preferred that key-terms say little about. The bandit's alpha is for items; the
        bandit's ridge is not used.
    """

    families: ClassVar[tuple[int, ...]] = (UCB,)
    needs_categories: ClassVar[bool] = True

    weight: float = 0.5
    key_ridge: float = 1.0
    key_alpha: float = 0.25

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`, all of them new."""
        self.check(tree, catalogue)
        owner = "ConUCB"
        weight = checks.number(owner, "weight", self.weight, above=0, below=1)
        ridge = checks.number(owner, "key_ridge", self.key_ridge, above=0)
        rule = Rule(
            weight,
            self.bandit.rule(catalogue.dim).strength,
            checks.number(owner, "key_alpha", self.key_alpha, low=0),
        )
        return _Session(self.by_category(tree, catalogue), catalogue, rule, ridge, users, self.budget, once, seed)


class Rule(NamedTuple):
    """lambda, alpha and alpha~."""

    weight: float
    alpha: float
    key_alpha: float


class _State(NamedTuple):
    """Of every user: M^-1, sum of r x, M~^-1, sum of r~ x~."""

    inverse: NDArray[np.float64]
    sums: NDArray[np.float64]
    key_inverse: NDArray[np.float64]
    key_sums: NDArray[np.float64]
    quick: Floats
    """M^-1 in float32, for the widths, whose products take most of a round ..."""
    key_quick: Floats
    """... and M~^-1."""
    key_theta: NDArray[np.float64]
    """theta~, which changes with an answer only."""


class _Session(RoundSession):
    def __init__(
        self,
        tree: ItemTree,
        catalogue: Catalogue,
        rule: Rule,
        ridge: float,
        users: int,
        budget: int | None,
        once: bool,
        seed: int,
    ) -> None:
        super().__init__(tree.items, users, budget, once, seed)
        self.rule = rule
        self.vectors = Rows(catalogue.vectors, tree.normalized).take(tree.items).astype(np.float64)
        terms = range(int(tree.first_child[0]), int(tree.first_child[1]))
        self.terms = np.ascontiguousarray(tree.vectors[terms.start : terms.stop], dtype=np.float64)
        self.groups = [tree.items_of(term).astype(np.int64) for term in terms]
        self.asked = 0
        self._round, self._left = -1, 0
        dim = catalogue.dim
        eye = np.broadcast_to(np.eye(dim), (users, dim, dim))
        inverse, key_inverse = np.ascontiguousarray(eye / (1 - rule.weight)), np.ascontiguousarray(eye / ridge)
        quick, key_quick = inverse.astype(np.float32), key_inverse.astype(np.float32)
        sums = np.zeros((users, dim))
        self.state = _State(inverse, sums, key_inverse, sums.copy(), quick, key_quick, sums.copy())

    def ask(self, users: ArrayLike, nonce: int) -> Questions | None:
        """Return a question for each user, if there are any left in this round."""
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
        _hear(self.state, self.terms, questions.user, questions.group, values)

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        drawn = self.draw_any(who, nonce, allow)
        places, judged = np.full(len(who), -1), np.zeros((len(who), 2))
        counter = nonce * ROUND + STEP

        _select(self.state, self.rule, self.vectors, who, drawn, self.seed, self.streams[who], counter, places, judged)
        return self.decided(who, nonce, places, np.zeros(len(who), dtype=np.int64), judged, drawn)

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn what came of decisions, in the order given."""
        values = self.rewards(decisions, rewards)
        _update(self.state, self.rule.weight, self.vectors, decisions.user, decisions.place, values)


def questions_by(round: int) -> int:
    """Return how many questions a user was asked by the decision of a round, counted from 0.

    Examples
    --------
    >>> [questions_by(round) for round in (-1, 0, 2, 7, 2000)]
    [0, 0, 5, 10, 35]
    """
    return 5 * math.floor(math.log(max(round, 0) + 1))


@summing_kernel
def _select(
    state: _State,
    rule: Rule,
    vectors: NDArray[np.float64],
    who: NDArray[np.int64],
    drawn: Drawn,
    seed: int,
    streams: NDArray[np.int64],
    counter: int,
    places: NDArray[np.int64],
    judged: NDArray[np.float64],
) -> None:
    scores, means = np.empty(drawn.place.shape[1]), np.empty(drawn.place.shape[1])
    widths = np.empty(drawn.place.shape[1])
    x = np.empty((drawn.place.shape[1], vectors.shape[1]), dtype=np.float32)
    for i in range(len(who)):
        user, count = who[i], drawn.taken[i]
        if count == 0:
            continue
        theta = _theta(state, rule.weight, user)
        for j in range(count):
            for k in range(x.shape[1]):
                x[j, k] = vectors[drawn.place[i, j], k]
        z = np.dot(x[:count], state.quick[user])
        y = np.dot(z, state.key_quick[user])
        for j in range(count):
            mean, square, key_square = 0.0, np.float32(0.0), np.float32(0.0)
            for k in range(x.shape[1]):
                mean += vectors[drawn.place[i, j], k] * theta[k]
                square += x[j, k] * z[j, k]
                key_square += z[j, k] * y[j, k]
            means[j], widths[j] = mean, np.sqrt(max(square, np.float32(0.0)))
            key_width = np.sqrt(max(key_square, np.float32(0.0)))
            scores[j] = mean + rule.weight * rule.alpha * widths[j] + (1 - rule.weight) * rule.key_alpha * key_width
        chosen = best(scores, count, seed, streams[i], counter)
        places[i], judged[i, 0], judged[i, 1] = drawn.place[i, chosen], means[chosen], widths[chosen]


@kernel
def _theta(state: _State, weight: float, user: int) -> NDArray[np.float64]:
    """Return M^-1 (lambda b + (1 - lambda) theta~)."""
    target = weight * state.sums[user] + (1 - weight) * state.key_theta[user]
    made: NDArray[np.float64] = np.dot(state.inverse[user], target)
    return made


@kernel
def _update(
    state: _State,
    weight: float,
    vectors: NDArray[np.float64],
    who: NDArray[np.int64],
    places: NDArray[np.int64],
    rewards: NDArray[np.float64],
) -> None:
    z = np.empty(vectors.shape[1])
    for i in range(len(who)):
        x = vectors[places[i]]
        _shrink(state.inverse[who[i]], state.quick[who[i]], x, weight, z)
        for j in range(len(x)):
            state.sums[who[i], j] += rewards[i] * x[j]


@kernel
def _hear(
    state: _State,
    terms: NDArray[np.float64],
    who: NDArray[np.int64],
    groups: NDArray[np.int64],
    rewards: NDArray[np.float64],
) -> None:
    z = np.empty(terms.shape[1])
    for i in range(len(who)):
        x = terms[groups[i]]
        _shrink(state.key_inverse[who[i]], state.key_quick[who[i]], x, 1.0, z)
        for j in range(len(x)):
            state.key_sums[who[i], j] += rewards[i] * x[j]
        state.key_theta[who[i]] = np.dot(state.key_inverse[who[i]], state.key_sums[who[i]])


@tight_summing
def _shrink(
    inverse: NDArray[np.float64], quick: Floats, x: NDArray[np.float64], weight: float, z: NDArray[np.float64]
) -> None:
    """Bring (A + weight x x')^-1 about from A^-1, and its copy in float32."""
    scale = weight / (1.0 + weight * project(inverse, x, z))
    for i in range(len(x)):
        for j in range(len(x)):
            inverse[i, j] -= scale * z[i] * z[j]
            quick[i, j] = inverse[i, j]


@kernel
def _ask(
    state: _State,
    vectors: NDArray[np.float64],
    terms: NDArray[np.float64],
    who: NDArray[np.int64],
    drawn: Drawn,
    groups: NDArray[np.int64],
) -> None:
    """Choose for each user the key-term that tells most about the candidates."""
    x = np.empty((drawn.place.shape[1], vectors.shape[1]))
    for i in range(len(who)):
        user, count = who[i], drawn.taken[i]
        for j in range(count):
            x[j] = vectors[drawn.place[i, j]]
        spread = np.dot(terms, state.key_inverse[user])  # rows: M~^-1 x~, which is symmetric
        told = np.dot(x[:count], np.dot(state.inverse[user], spread.T))
        chosen, most = 0, -1.0
        for k in range(len(terms)):
            gain = 0.0
            for j in range(count):
                gain += told[j, k] * told[j, k]
            gain /= 1.0 + np.dot(terms[k], spread[k])
            if gain > most:
                chosen, most = k, gain
        groups[i] = chosen
