"""ENR: a neural network with an epinet that all users share, and Thompson sampling (Zhu and Van Roy, CIKM 2023)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit import Bandit, Thompson
from treeward.core import checks, rng
from treeward.core.checks import Count, NotNegative, Positive
from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.engine.explore import SAMPLE
from treeward.learn.epinet import Epinet, Examples, Sizes, Steps
from treeward.learn.torch import require_torch
from treeward.policy.baselines.base import ROUND, RoundPolicy, RoundSession, Setup
from treeward.policy.session import Decisions, Session, checked_numbers
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows

_SAMPLED = 1 << 10
_FEW = 10.0
_TOGETHER = 64
"""Users whose means are computed at once."""


@dataclass(frozen=True)
class ENR(RoundPolicy):
    """Epistemic Neural Recommendation: Thompson sampling with a neural network that all users share (needs torch).

    The network predicts the probability of a reward from a context and an item's vector, as in `treeward.learn.epinet`.
    The context is what is known of a user: the mean vector of the items shown, their mean weighted by rewards,
    n / (n + 10) for n items shown, and the mean reward. A decision draws one index z from N(0, I) and takes the item
    with the best f(context, item, z). After every batch of rewards, the network takes gradient steps on minibatches of
    everything seen so far. Rewards must be from 0 to 1.

    The bandit must be `Thompson`; its v and ridge are not used. It takes no prior: that is one of a linear regression.

    Parameters
    ----------
    budget
        At most this many items get a full f(context, item, z): one half those of the best means, the others drawn at
        random. None: all.
    strength
        What the part of f that depends on z is multiplied by: how much is explored. The paper's formula has 1.
    width
        Features of a context or an item inside the network.
    hidden
        Hidden units of the learned and of the fixed perceptron.
    index
        Dimensions of z.
    steps
        Gradient steps after a batch of rewards.
    batch
        Examples per step.
    indices
        Values of z per step.
    rate
        Of Adam.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> shop = synthetic_catalogue(500, dim=8, seed=0)
    >>> session = ENR().session(ItemTree.build(shop.vectors, (5, 25), seed=0), shop, users=2)
    >>> decisions = session.select([0, 1], nonce=0)
    >>> session.update(decisions, [1.0, 0.0])
    >>> session.select([0, 1], nonce=1).scores
    array([500, 500])
    """

    shared_state: ClassVar[bool] = True
    families: ClassVar[tuple[int, ...]] = (SAMPLE,)

    bandit: Bandit = field(default_factory=Thompson)
    budget: int | None = None
    strength: NotNegative = 1.0
    width: Count = 32
    hidden: Count = 16
    index: Count = 5
    steps: Count = 8
    batch: Count = 256
    indices: Count = 4
    rate: Positive = 0.003

    def __post_init__(self) -> None:
        require_torch("ENR")

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session."""
        return _Session(self, tree, catalogue, setup)


