"""A policy at work: batches of users in, batches of decisions out."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.bandit.choose import Candidates, dot
from treeward.bandit.posterior import spread
from treeward.bandit.rules import GREEDY_MEAN, SAMPLE
from treeward.core import checks, rng
from treeward.core.compiled import inner, kernel
from treeward.core.errors import InvalidArgument
from treeward.core.types import AnyArray, Floats, Integers, TreeArrays
from treeward.policy.history import tally
from treeward.policy.learn import Events, absorb, leaf_at, sit_all
from treeward.policy.lists import Lists
from treeward.policy.plan import Plan, State, room, scratch
from treeward.policy.screen import Screen, left, shut
from treeward.policy.steps import MOST_STEPS, Trace
from treeward.policy.walk import decide
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

DECISION = np.dtype(
    [
        ("nonce", np.int64),
        ("item", np.int64),
        ("place", np.int64),
        ("node", np.int64),
        ("mean", np.float32),
        ("width", np.float32),
        ("propensity", np.float64),
        ("exact", np.bool_),
        ("scores", np.int64),
        ("work", np.int64),
        ("bold", np.bool_),
    ],
    align=True,
)
"""A decision as compiled code writes it: one array is handed over much faster than ten."""


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


class Batch(NamedTuple):
    """For whom to decide: arrays of one length, but for the last two."""

    seat: NDArray[np.int64]
    stream: NDArray[np.int64]
    nonce: NDArray[np.int64]
    extra: Integers
    """Places closed to single users, one user's after another's."""
    ends: NDArray[np.int64]
    """(users + 1,): user i's are extra[ends[i] : ends[i + 1]]."""


@kernel
def choose(
    plan: Plan,
    state: State,
    batch: Batch,
    slots: int,
    diverse: bool,
    screen: Screen,
    seed: int,
    candidates: Candidates,
    trace: Trace,
    out: AnyArray,
) -> None:
    """Decide `slots` times for each user of a batch, without repeating an item; a slot has the next nonce.

    `diverse`: nor taking two items from one leaf, before all other leaves had their turn.
    """
    z = np.empty(plan.items.shape[1], dtype=np.float32)
    for i in range(len(batch.seat)):
        seat, first = batch.seat[i], i * slots
        _close(plan.once, state.shown, seat, batch, i, screen)
        for at in range(first, first + slots):
            nonce = batch.nonce[i] + at - first
            if diverse and at > first and left(screen, 0, len(plan.items)) <= 0:  # every leaf had its turn
                _close(plan.once, state.shown, seat, batch, i, screen)
                for j in range(first, at):
                    if out[j]["place"] >= 0:  # there may be nothing left at all
                        shut(screen, out[j]["place"])
            place, node, scores, work = decide(
                plan, state, seat, screen, seed, batch.stream[i], nonce, candidates, trace
            )
            made = out[at]
            made["nonce"], made["place"], made["node"], made["scores"], made["work"] = nonce, place, node, scores, work
            made["item"] = plan.tree.items[place] if place >= 0 else -1
            if place >= 0:
                _appraise(plan, state, seat, place, trace, z, made)
                if slots > 1:
                    _close_behind(plan.tree, place, diverse, screen)


@inner
def _close(once: bool, shown: Lists, seat: int, batch: Batch, i: int, screen: Screen) -> None:
    """Close what a user may not be shown, and nothing else beside what the call closes to all."""
    screen.closed[0] = 0
    for j in range(batch.ends[i], batch.ends[i + 1]):
        shut(screen, batch.extra[j])
    if once:
        start = shown.start[seat]
        for j in range(start, start + shown.length[seat]):
            shut(screen, shown.values[j])


@inner
def _close_behind(tree: TreeArrays, place: int, diverse: bool, screen: Screen) -> None:
    """Close a place that was taken, or all of its leaf."""
    if not diverse:
        shut(screen, place)
        return
    leaf = leaf_at(tree, place)
    for other in range(tree.item_range[leaf, 0], tree.item_range[leaf, 1]):
        shut(screen, other)


@inner
def _appraise(plan: Plan, state: State, seat: int, place: int, trace: Trace, z: Floats, made: Any) -> None:
    """Say what is thought of the item chosen, and how likely it was."""
    items = state.posterior.theta.shape[1] - 1
    x = plan.items[place]
    made["mean"] = dot(x, state.posterior.theta[seat, items])
    made["width"] = np.sqrt(max(spread(state.posterior.inverse[seat, items], x, z), np.float32(0.0)))
    if plan.kind == GREEDY_MEAN:
        visits, total = tally(state.history, seat, place, place + 1)
        made["mean"] = total / visits if visits > 0 else 0.0
    chance, plain, exact = 1.0, 1.0, plan.kind != SAMPLE and plan.rules.shortlist == 0
    last = trace.steps[0] - 1
    for step in range(last if trace.aside[0] else 0, last + 1):
        share = 1.0 if trace.aside[0] else trace.seen[step] / trace.total[step]
        chance *= trace.chance[step] * share
        plain *= trace.plain[step] * share
        exact = exact and trace.seen[step] == trace.total[step]
    explore = plan.rules.explore
    made["propensity"] = explore * chance + (1.0 - explore) * plain
    made["exact"] = exact
    made["bold"] = trace.bold[0]


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
        choose(self.plan, self.state, batch, 1, False, screen, self.seed, self._candidates, self._trace, out)
        made = Decisions._make([who, *(out[name] for name in DECISION.names or ())])
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
        values = np.array(rewards, dtype=np.float64)
        if values.shape != decisions.user.shape or not (np.abs(values) <= LARGEST).all():
            rule = f"{len(decisions.user)} numbers from {-LARGEST:g} to {LARGEST:g}"
            raise InvalidArgument("session", "rewards", rule, rewards)
        self._apply(decisions, REWARD, values)

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
        rows = np.asarray(allow)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or ((rows < 0) | (rows >= len(self.plan.items))).any():
            rule = f"a list of integers from 0 to {len(self.plan.items) - 1}"
            raise InvalidArgument("session", "allow", rule, allow)
        return rows.astype(np.int64)

    def _who(self, users: ArrayLike) -> NDArray[np.int64]:
        who = np.asarray(users)
        if who.ndim != 1 or who.dtype.kind not in "iu" or ((who < 0) | (who >= self.users)).any():
            raise InvalidArgument("session", "users", f"a list of integers from 0 to {self.users - 1}", users)
        return who.astype(np.int64)


def elsewhere(users: NDArray[np.int64], rows: NDArray[np.int64], places: NDArray[np.integer]) -> Decisions:
    """Return decisions that nobody here made."""
    none, zero = np.zeros(len(users), dtype=np.int64), np.zeros(len(users), dtype=np.float32)
    sure = np.ones(len(users))
    return Decisions(users, none, rows, places.astype(np.int64), none - 1, zero, zero, sure, sure < 0, none, none)


def nothing_closed(users: int) -> tuple[Integers, NDArray[np.int64]]:
    """Return a batch's `extra` and `ends` when no place is closed to anybody."""
    return np.zeros(0, dtype=np.int32), np.zeros(users + 1, dtype=np.int64)
