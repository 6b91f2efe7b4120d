"""`CrowdEdition`: what all users taught by one moment, independent of a snapshot, and as bytes."""

import json
import struct
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.bandit.crowd import Crowd
from treeward.bandit.rules import Rule
from treeward.bandit.shared_taste import SharedTaste, Sums, doubt, item_effects, shared_taste
from treeward.core.errors import ArtefactCorrupt
from treeward.core.types import AnyArray, Floats
from treeward.engine.crowd import CREST, crests
from treeward.engine.explore import SAMPLE, UCB
from treeward.engine.layout import CrowdArrays, Plan, first_board, rows_together

VERSION = 2
_HEAD = struct.Struct("<4sI")
_MAGIC = b"twce"
_SEAL = 16
_TOP = 512
"""How many of the items with the best means for a new user every decision considers."""


class CrowdEdition(NamedTuple):
    """What all users taught: a function of the sums of their rewards and of the spread of tastes."""

    number: int
    rewards: int
    """How many rewards it includes."""
    epoch: int
    """The store's epoch: users who were erased or merged later are still included."""
    time: float
    """Seconds since 1970."""
    taste: SharedTaste
    numbers: NDArray[np.int32]
    """The store's numbers of the items with rewards ..."""
    times: NDArray[np.float64]
    """... how many rewards each has ..."""
    earned: NDArray[np.float64]
    """... their sums ..."""
    effects: Floats
    """... and how much better each item is than its vector predicts."""
    squares: float
    events: int = 0
    """How many rewards and changes to rewards it includes."""
    half_life: float = 0.0
    """Days after which a reward counts half as much; 0: it always counts fully."""
    given: float = 0.0
    """How many of the rewards are of the crowd it began with, and not in the store."""

    @property
    def mean_reward(self) -> float:
        """The average reward."""
        return float(self.earned.sum() / max(self.times.sum(), 1e-12))

    def same_as(self, other: "CrowdEdition") -> bool:
        """Return whether two include the same, to the bit, apart from their numbers and times."""
        mine, theirs = (one._replace(number=0, time=0.0, epoch=0).packed() for one in (self, other))
        return mine == theirs

    def packed(self) -> bytes:
        """Return it as bytes, with a checksum."""
        taste = self.taste
        told = {
            "version": VERSION, "number": self.number, "rewards": self.rewards, "epoch": self.epoch, "time": self.time,
            "noise": taste.noise, "fitted": taste.fitted, "squares": self.squares, "dim": len(taste.mean),
            "items": len(self.numbers), "events": self.events, "half_life": self.half_life, "given": self.given,
        }  # fmt: skip
        head = json.dumps(told).encode()
        arrays = [taste.mean, taste.precision, taste.spread, self.times, self.earned, self.effects, self.numbers]
        body = _HEAD.pack(_MAGIC, len(head)) + head + b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)
        return body + blake2b(body, digest_size=_SEAL).digest()

    @classmethod
    def unpacked(cls, content: bytes) -> "CrowdEdition":
        """Return the edition that `packed` wrote."""
        body, seal = content[:-_SEAL], content[-_SEAL:]
        if len(content) < _HEAD.size + _SEAL or blake2b(body, digest_size=_SEAL).digest() != seal:
            raise ArtefactCorrupt("the crowd's edition in the store is not what was written")
        magic, length = _HEAD.unpack_from(body)
        told = json.loads(body[_HEAD.size : _HEAD.size + length]) if magic == _MAGIC else {}
        if told.get("version") != VERSION:
            raise ArtefactCorrupt(f"the crowd's edition in the store is of version {told.get('version')}")
        dim, items, at = told["dim"], told["items"], _HEAD.size + length
        made: list[AnyArray] = []
        for kind, count in (("<f8", dim), ("<f8", dim * dim), ("<f8", dim * dim), ("<f8", items), ("<f8", items),
                            ("<f4", items), ("<i4", items)):  # fmt: skip
            made.append(np.frombuffer(body, dtype=kind, count=count, offset=at).copy())
            at += made[-1].nbytes
        mean, precision, spread, times, earned, effects, numbers = made
        taste = SharedTaste(mean, precision.reshape(dim, dim), spread.reshape(dim, dim), told["noise"], told["fitted"])
        counts = told["number"], told["rewards"], told["epoch"], told["time"]
        about = told["squares"], told["events"], told["half_life"], told["given"]
        return cls(*counts, taste, numbers, times, earned, effects, *about)

    def apply_to(self, plan: Plan, places: AnyArray, open: NDArray[np.bool_], rule: Rule) -> Plan:
        """Return a plan with this edition.

        With LinUCB, a score gains alpha times the standard deviation of what all users' rewards say about the item. The
        user's own width is not used: few users return often enough to profit from it. With a crowd that was fitted to a
        log it is the other way round: what all users like is known well enough.

        `places`: the place of every item number; `open`: which places may be shown, or nothing if all.
        """
        known = self.numbers < len(places)
        at = np.where(known, places[np.minimum(self.numbers, len(places) - 1)], -1)
        offset = np.zeros(len(plan.items), dtype=np.float32)
        offset[at[at >= 0]] = self.effects[at >= 0]
        start, strength = self.taste.start(rule.ridge), rule.strength
        bonus, node_bonus = plan.bonus, np.zeros(0, dtype=np.float32)
        worth, nodes = offset, len(plan.tree.parent)
        if plan.kind == UCB and not self.taste.fitted:
            times = np.zeros(len(plan.items), dtype=np.float32)
            times[at[at >= 0]] = self.times[at >= 0]
            bonus = np.float32(strength) * doubt(self.taste, plan.items, times)
            node_bonus = np.float32(strength) * doubt(self.taste, plan.nodes, times[:0])
            worth, strength = offset + bonus, 0.0
        crest, node_offset = np.empty((nodes, CREST), dtype=np.float32), np.empty(nodes, dtype=np.float32)
        tree = plan.tree.first_child, plan.tree.item_range
        crests(offset, open, *tree, crest, node_offset)
        if worth is not offset:
            crests(worth, open, *tree, crest, np.empty(nodes, dtype=np.float32))
        root = self.taste.root(rule.ridge) if plan.kind == SAMPLE else CrowdArrays.none().root
        top = _best(worth + plan.items @ start.theta, open)
        arrays = CrowdArrays(
            start.theta.copy(),
            offset,
            node_offset,
            node_bonus,
            np.ascontiguousarray(crest.T),
            top,
            rows_together(top, plan.items, offset, bonus),
            root,
        )
        board = first_board(plan.watched, start)
        return plan._replace(prior=start, board=board, strength=strength, bonus=bonus, crowd=arrays)

    def new_item_bonus(self, vectors: Floats, rule: Rule) -> Floats:
        """Return what the scores of items gain that were never shown."""
        if rule.kind != UCB or self.taste.fitted:
            return np.zeros(len(vectors), dtype=np.float32)
        made: Floats = np.float32(rule.strength) * doubt(self.taste, vectors, np.zeros(len(vectors)))
        return made


