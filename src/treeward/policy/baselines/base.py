"""What HMAB, ICTR, ConUCB, ContextFree and the rivals of `ridge` share: sessions of their own.

They run round by round: a batch of users in, their decisions out, rewards back in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.core import checks, rng
from treeward.core.compiled import kernel, whole
from treeward.core.errors import InvalidArgument
from treeward.core.types import Integers
from treeward.data.catalogue import Catalogue
from treeward.engine.available import Screen, begin_screen, left, nth, shut
from treeward.engine.explore import SAMPLE, UCB, Draws
from treeward.engine.layout import Plan
from treeward.engine.ragged import insert
from treeward.engine.sampling import MOST_SCORES, sample
from treeward.policy.base import Policy
from treeward.policy.baselines.kernels import BatchDraws, Chosen, Drawn
from treeward.policy.session import Decisions, Session, checked_numbers, checked_rewards
from treeward.tree.item_tree import ItemTree

# Counters of a user's stream that one round owns, and its parts: candidates of two steps, then the draws of the rule.
ROUND, STEP = 1 << 20, 1 << 16


Held = TypeVar("Held", bound=tuple[Any, ...])


class Questions(NamedTuple):
    """What a session asks users before it decides."""

    user: NDArray[np.int64]
    group: NDArray[np.int64]
    """Which of `Asks.groups` each user is asked about."""


@runtime_checkable
class Asks(Protocol):
    """A session that asks users what they think of groups of items."""

    groups: list[NDArray[np.int64]]
    """The rows of the items of every group."""
    asked: int
    """How many questions were asked so far."""

    def ask(self, users: ArrayLike, nonce: int) -> Questions | None:
        """Return one question per user, or None if no question is left in this round."""
        ...

    def hear(self, questions: Questions, rewards: ArrayLike) -> None:
        """Learn the answers."""
        ...


class Setup(NamedTuple):
    """What every session needs to know."""

    users: int
    budget: int | None
    once: bool
    """Show no item twice to a user."""
    seed: int
    """Everything random comes from here."""


@dataclass(frozen=True)
class RoundPolicy(Policy):
    """A policy with a session of its own: it implements `at_work`."""

    replayable: ClassVar[bool] = False
    families: ClassVar[tuple[int, ...]] = (UCB, SAMPLE)
    """Which kinds of bandits it knows."""
    takes_prior: ClassVar[bool] = False
    """Whether it can start from a prior."""
    node_vectors: Literal["unit", "mean"] = "mean"

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, rest: int = 0, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`, all of them new."""
        own = self.check(tree, catalogue, rest)
        return own.at_work(*own.fitted(tree, catalogue), Setup(users, self.budget, once, seed))

    def at_work(self, tree: ItemTree, catalogue: Catalogue, setup: Setup) -> Session:
        """Return its session; all is checked."""
        raise NotImplementedError

    def plan_on(self, walked: ItemTree, catalogue: Catalogue, *, once: bool = False, rest: int = 0) -> Plan:
        """Refuse: such a policy has no plan."""
        raise InvalidArgument(type(self).__name__, "policy", "one that walks a tree", self.name)

    def check(self, tree: ItemTree, catalogue: Catalogue, rest: int) -> Self:
        """Return it with its options checked; refuse what it cannot work with."""
        owner = type(self).__name__
        own = checks.validate(self)
        if rest:
            raise InvalidArgument(owner, "repeats", "True or False", rest)
        if self.prior is None:  # a prior may add features to both; see `fitted`
            self.check_tree(tree, catalogue)
        if self.budget is not None:
            checks.integer(owner, "budget", self.budget, low=2, high=MOST_SCORES)
        unused = {"shortlist": 0, "forgetting": 1.0, "explore": 1.0, "features": None, "node_vectors": "mean"}
        for name, none in (unused if self.takes_prior else unused | {"prior": None}).items():
            if getattr(self, name) != none:
                raise InvalidArgument(owner, name, f"{none}: it has no such thing", getattr(self, name))
        if self.bandit.rule(catalogue.dim).kind not in self.families:
            known = " or ".join({UCB: "LinUCB", SAMPLE: "Thompson"}[kind] for kind in self.families)
            raise InvalidArgument(owner, "bandit", known, type(self.bandit).__name__)
        return own


