"""The arms of `experiment stream`: what a shop may show its visitors, from a random item to a policy that explores.

An arm is a label and a function of (stage, seed) that returns a `Player`. To add one, add a line to `ARMS`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import betaincinv

from treeward.bandit.crowd import Crowd
from treeward.core import rng
from treeward.experiment.baselines import factorise
from treeward.explorer.explorer import Explorer
from treeward.policy.base import Policy
from treeward.policy.beam import Beam
from treeward.policy.hcb import HCB
from treeward.policy.phcb import PHCB
from treeward.simulate.world import World
from treeward.tree.item_tree import ItemTree

MEMORY = 2 << 30
"""Bytes for the states of users; it holds 12,000 users of HCB on a tree of four levels in 64 dimensions."""
_STRENGTH = 80.0
"""How many shows of an average item the prior of online popularity counts for. Tried with one seed: 2 to 1,000 on
sports, where 80 and 100 earn most (0.237 and 0.240), and 20 to 500 on movielens-small, where 80 does."""
_SMOOTHED = 20.0
"""The same for the list that ALS shows to users without clicks. By numbers of clicks alone it earns less on sports:
0.18 to 0.21 with three seeds, against 0.24 with one."""
_FACTORS = 16
"""Of ALS. Tried with one seed: 16, 32 and 64; on sports 16 and 32 earn the same, on movielens-small 16 earns most."""
Rows = NDArray[np.int64]


class StreamSetup(NamedTuple):
    """What all arms have in common."""

    folder: Path
    """Where `tree`, and for some arms `prior` and `tree-prior`, lie."""
    world: World
    users: Rows
    """The world's numbers of the stream's users; arms know them by their position here."""
    popular: NDArray[np.float64]
    """Mean chance of a click per item, over the stream's users."""
    longest: int
    """Most visits of a user."""

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.popular)


class Player:
    """An arm at work. Users are numbered from 0, items by their rows; a user is shown nothing twice."""

    def morning(self, day: int) -> None:
        """Do what is done once per day, before the first visit."""

    def choose(self, users: Rows) -> Rows:
        """Return the row of an item for each user, all different."""
        raise NotImplementedError

    def learn(self, users: Rows, rows: Rows, clicks: NDArray[np.bool_]) -> None:
        """Learn from the clicks on the latest `choose`."""

    @property
    def scores(self) -> float | None:
        """Scores computed so far, where they are counted."""
        return None


class Listed(Player):
    """The same list for everybody, from the top."""

    def __init__(self, scores: NDArray[np.float64], users: int) -> None:
        self._order = np.argsort(-scores, kind="stable")
        self._next = np.zeros(users, dtype=np.int64)

    def choose(self, users: Rows) -> Rows:
        """Take the next item of the list."""
        rows = self._order[self._next[users]]
        self._next[users] += 1
        return rows


class OwnBest(Player):
    """Every user's own list by true click probabilities: no policy can earn more, in expectation."""

    def __init__(self, stage: StreamSetup) -> None:
        self._stage = stage
        self._lists: dict[int, NDArray[np.int32]] = {}
        self._next = np.zeros(len(stage.users), dtype=np.int64)

    def choose(self, users: Rows) -> Rows:
        """Take the next item of each user's list."""
        rows = [int(self._of(user)[self._next[user]]) for user in users.tolist()]
        self._next[users] += 1
        return np.array(rows, dtype=np.int64)

    def _of(self, user: int) -> NDArray[np.int32]:
        if user not in self._lists:
            chances = self._stage.world.probabilities(int(self._stage.users[user]))
            most = min(self._stage.longest, len(chances))
            best = np.argpartition(-chances, most - 1)[:most]
            self._lists[user] = best[np.lexsort((best, -chances[best]))].astype(np.int32)
        return self._lists[user]


