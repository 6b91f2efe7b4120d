"""A policy at work: batches of users in, batches of decisions out."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.core import checks, rng
from treeward.core.errors import InvalidArgument
from treeward.core.types import Floats
from treeward.engine.available import Screen
from treeward.engine.batch import DECISION, Batch, nothing_closed
from treeward.engine.decide import chooser
from treeward.engine.layout import Plan, empty_state, scratch
from treeward.engine.replay import Events, apply_events, reset_users
from treeward.engine.sampling import MOST_STEPS
from treeward.engine.trace import Trace
from treeward.store.events import REWARD, SHOWN


class Decisions(NamedTuple):
    """The items chosen for users, with all that an update needs: feedback may come late, twice, never, in any order."""

    user: NDArray[np.int64]
    nonce: NDArray[np.int64]
    """Selects the random numbers of the decision."""
    item: NDArray[np.int64]
    """Row in the catalogue; -1: nothing was left to show."""
    place: NDArray[np.int64]
    """Position of the item in leaf order."""
    node: NDArray[np.int64]
    """The node that the item was taken from: a leaf, or one of pHCB's visible nodes."""
    mean: Floats
    """Estimated reward of the item."""
    width: Floats
    """sqrt(x' A^-1 x) of the item: how uncertain the estimate is."""
    propensity: NDArray[np.float64]
    """Probability of this item; see `exact`."""
    exact: NDArray[np.bool_]
    """Whether the propensity is exact: under LinUCB or epsilon-greedy, if every step considered all its arms, or if
    `Beam` found them without a random draw.

    Otherwise it is an estimate: at every step, the share of arms that were considered, times the probability of the
    chosen one among these (for Thompson sampling, its share of 33 draws).
    """
    scores: NDArray[np.int64]
    """How many scores were computed."""
    work: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    """How many multiplications they took; empty if not counted."""
    bold: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
    """Whether an arm with a better mean was not taken at some step; empty if not recorded."""

    def take(self, which: ArrayLike) -> "Decisions":
        """Return some of the decisions."""
        return Decisions._make(column[np.asarray(which)] if len(column) else column for column in self)


LARGEST = 1e6
"""Larger rewards would lose precision in float32."""


class Session(Protocol):
    """A policy at work for a fixed number of users."""

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users; `allow`: only these rows may be shown."""
        ...

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn from the rewards of decisions, in the order given."""
        ...


@runtime_checkable
class Begins(Session, Protocol):
    """A session that can also learn from events before it began."""

    def met(self, users: ArrayLike, rows: ArrayLike) -> Decisions:
        """Return decisions that stand for items which users saw elsewhere; `update` learns from them."""
        ...


