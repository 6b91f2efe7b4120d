"""How well a tree still fits its items, and whether rebuilding it would pay."""

from itertools import islice
from threading import RLock
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.progress import Progress
from treeward.core.types import Floats, TreeArrays, frozen
from treeward.engine.available import Flags, Screen
from treeward.engine.batch import DECISION, Batch, nothing_closed
from treeward.engine.decide import chooser
from treeward.engine.layout import CrowdArrays, Plan, empty_state, scratch
from treeward.engine.posterior import Start
from treeward.engine.replay import reset_users
from treeward.engine.sampling import MOST_STEPS
from treeward.engine.trace import Trace
from treeward.explorer.snapshot import Settled, Snapshot
from treeward.policy.base import Policy
from treeward.store.base import everyone
from treeward.tree import tree_arrays
from treeward.tree.edit import limits
from treeward.tree.item_tree import ItemTree
from treeward.tree.row_groups import Rows

_LISTED = 20
"""How many of a user's best items are searched, for a policy that searches by means ..."""
_WIDE = 4
"""... and one item for other policies, in the best nodes of every level: this many, enough to compare trees."""
_MANY = 0.05
"""The share of leaves that are full, too large or too small from which on a refit pays."""
_STALE = 0.25
_PAYS = 0.01
_AT_ONCE = 1 << 16


