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
from treeward.engine.layout import Plan, room, scratch
from treeward.engine.replay import Events, absorb, sit_all
from treeward.engine.sampling import MOST_STEPS
from treeward.engine.trace import Trace
from treeward.store.events import REWARD, SHOWN


class Decisions(NamedTuple):
    """What was chosen for whom, with all that an update needs: feedback may come late, twice, never, in any order."""

    user: NDArray[np.int64]
    nonce: NDArray[np.int64]
    """The draws came from here."""
    item: NDArray[np.int64]
    """Row in the catalogue; -1: nothing was left to show."""
    place: NDArray[np.int64]
    """Of the item, in leaf order."""
    node: NDArray[np.int64]
    """The node the item was taken from: a leaf, or one of pHCB's visible nodes."""
    mean: Floats
    """Estimated reward of the item."""
    width: Floats
    """sqrt(x' A^-1 x) of the item: how uncertain the estimate is."""
    propensity: NDArray[np.float64]
    """Probability of this item; see `exact`."""
    exact: NDArray[np.bool_]
    """Whether the propensity is exact: under LinUCB or epsilon-greedy, every step of the way considered all its arms,
    or all that `Beam` comes to by itself.

    Otherwise it is an estimate: at every step, the share of the arms that were considered times the chosen one's
    probability among those (for Thompson sampling, its share of 33 draws).
    """
    scores: NDArray[np.int64]
    """Scores computed on the way ..."""
    work: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    """... and multiplications, if they were counted."""
    bold: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
    """Whether something that looked better was passed over on the way, if that was noted."""

    def take(self, which: ArrayLike) -> "Decisions":
        """Return some of the decisions."""
        return Decisions._make(column[np.asarray(which)] if len(column) else column for column in self)


LARGEST = 1e6
"""Rewards beyond this would lose their meaning in float32."""


class Session(Protocol):
    """A policy at work for a fixed number of users."""

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users; only the rows in `allow` may be shown, if there is such a list."""
        ...

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn what came of decisions, in the order given."""
        ...


@runtime_checkable
class Begins(Session, Protocol):
    """A session that can be told what users did before."""

    def met(self, users: ArrayLike, rows: ArrayLike) -> Decisions:
        """Return what stands for items that users came across elsewhere, to be taught by `update`."""
        ...


class TreeSession:
    """A policy that walks a tree for each user alone.

    Parameters
    ----------
    plan
        The policy, made ready.
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
        self.state = room(plan, users, 0)
        self.streams = np.array([rng.stream("user", user) for user in range(users)], dtype=np.int64)
        """Where each user's draws come from."""
        self._choose = chooser(plan)
        self._candidates, self._trace = scratch(plan), Trace.empty(MOST_STEPS)
        self._place_of = np.argsort(plan.tree.items).astype(np.int32)
        sit_all(plan, self.state, np.arange(users))

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Decide once for each of the users; the same nonce gives the same draws.

        If there is a list of rows in `allow`, only those may be shown.
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
        """Learn what came of decisions, in the order given."""
        self._who(decisions.user)
        nodes = len(self.plan.tree.parent)
        for name, found, most in (("place", decisions.place, len(self.plan.items)), ("node", decisions.node, nodes)):
            if ((found < -1) | (found >= most)).any():
                raise InvalidArgument("session", "decisions", f"its own, with each {name} below {most}", found)
        self._apply(decisions, REWARD, checked_rewards(rewards, len(decisions.user)))

    def met(self, users: ArrayLike, rows: ArrayLike) -> Decisions:
        """Return what stands for items that users came across elsewhere, to be taught by `update` like any decision."""
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
        self.state = absorb(self.plan, self.state, decisions.user, np.arange(len(values) + 1), events)

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
    """Return decisions that nobody here made."""
    none, zero = np.zeros(len(users), dtype=np.int64), np.zeros(len(users), dtype=np.float32)
    sure = np.ones(len(users))
    return Decisions(users, none, rows, places.astype(np.int64), none - 1, zero, zero, sure, sure < 0, none, none)