class TreeSession:
    """A policy that walks a tree for each user alone.

    Parameters
    ----------
    plan
        The policy, prepared for a catalogue and its tree.
    users
        How many there are.
    seed
        Everything random comes from here.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> from treeward.policy import HCB
    >>> from treeward.tree.item_tree import ItemTree
    >>> shop = synthetic_catalogue(500, dim=8, seed=0)
    >>> session = HCB().session(ItemTree.build(shop.vectors, (5, 25)), shop, users=3)
    >>> decisions = session.select([0, 2], nonce=0)
    >>> decisions.item.shape, int(decisions.scores[0]) <= 50
    ((2,), True)
    >>> session.update(decisions, [1.0, 0.0])
    """

    def __init__(self, plan: Plan, users: int, seed: int = 0) -> None:
        self.plan, self.users = plan, checks.integer("session", "users", users, low=1)
        self.seed = checks.integer("session", "seed", seed, low=0)
        self.state = empty_state(plan, users, 0)
        self.streams = np.array([rng.stream("user", user) for user in range(users)], dtype=np.int64)
        """The random stream of each user."""
        self._choose = chooser(plan)
        self._candidates, self._trace = scratch(plan), Trace.empty(MOST_STEPS)
        self._place_of = np.argsort(plan.tree.items).astype(np.int32)
        reset_users(plan, self.state, np.arange(users))

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users; the same nonce gives the same draws.

        `allow`: only these rows may be shown.
        """
        who = self._who(users)
        if self.plan.once and len(np.unique(who)) != len(who):
            raise InvalidArgument("session", "users", "all different where an item is shown once", users)
        out = np.zeros(len(who), dtype=DECISION)
        nonces = np.full(len(who), checks.integer("session", "nonce", nonce, low=0, high=2**43 - 1), dtype=np.int64)
        screen = Screen.open(int(self.state.shown.length.max()))
        if allow is not None:
            screen = screen._replace(named=np.unique(self._place_of[self._rows(allow)]), only=True)
        batch = Batch(who, self.streams[who], nonces, *nothing_closed(len(who)))
        self._choose(self.state, batch, 1, False, screen, self.seed, self._candidates, self._trace, out)
        made = Decisions._make([who, *(out[name] for name in Decisions._fields[1:])])
        if self.plan.once:
            self._apply(made, SHOWN, np.zeros(len(who)))
        return made

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn from the rewards of decisions, in the order given."""
        self._who(decisions.user)
        nodes = len(self.plan.tree.parent)
        for name, found, most in (("place", decisions.place, len(self.plan.items)), ("node", decisions.node, nodes)):
            if ((found < -1) | (found >= most)).any():
                raise InvalidArgument("session", "decisions", f"its own, with each {name} below {most}", found)
        self._apply(decisions, REWARD, checked_rewards(rewards, len(decisions.user)))

    def met(self, users: ArrayLike, rows: ArrayLike) -> Decisions:
        """Return decisions that stand for items which users saw elsewhere; `update` learns from them."""
        who, items = self._who(users), self._rows(rows)
        made = elsewhere(who, items, self._place_of[items])
        if self.plan.once:
            self._apply(made, SHOWN, np.zeros(len(who)))
        return made

    def _apply(self, decisions: Decisions, kind: int, values: NDArray[np.float64]) -> None:
        events = Events(
            np.full(len(values), kind, dtype=np.uint8),
            decisions.place.astype(np.int32),
            decisions.node.astype(np.int32),
            values,
        )
        self.state = apply_events(self.plan, self.state, decisions.user, np.arange(len(values) + 1), events)

    def _rows(self, allow: ArrayLike) -> NDArray[np.int64]:
        return checked_numbers("allow", allow, len(self.plan.items))

    def _who(self, users: ArrayLike) -> NDArray[np.int64]:
        return checked_numbers("users", users, self.users)


def checked_numbers(parameter: str, values: ArrayLike, end: int) -> NDArray[np.int64]:
    """Return a list of integers from 0 on, all below `end`."""
    numbers = np.asarray(values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= end)).any():
        raise InvalidArgument("session", parameter, f"a list of integers from 0 to {end - 1}", values)
    return numbers.astype(np.int64)


def checked_rewards(rewards: ArrayLike, count: int) -> NDArray[np.float64]:
    """Return `count` rewards, if none is too large."""
    values = np.array(rewards, dtype=np.float64)
    if values.shape != (count,) or not (np.abs(values) <= LARGEST).all():
        rule = f"{count} numbers from {-LARGEST:g} to {LARGEST:g}"
        raise InvalidArgument("session", "rewards", rule, rewards)
    return values


def elsewhere(users: NDArray[np.int64], rows: NDArray[np.int64], places: NDArray[np.integer]) -> Decisions:
    """Return decisions that stand for items which users saw elsewhere."""
    none, zero = np.zeros(len(users), dtype=np.int64), np.zeros(len(users), dtype=np.float32)
    sure = np.ones(len(users))
    return Decisions(users, none, rows, places.astype(np.int64), none - 1, zero, zero, sure, sure < 0, none, none)