class RoundSession:
    """Which items were shown to each user, and which may be drawn: everything but scores and learning.

    A session decides in one step, over all items, or in two if it has groups of items. It implements `choose`, which
    picks one of the arms that were drawn, and `learn`.

    Parameters
    ----------
    items
        Catalogue rows in the order of places.
    setup
        See `Setup`.
    groups
        (groups, 2): ranges of places. Half of the budget is for groups then, half for items.
    """

    each = 1
    """Multiplications per score."""
    upkeep = 0
    """Multiplications that learning from one reward takes, where counted."""

    def __init__(self, items: Integers, setup: Setup, groups: Integers | None = None) -> None:
        self.items, self.once = items, setup.once
        self.users = users = checks.integer("session", "users", setup.users, low=1)
        self.seed = checks.integer("session", "seed", setup.seed, low=0)
        self.budget = min(len(items), MOST_SCORES if setup.budget is None else setup.budget)
        self.share = (self.budget // 2, self.budget - self.budget // 2)
        self.ranges = np.zeros((0, 2), dtype=np.int64) if groups is None else groups.astype(np.int64)
        self.streams = np.array([rng.stream("user", user) for user in range(users)], dtype=np.int64)
        self._place_of = np.argsort(items).astype(np.int32)
        self._shown = np.zeros((users, 8 if self.once else 0), dtype=np.int32)
        self._counts = np.zeros(users, dtype=np.int64)

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users."""
        who = self.who(users)
        if not len(self.ranges):
            drawn = self.draw_any(who, nonce, allow)
            chosen = self._choose(0, who, drawn, nonce, 1)
            return self.decided(who, nonce, chosen, np.zeros_like(who), drawn)
        groups = self.draw_groups(who, nonce, self.ranges, self.share[0], allow)
        # A user for whom nothing is left gets group 0, where nothing is left either.
        nodes = np.maximum(self._choose(0, who, groups, nonce, 2).arm, 0)
        drawn = self.draw(who, nonce, self.ranges[nodes], self.share[1], allow, 1)
        return self.decided(who, nonce, self._choose(1, who, drawn, nonce, 3), nodes, groups, drawn)

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn from the rewards of decisions, in the order given."""
        self.learn(decisions, self.rewards(decisions, rewards))

    def choose(self, step: int, who: NDArray[np.int64], drawn: Drawn, draws: BatchDraws, out: Chosen) -> None:
        """Write to `out` which of the arms that were drawn each user gets; `step` counts from 0."""
        raise NotImplementedError

    def learn(self, decisions: Decisions, rewards: NDArray[np.float64]) -> None:
        """Learn from rewards, which are checked."""
        raise NotImplementedError

    def _choose(self, step: int, who: NDArray[np.int64], drawn: Drawn, nonce: int, part: int) -> Chosen:
        """Call `choose` with the draws of a part of the round."""
        out = Chosen(np.full(len(who), -1), np.zeros(len(who)), np.zeros(len(who)))
        self.choose(step, who, drawn, BatchDraws(self.seed, self.streams[who], nonce * ROUND + part * STEP), out)
        return out

    def who(self, users: ArrayLike) -> NDArray[np.int64]:
        """Return users, checked."""
        return checked_numbers("users", users, self.users)

    def rewards(self, decisions: Decisions, rewards: ArrayLike) -> NDArray[np.float64]:
        """Return rewards, checked."""
        self.who(decisions.user)
        values = checked_rewards(rewards, len(decisions.user))
        if ((decisions.place < 0) | (decisions.place >= len(self.items))).any():
            raise InvalidArgument("session", "decisions", f"its own, with places below {len(self.items)}", decisions)
        return values

    def open(self, allow: ArrayLike | None) -> Screen:
        """Return which places are open in a call, with room for those closed to one user."""
        screen = Screen.open(self._shown.shape[1] + 1)
        if allow is None:
            return screen
        rows = checked_numbers("allow", allow, len(self.items))
        return screen._replace(named=np.unique(self._place_of[rows]), only=True)

    def draw_any(self, who: NDArray[np.int64], nonce: int, allow: ArrayLike | None) -> Drawn:
        """Draw candidates for every user out of all places, as many as the budget allows."""
        everything = np.tile(np.array([[0, len(self.items)]]), (len(who), 1))
        return self.draw(who, nonce, everything, self.budget, allow, 0)

    def draw(
        self,
        who: NDArray[np.int64],
        nonce: int,
        ranges: NDArray[np.int64],
        most: int,
        allow: ArrayLike | None,
        step: int,
    ) -> Drawn:
        """Draw up to `most` open places for every user, out of that user's range."""
        drawn = Drawn(np.full((len(who), most), -1), *np.zeros((2, len(who)), dtype=np.int64))
        _draw(self.open(allow), self._shown, self._counts, who, ranges, self._draws(who, nonce, step), drawn)
        return drawn

    def draw_groups(
        self, who: NDArray[np.int64], nonce: int, ranges: NDArray[np.int64], most: int, allow: ArrayLike | None
    ) -> Drawn:
        """Draw up to `most` of the ranges for every user, out of those with an open place: the first of two steps."""
        most = min(most, len(ranges))
        drawn = Drawn(np.zeros((len(who), most), dtype=np.int64), *np.zeros((2, len(who)), dtype=np.int64))
        _draw_groups(self.left(who, ranges, allow), self._draws(who, nonce, 0), drawn)
        return drawn

    def _draws(self, who: NDArray[np.int64], nonce: int, step: int) -> BatchDraws:
        counter = checks.integer("session", "nonce", nonce, low=0, high=2**43 - 1) * ROUND + step * STEP
        return BatchDraws(self.seed, self.streams[who], counter)

    def left(self, who: NDArray[np.int64], ranges: NDArray[np.int64], allow: ArrayLike | None) -> NDArray[np.int64]:
        """Return how many places of every range are open to every user: (users, ranges)."""
        out = np.zeros((len(who), len(ranges)), dtype=np.int64)
        if allow is None and not self.once:
            out[:] = np.diff(ranges).ravel()
        else:
            _left(self.open(allow), self._shown, self._counts, who, ranges, out)
        return out

    def record(self, who: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Remember what was shown, if it may not be shown again."""
        if not self.once:
            return
        if len(np.unique(who)) != len(who):
            raise InvalidArgument("session", "users", "all different where an item is shown once", who)
        if int(self._counts[who].max(initial=0)) + 1 >= self._shown.shape[1]:
            self._shown = np.concatenate([self._shown, np.zeros_like(self._shown)], axis=1)
        _record(self._shown, self._counts, who, places)

    def decided(
        self, who: NDArray[np.int64], nonce: int, chosen: Chosen, nodes: NDArray[np.int64], *steps: Drawn
    ) -> Decisions:
        """Return decisions; `steps` are the arms that were considered on the way."""
        places = chosen.arm
        self.record(who, places)
        scores, chance = np.zeros(len(who), dtype=np.int64), np.ones(len(who))
        for drawn in steps:  # a single arm is not scored
            scores += np.where(drawn.taken > 1, drawn.taken, 0)
            chance *= drawn.taken / np.maximum(drawn.total, 1)
        items: Any = np.where(places >= 0, self.items[places], -1)
        mean, width = chosen.mean.astype(np.float32), chosen.width.astype(np.float32)
        exact = np.zeros(len(who), dtype=np.bool_)
        return Decisions(
            who, np.full(len(who), nonce, dtype=np.int64), items, places, nodes, mean, width, chance, exact, scores,
            scores * self.each,
        )  # fmt: skip


class Slots:
    """Rows of arrays for the items that were shown, in the order of the first time; a catalogue may be far larger."""

    def __init__(self, items: int) -> None:
        self.of, self.used = np.full(items, -1), 0

    def settle(self, places: NDArray[np.int64], held: Held, empty: Callable[[int], Held]) -> Held:
        """Give slots to places that have none, and return `held` (arrays by slot), enlarged if necessary."""
        fresh = np.unique(places[self.of[places] < 0])
        room = len(held[0])
        if self.used + len(fresh) > room:
            more = empty(max(room, self.used + len(fresh) - room))
            held = type(held)(*(np.concatenate(pair) for pair in zip(held, more, strict=True)))
        self.of[fresh] = self.used + np.arange(len(fresh))
        self.used += len(fresh)
        return held


@kernel
def _draw(
    screen: Screen,
    shown: Integers,
    counts: NDArray[np.int64],
    who: NDArray[np.int64],
    ranges: NDArray[np.int64],
    draws: BatchDraws,
    out: Drawn,
) -> None:
    for i in range(len(who)):
        close_shown(screen, shown, counts, who[i])
        begin, end = ranges[i, 0], ranges[i, 1]
        total = left(screen, begin, end)
        count = min(total, out.place.shape[1])
        sample(out.place[i], count, total, Draws(draws.seed, draws.streams[i], draws.counter))
        for j in range(count):
            out.place[i, j] = nth(screen, begin, end, out.place[i, j])
        out.taken[i], out.total[i] = count, total


@kernel
def _draw_groups(left: NDArray[np.int64], draws: BatchDraws, out: Drawn) -> None:
    """Draw the groups to be scored: all with an open place, or a uniform sample within the budget."""
    usable = np.empty(left.shape[1], dtype=np.int64)
    for i in range(len(left)):
        total = whole(0)
        for j in range(left.shape[1]):
            if left[i, j] > 0:
                usable[total] = j
                total += 1
        count = min(total, out.place.shape[1])
        sample(out.place[i], count, total, Draws(draws.seed, draws.streams[i], draws.counter))
        for j in range(count):
            out.place[i, j] = usable[out.place[i, j]]
        out.taken[i], out.total[i] = count, total


@kernel
def _left(
    screen: Screen,
    shown: Integers,
    counts: NDArray[np.int64],
    who: NDArray[np.int64],
    ranges: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    for i in range(len(who)):
        close_shown(screen, shown, counts, who[i])
        for j in range(len(ranges)):
            out[i, j] = left(screen, ranges[j, 0], ranges[j, 1])


@kernel(allocates=False, inline=True)
def close_shown(screen: Screen, shown: Integers, counts: NDArray[np.int64], user: int) -> None:
    """Close to a user what was shown to them before, if it may not be shown again."""
    begin_screen(screen)
    if shown.shape[1] > 0:
        for j in range(counts[user]):
            shut(screen, whole(shown[user, j]))


@kernel
def _record(shown: Integers, counts: NDArray[np.int64], who: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    for i in range(len(who)):
        if places[i] >= 0:
            counts[who[i]] = insert(shown[who[i]], counts[who[i]], places[i])