class _Remembering(Player):
    """Knows what each user has seen, and can draw an item that they have not."""

    def __init__(self, items: int, users: int, seed: int) -> None:
        self._items, self._seed, self._stream = items, seed, rng.stream("stream", type(self).__name__)
        self._drawn = 0
        self.seen: list[set[int]] = [set() for _ in range(users)]

    def learn(self, users: Rows, rows: Rows, clicks: NDArray[np.bool_]) -> None:
        """Note what was seen."""
        for user, row in zip(users.tolist(), rows.tolist(), strict=True):
            self.seen[user].add(row)

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Draw `count` numbers that were not drawn before."""
        made = rng.uniforms(self._seed, self._stream, count, self._drawn)
        self._drawn += count
        return made

    def unseen(self, user: int) -> int:
        """Draw an item that the user has not seen."""
        while True:
            row = int(self.uniforms(1)[0] * self._items)
            if row not in self.seen[user]:
                return row


class Random(_Remembering):
    """Any item."""

    def choose(self, users: Rows) -> Rows:
        """Draw for each user."""
        return np.array([self.unseen(user) for user in users.tolist()], dtype=np.int64)


class OnlinePopularity(_Remembering):
    """Thompson sampling of one click rate per item, learned from everybody, without vectors.

    An item's rate has a Beta posterior. Its prior is worth some shows of an average item. Items with as many shows and
    as many clicks have the same posterior; so the largest of their draws is drawn directly, by the inverse of its
    distribution, and then one of them at random. That equals a draw for every item, at the cost of one per group.
    """

    def __init__(self, items: int, users: int, seed: int, strength: float = _STRENGTH) -> None:
        super().__init__(items, users, seed)
        self._strength, self._shows, self._clicks = strength, 0, 0
        self._of = np.zeros(items, dtype=np.int64)
        """The group of each item ..."""
        self._at = np.arange(items)
        """... and its position there."""
        self._members: list[list[int]] = [list(range(items))]
        self._number = {(0, 0): 0}
        self._counts = [(0, 0)]
        """Shows and clicks of each group's items."""

    def choose(self, users: Rows) -> Rows:
        """Draw the rates of all items for each user, and take the item with the highest."""
        rate = (self._clicks + 1) / (self._shows + 10)
        sizes = np.array([len(some) for some in self._members])
        live = np.flatnonzero(sizes)
        shown, clicked = np.array(self._counts)[live].T
        # A user who has seen items of a group draws the largest of fewer.
        left = np.repeat(sizes[None], len(users), axis=0)
        for at, user in enumerate(users.tolist()):
            if self.seen[user]:
                np.subtract.at(left[at], self._of[list(self.seen[user])], 1)
        left = left[:, live]
        luck = self.uniforms(left.size).reshape(left.shape)
        best = betaincinv(
            rate * self._strength + clicked,
            (1 - rate) * self._strength + shown - clicked,
            luck ** (1 / np.maximum(left, 1)),
        )
        groups = live[np.where(left > 0, best, -1.0).argmax(axis=1)]
        return np.array([self._one_of(g, u) for g, u in zip(groups.tolist(), users.tolist(), strict=True)])

    def _one_of(self, group: int, user: int) -> int:
        members = self._members[group]
        while True:
            row = members[int(self.uniforms(1)[0] * len(members))]
            if row not in self.seen[user]:
                return row

    def learn(self, users: Rows, rows: Rows, clicks: NDArray[np.bool_]) -> None:
        """Count shows and clicks."""
        super().learn(users, rows, clicks)
        for row, click in zip(rows.tolist(), clicks.tolist(), strict=True):
            shows, clicked = self._counts[self._of[row]]
            self._move(row, (shows + 1, clicked + int(click)))
        self._shows += len(rows)
        self._clicks += int(clicks.sum())

    def _move(self, row: int, counts: tuple[int, int]) -> None:
        # The last item of the old group takes the free position, so that a move costs no search.
        old, at = self._members[self._of[row]], int(self._at[row])
        old[at] = old[-1]
        self._at[old[at]] = at
        old.pop()
        if counts not in self._number:
            self._number[counts] = len(self._members)
            self._members.append([])
            self._counts.append(counts)
        group = self._number[counts]
        self._of[row], self._at[row] = group, len(self._members[group])
        self._members[group].append(row)


class DailyALS(_Remembering):
    """Alternating least squares by `implicit`, refitted every morning on all clicks of the stream so far.

    A user without clicks before this morning gets the items with the highest click rates, smoothed, of those that were
    clicked; where these are used up, as on the first day, any item.
    """

    def __init__(self, items: int, users: int, dim: int, seed: int) -> None:
        super().__init__(items, users, seed)
        self._dim, self._clicked = dim, list[tuple[int, int]]()
        self._known: dict[int, int] = {}
        """Rows of the factors of users who clicked."""
        self._people = self._things = np.zeros((0, dim), dtype=np.float32)
        self._popular: list[int] = []
        self._shows, self._clicks = np.zeros(items), np.zeros(items)

    def morning(self, day: int) -> None:
        """Fit to the clicks so far."""
        if not self._clicked:
            return
        users, rows = np.array(self._clicked).T
        people, numbers = np.unique(users, return_inverse=True)
        shape = (len(people), self._items)
        seen = scipy.sparse.csr_matrix((np.ones(len(rows), np.float32), (numbers, rows)), shape=shape)
        self._people, self._things = factorise(seen, self._dim, self._seed % 2**31)
        self._known = {user: at for at, user in enumerate(people.tolist())}
        usual = self._clicks.sum() / self._shows.sum()
        rates = (self._clicks + usual * _SMOOTHED) / (self._shows + _SMOOTHED)
        ties = rng.uniforms(self._seed, rng.stream("stream", "als", day), self._items)
        order = np.lexsort((ties, -rates))
        self._popular = order[self._clicks[order] > 0].tolist()

    def choose(self, users: Rows) -> Rows:
        """Take the best item by factors that the user has not seen, or a popular one."""
        return np.array([self._one(user) for user in users.tolist()], dtype=np.int64)

    def _one(self, user: int) -> int:
        seen = self.seen[user]
        if user in self._known:
            scores = self._things @ self._people[self._known[user]]
            scores[list(seen)] = -np.inf
            return int(scores.argmax())
        listed = next((row for row in self._popular if row not in seen), None)
        return self.unseen(user) if listed is None else listed

    def learn(self, users: Rows, rows: Rows, clicks: NDArray[np.bool_]) -> None:
        """Keep clicks for the next morning."""
        super().learn(users, rows, clicks)
        np.add.at(self._shows, rows, 1)
        np.add.at(self._clicks, rows, clicks)
        self._clicked += zip(users[clicks].tolist(), rows[clicks].tolist(), strict=True)