def _best(scores: Floats, open: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the open places of the highest scores, best first."""
    if len(open):
        scores = np.where(open, scores, -np.inf)
    count = min(_TOP, len(scores))
    found = np.argpartition(scores, len(scores) - count)[len(scores) - count :]
    made: NDArray[np.int64] = found[np.argsort(-scores[found], kind="stable")].astype(np.int64)
    return made


def make_edition(
    number: int,
    base: Crowd,
    vectors: Floats,
    places: AnyArray,
    sums: tuple[AnyArray, AnyArray, float, int],
    spread: NDArray[np.float64] | None,
    moment: tuple[int, float],
) -> CrowdEdition:
    """Return the edition that follows from counts, totals, squares and number of rewards; `moment`: epoch and time."""
    count, total, squares, rewards = sums
    numbers = np.flatnonzero(count > 0)
    known = numbers[numbers < len(places)]
    known = known[places[known] >= 0]  # of other items there is no vector to learn from
    share = float(count[known].sum() / count[numbers].sum()) if len(known) < len(numbers) else 1.0
    given = Sums(
        places[known].astype(np.int64),
        count[known].astype(np.float64),
        total[known].astype(np.float64),
        share * squares,
    )
    taste = shared_taste(base, vectors, given, spread)
    effects = item_effects(taste, vectors, given).astype(np.float32)
    return CrowdEdition(
        number, rewards, *moment, taste, known.astype(np.int32), given.times, given.earned, effects, squares
    )