class Fitness(NamedTuple):
    """How far a catalogue has moved away from what its tree was made for."""

    items: int
    added: int
    """Items that were added or changed since the tree was built ..."""
    removed: int
    """... and that were removed."""
    full: int
    """Leaves without a free place ..."""
    crowded: int
    """... with too many items, to be split ..."""
    starved: int
    """... and with too few, to join another."""
    leaves: int
    dead: int
    """Rows without an item."""

    def due(self, share: float = 0.2) -> Literal["", "refit", "rebuild"]:
        """Return what to do; a rebuild, once a `share` of the items was added or removed (0: never)."""
        moved = self.added + self.removed
        if share and moved > share * self.items:
            return "rebuild"
        unfit = self.full + self.crowded + self.starved > _MANY * self.leaves
        return "refit" if moved and (unfit or self.dead > 1_000 + self.items // 4) else ""


class Health(NamedTuple):
    """How well a tree fits its items."""

    items: int
    added: int
    """Items that were added or changed since the tree was built ..."""
    removed: int
    """... and that were removed."""
    leaves: int
    largest: int
    imbalance: float
    """How many items share a leaf with the average item, relative to items per leaf; 1: all leaves are alike."""
    full: int
    """Leaves without a free place ..."""
    crowded: int
    """... to be split ..."""
    starved: int
    """... to join another ..."""
    stale: int
    """... and with a quarter or more of their items added or removed."""
    distance: float
    """Distance of items from the middle of their leaf, root of the mean square ..."""
    distance_added: float
    """... of those that were added; nan: there are none ..."""
    distance_rebuilt: float
    """... and in a rebuilt tree; nan: not compared."""
    lost: float
    """The share of the best items' expected reward that the search misses, for some users. `Beam` is tried as it
    searches, other policies in the best 4 nodes of every level."""
    lost_rebuilt: float
    """The same in a rebuilt tree; nan: not compared."""
    users: int
    """How many users this was tried for; 0: no user is known, and users were drawn from the prior."""

    @property
    def pays(self) -> bool:
        """Whether a rebuild pays: it would gain at least 1 % of the reward."""
        return bool(self.lost - self.lost_rebuilt >= _PAYS)

    @property
    def advice(self) -> str:
        """What to do, in a sentence."""
        if np.isnan(self.lost_rebuilt):
            busy = self.full + self.crowded + self.starved > _MANY * self.leaves
            moved = self.added + self.removed > 0.2 * max(1, self.items)
            return "A rebuild may pay: much has changed." if busy or moved else "The tree fits its items."
        if self.pays:
            return f"A rebuild pays: it would gain {self.lost - self.lost_rebuilt:.1%} of the reward."
        return f"A rebuild does not pay: it would change the reward by {self.lost - self.lost_rebuilt:+.1%}."

    def __repr__(self) -> str:
        others = {"added": self.distance_added, "rebuilt": self.distance_rebuilt}
        compared = ", ".join(f"{name} {value:.3f}" for name, value in others.items() if not np.isnan(value))
        rebuilt = "" if np.isnan(self.lost_rebuilt) else f" (rebuilt {self.lost_rebuilt:.1%})"
        tried = f"{self.users:,} users" if self.users else "users drawn from the prior"
        lines = [
            f"{self.items:,} items in {self.leaves:,} leaves; since the tree was built, {self.added:,} were added or"
            f" changed and {self.removed:,} removed",
            f"leaves: largest {self.largest:,}, imbalance {self.imbalance:.2f}; {self.full:,} full, {self.crowded:,} to"
            f" split, {self.starved:,} to join, {self.stale:,} stale",
            f"distance of items from the middle of their leaf: {self.distance:.3f}" + f" ({compared})" * bool(compared),
            f"expected reward missed by the search: {self.lost:.1%}{rebuilt}, over {tried}",
            self.advice,
        ]
        return "\n".join(lines)


class MeasuredTree(NamedTuple):
    """A tree, which of its places are open, and the vectors at them."""

    tree: TreeArrays
    vectors: Floats
    """(places, d)"""
    open: NDArray[np.bool_]
    """(places,)"""
    plan: Plan
    """Of the policy that walks the tree."""

    def late(self, numbers: NDArray[np.integer], came: set[int]) -> NDArray[np.bool_]:
        """Return by place whether its item was added since the tree was built."""
        made = np.zeros(len(self.open), dtype=np.bool_)
        made[self.open] = np.isin(numbers[self.tree.items[self.open]], list(came))
        return made

    def far(self) -> NDArray[np.float64]:
        """Return the squared distance of every place's vector from the middle of its leaf."""
        leaves = tree_arrays.leaves(self.tree)
        owner = np.repeat(leaves, np.diff(self.tree.item_range[leaves]).ravel())
        found = np.zeros(len(self.vectors))
        for first in range(0, len(found), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            gap = self.vectors[part] - self.tree.vectors[owner[part]]
            found[part] = np.einsum("ij,ij->i", gap, gap)
        return found

    def lost(self, thetas: Floats) -> float:
        """Return the share of the best items' means that the search misses."""
        searches = self.plan.beams
        count = min(_LISTED if searches else 1, int(np.count_nonzero(self.open)))
        best = np.full((len(thetas), count), -np.inf)
        for first in range(0, len(self.vectors), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            scores = thetas @ self.vectors[part].T
            scores[:, ~self.open[part]] = -np.inf
            both = np.concatenate([best, scores], axis=1)
            best = np.partition(both, both.shape[1] - count, axis=1)[:, -count:]
        found = self._listed(thetas, count) if searches else np.array([self._found(theta) for theta in thetas])
        return float((best.sum() - found.sum()) / max(np.abs(best).sum(), 1e-12))

    def _listed(self, thetas: Floats, count: int) -> NDArray[np.float64]:
        """Return the sum of each user's means of the items that the policy itself finds best for them."""
        bare = self.plan.rules._replace(explore=0.0, shortlist=0)
        plan = self.plan._replace(
            tree=self.tree, once=False, rules=bare, bonus=self.plan.bonus[:0], crowd=CrowdArrays.none()
        )
        seats = np.arange(len(thetas))
        state = empty_state(plan, len(thetas), 0)
        reset_users(plan, state, seats)
        state.posterior.theta[:, 0] = thetas
        out = np.zeros(len(thetas) * count, dtype=DECISION)
        screen = Screen.open(count)._replace(flags=Flags.of(self.open))
        batch = Batch(seats, seats, np.zeros_like(seats), *nothing_closed(len(thetas)))
        chooser(plan)(state, batch, count, False, screen, 0, scratch(plan), Trace.empty(MOST_STEPS), out)
        places = out["place"].reshape(len(thetas), count)
        means: NDArray[np.float64] = np.einsum("ukd,ud->u", self.vectors[places], thetas)
        return means

    def _found(self, theta: Floats) -> float:
        tree, nodes = self.tree, np.zeros(1, dtype=np.int64)
        upto = self._upto()
        while True:
            first, last = tree.first_child[nodes], tree.first_child[nodes + 1]
            if (first == last).all():
                break
            ends = zip(nodes.tolist(), first.tolist(), last.tolist(), strict=True)
            below = [np.arange(begin, end) if begin < end else np.array([node]) for node, begin, end in ends]
            nodes = np.concatenate(below)
            nodes = nodes[upto[tree.item_range[nodes, 1]] > upto[tree.item_range[nodes, 0]]]
            nodes = nodes[np.argsort(-(tree.vectors[nodes] @ theta), kind="stable")[:_WIDE]]
        places = np.concatenate([np.arange(*tree.item_range[node]) for node in nodes.tolist()])
        places = places[self.open[places]]
        return float((self.vectors[places] @ theta).max())

    def _upto(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.open)])


def fitness(snapshot: Snapshot) -> Fitness:
    """Return how far the items have moved away from what the tree was made for; hold the explorer's lock."""
    slack, leaves = snapshot.decider.slack, snapshot.tree.leaves
    if slack is None:
        return Fitness(len(snapshot), 0, 0, 0, 0, 0, len(leaves), 0)
    count, spare = slack.held[leaves], slack.spare[leaves]
    dead = len(snapshot.catalogue) - int(np.count_nonzero(slack.taken))
    most, least = limits(snapshot.tree)
    crowded, starved = int((count > most).sum()), int((count < least).sum())
    came, went = len(snapshot.since.came), snapshot.since.went
    return Fitness(len(snapshot), came, went, int((spare == 0).sum()), crowded, starved, len(leaves), dead)


def health(snapshot: Snapshot, lock: RLock, users: int, compare: bool, progress: Progress | None) -> Health:
    """Return how well a tree still fits its items; see `Inspection.health`."""
    policy, decider = snapshot.setup.policy, snapshot.decider
    with lock:
        now, settled, fit = measured(snapshot), snapshot.settled(), fitness(snapshot)
        leaves, states = snapshot.tree.leaves, decider.states
        sizes = snapshot.sizes(leaves)
        late = now.late(decider.positions.number_of_row, snapshot.since.came)
        changed = stale(snapshot, leaves, late)
        everybody = islice(everyone(snapshot.setup.store), users)
        known = list(islice(dict.fromkeys([*states.recent(users), *everybody]), min(users, states.most)))
        thetas = states.state.posterior.theta[states.seat(known), -1].copy()
    if not known:
        thetas = drawn(decider.plan.prior, getattr(policy.prior, "noise", 1.0), users)
    far, other = now.far(), None
    if compare:
        other = measured_other(policy, settled, policy.grow(settled.catalogue, progress=progress))
    return Health(
        fit.items, fit.added, fit.removed, fit.leaves, int(sizes.max(initial=0)),
        float((sizes.astype(np.float64) ** 2).sum() / max(1, sizes.sum()) / max(1e-9, sizes.mean())),
        fit.full, fit.crowded, fit.starved, changed, _root(far[now.open]),
        _root(far[now.open & late]), _root(other.far()[other.open]) if other else np.nan, now.lost(thetas),
        other.lost(thetas) if other else np.nan, len(known),
    )  # fmt: skip


def _root(squares: NDArray[np.float64]) -> float:
    return float(np.sqrt(squares.mean())) if len(squares) else float("nan")


def measured(snapshot: Snapshot) -> MeasuredTree:
    """Return a snapshot's tree to be measured while its items change; hold the explorer's lock."""
    plan = snapshot.decider.plan
    return MeasuredTree(
        frozen(plan.tree._replace(items=plan.tree.items.copy())), plan.items, snapshot.open_places.copy(), plan
    )


def measured_other(policy: Policy, settled: Settled, tree: ItemTree) -> MeasuredTree:
    """Return another tree over the same items, to be measured."""
    walked, seen = policy.fitted(tree, settled.catalogue)
    vectors = Rows(seen.vectors, walked.normalized).take(walked.items)
    return MeasuredTree(walked.arrays, vectors, settled.open[walked.items], policy.plan_on(walked, seen))


def stale(snapshot: Snapshot, leaves: NDArray[np.integer], late: NDArray[np.bool_]) -> int:
    """Return how many leaves have lost or gained a quarter of their items; `late`: by place, whether it was added."""
    slack = snapshot.decider.slack
    if slack is None:
        return 0
    ranges = snapshot.decider.plan.tree.item_range[leaves]
    changed = np.concatenate([[0], np.cumsum(late | (slack.taken & ~slack.flags.open))])
    count = changed[ranges[:, 1]] - changed[ranges[:, 0]]
    return int((count > _STALE * np.maximum(1, slack.held[leaves])).sum())


def drawn(prior: Start, noise: float, count: int) -> Floats:
    """Return users drawn from the prior; `noise` is the variance of a reward, the unit of the prior's covariance."""
    mean = prior.theta
    values, directions = np.linalg.eigh(prior.inverse.astype(np.float64) * noise)
    normal = rng.normals(0, rng.stream("health", "users"), count * len(mean)).reshape(count, len(mean))
    made: Floats = (mean + (normal * np.sqrt(np.maximum(values, 0))) @ directions.T).astype(np.float32)
    return made