class Explored(Player):
    """A treeward policy behind the public `Explorer`, with its events in memory.

    Parameters
    ----------
    stage, seed
        The stream's.
    policy
        How to explore.
    tree
        The name of its tree in the stage's folder.
    options
        Of `Explorer`.
    """

    def __init__(self, stage: StreamSetup, seed: int, policy: Policy, *, tree: str = "tree", **options: Any) -> None:
        shop, grown = stage.world.catalogue, ItemTree.load(stage.folder / tree, verify=False)
        given = {"repeats": False, "seed": seed, **options}
        with Explorer(shop, grown, policy, memory=1 << 24, **given) as trial:  # kernels are compiled before time counts
            trial.feedback({one.id: 0.0 for one in trial.recommend([0, 1])})
            trial.recommend([0, 1])  # which learns from the feedback
        self._explorer = Explorer(shop, grown, policy, memory=MEMORY, **given)
        self._rows = {id: row for row, id in enumerate(shop.ids.to_list())}
        self._ids, self._scores = list[str](), 0

    def choose(self, users: Rows) -> Rows:
        """Ask for one recommendation per user."""
        made = self._explorer.recommend(users.tolist())
        self._ids = [one.id for one in made]
        self._scores += sum(one.scores for one in made)
        return np.array([self._rows[one.item] for one in made], dtype=np.int64)

    def learn(self, users: Rows, rows: Rows, clicks: NDArray[np.bool_]) -> None:
        """Give feedback on all of them."""
        self._explorer.feedback(dict(zip(self._ids, clicks.astype(float).tolist(), strict=True)))

    @property
    def scores(self) -> float:
        """Scores computed so far."""
        return float(self._scores)


def _with_prior(stage: StreamSetup, seed: int, *, crowd: bool = False) -> Player:
    policy = Beam(prior=Crowd.load(stage.folder / "prior"))
    return Explored(stage, seed, policy, tree="tree-prior", crowd=crowd)


class Arm(NamedTuple):
    """One way to choose what visitors see."""

    label: str
    what: str
    """What it does, for the report."""
    make: Callable[[StreamSetup, int], Player]
    """From the stage and a seed."""
    needs: tuple[str, ...] = ()
    """``"prior"``: a prior from training users. ``"als"``: the extra of that name."""


BEAM, CROWD, LIST = "Beam", "Beam, crowd", "popularity list"
"""What the other arms are compared with."""
_ALONE = "treeward's policy of this name; each user is learned alone"
_TOGETHER = "learns from everybody, from the first visitor on"
_ALL = (
    Arm("random", "any item", lambda stage, seed: Random(stage.items, len(stage.users), seed)),
    Arm("online popularity", "Thompson sampling of one click rate per item (Beta posterior), learned from all users",
        lambda stage, seed: OnlinePopularity(stage.items, len(stage.users), seed)),
    Arm("ALS, daily", "implicit's ALS, refitted every morning on the clicks so far; popular items for users without",
        lambda stage, seed: DailyALS(stage.items, len(stage.users), _FACTORS, seed), ("als",)),
    Arm("HCB", _ALONE, lambda stage, seed: Explored(stage, seed, HCB(), crowd=False)),
    Arm("pHCB", _ALONE, lambda stage, seed: Explored(stage, seed, PHCB(), crowd=False)),
    Arm(BEAM, _ALONE, lambda stage, seed: Explored(stage, seed, Beam(), crowd=False)),
    Arm("HCB, crowd", _TOGETHER, lambda stage, seed: Explored(stage, seed, HCB())),
    Arm("pHCB, crowd", _TOGETHER, lambda stage, seed: Explored(stage, seed, PHCB())),
    Arm(CROWD, f"{_TOGETHER}; an Explorer does so by default",
        lambda stage, seed: Explored(stage, seed, Beam())),
    Arm(LIST, "the items with the highest mean chance of a click over the stream's users, known in advance",
        lambda stage, seed: Listed(stage.popular, len(stage.users))),
    Arm("Beam, offline prior", "Beam with a population prior fitted to training users' events", _with_prior,
        ("prior",)),
    Arm("Beam, prior and crowd", "the same, and learning from everybody from there on",
        lambda stage, seed: _with_prior(stage, seed, crowd=True), ("prior",)),
    Arm("own best", "each user's own best items, known in advance: the ceiling", lambda stage, seed: OwnBest(stage)),
)  # fmt: skip
ARMS = {arm.label: arm for arm in _ALL}
"""By label, in the order of reports."""