class _Session(RoundSession):
    def __init__(self, policy: ENR, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> None:
        super().__init__(tree.items, setup)
        dim = catalogue.dim
        self.most = policy.budget
        vectors = Rows(catalogue.vectors, tree.normalized).take(tree.items)
        self.vectors: Floats = (vectors / max(float(np.sqrt((vectors**2).mean())), 1e-12)).astype(np.float32)
        sizes = Sizes(2 * dim + 2, dim, policy.width, policy.hidden, policy.index)
        steps = Steps(policy.steps, policy.batch, policy.indices, policy.rate)
        self.net = Epinet(sizes, self.vectors, policy.strength, steps, self.seed)
        self.sums = np.zeros((self.users, 2, dim))
        """Per user: the sum of the vectors of the items shown, and that sum weighted by rewards."""
        self.totals = np.zeros((self.users, 2))
        """Per user: how many items were shown, and the sum of the rewards."""
        self.owed = 0
        """Multiplications of training, which the next decisions share."""

    def contexts(self, who: NDArray[np.int64]) -> Floats:
        """Return what the network is told of users."""
        totals = self.totals[who]
        means = self.sums[who] / np.where(totals > 0, totals, 1.0)[:, :, np.newaxis]
        seen, earned = totals[:, :1], totals[:, 1:]
        known = (means.reshape(len(who), -1), seen / (seen + _FEW), earned / np.maximum(seen, 1.0))
        return np.concatenate(known, axis=1).astype(np.float32)

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        counter = checks.integer("session", "nonce", nonce, low=0, high=2**43 - 1) * ROUND
        count, offered = len(who), np.ones(len(self.items), dtype=np.bool_)
        if allow is not None:
            offered[:] = False
            offered[self._place_of[checked_numbers("allow", allow, len(self.items))]] = True
        self.owed += self.net.catalogue_work() if self.net.stale else 0
        place, zero = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
        mean, scores, work = np.zeros(count, dtype=np.float32), zero.copy(), zero + -(-self.owed // max(count, 1))
        self.owed = 0 if count else self.owed
        for start in range(0, count, _TOGETHER):
            part = slice(start, start + _TOGETHER)
            self._decide(who[part], counter, offered, (place[part], mean[part], scores[part], work[part]))
        self.record(who, place)
        items: NDArray[np.int64] = np.where(place >= 0, self.items[place], -1).astype(np.int64)
        width, chance = np.zeros(count, dtype=np.float32), np.ones(count)
        return Decisions(who, zero + nonce, items, place, zero, mean, width, chance, zero > 0, scores, work)

    def _decide(
        self,
        who: NDArray[np.int64],
        counter: int,
        offered: NDArray[np.bool_],
        out: tuple[NDArray[np.int64], Floats, NDArray[np.int64], NDArray[np.int64]],
    ) -> None:
        """Write places, means, scores and work of some users; a view of each is in `out`."""
        place, mean, scores, work = out
        contexts, index = self.contexts(who), self.net.sizes.dims
        z = np.array([rng.normals(self.seed, int(stream), index, counter) for stream in self.streams[who]])
        means = self.net.means(contexts)
        open_to = [self._open_to(user, offered) for user in who.tolist()]
        rows = [self._candidates(means[i], some, who[i], counter) for i, some in enumerate(open_to)]
        varying = self.net.varying(contexts, z.astype(np.float32), rows)
        for i, (some, extra) in enumerate(zip(rows, varying, strict=True)):
            open_here = int(open_to[i].sum())
            if not open_here:
                continue
            if some is None:
                values = np.where(open_to[i], means[i] + extra, -np.inf)
                place[i] = values.argmax()
            else:
                place[i] = some[(means[i, some] + extra).argmax()]
            mean[i] = 1 / (1 + np.exp(-means[i, place[i]]))
            scores[i] = open_here if some is None else len(some)
            work[i] += self.net.decision_work(len(extra))

    def _open_to(self, user: int, offered: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which places a user may be shown."""
        if not self.once:
            return offered
        mine = offered.copy()
        mine[self._shown[user, : self._counts[user]]] = False
        return mine

    def _candidates(
        self, means: Floats, open_to: NDArray[np.bool_], user: int, counter: int
    ) -> NDArray[np.int64] | None:
        """Return the places that get a full f, in order; None: all."""
        some = np.flatnonzero(open_to)
        if self.most is None or len(some) <= self.most:
            return None if self.most is None and len(some) else some
        best = (self.most + 1) // 2
        split = np.argpartition(-means[some], best - 1)
        lane = rng.lane(self.seed, int(self.streams[user]), counter + _SAMPLED)
        rest = np.sort(split[best:])
        drawn = rest[rng.sample(self.seed, lane, len(rest), self.most - best)]
        chosen: NDArray[np.int64] = np.sort(some[np.concatenate([split[:best], drawn])])
        return chosen

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Remember what was earned in which context, train, and bring the users' contexts up to date."""
        if not len(rewards):
            return
        if not ((rewards >= 0) & (rewards <= 1)).all():
            raise InvalidArgument("ENR", "rewards", "from 0 to 1: it predicts a probability", rewards)
        user, place = decisions.user, decisions.place.astype(np.int64)
        self.net.add(Examples(self.contexts(user), place, rewards.astype(np.float32)))
        shown = self.vectors[place].astype(np.float64)
        np.add.at(self.sums, user, np.stack([shown, shown * rewards[:, np.newaxis]], axis=1))
        np.add.at(self.totals, user, np.stack([np.ones(len(rewards)), rewards], axis=1))
        self.net.train()
        self.owed += self.net.training_work()
