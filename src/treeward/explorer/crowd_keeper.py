"""`CrowdKeeper`: folds everybody's rewards into sums as they come, and makes editions of the crowd out of them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from threading import Lock, RLock
from time import time

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.crowd import Crowd
from treeward.bandit.item_sums import ItemSums, of_decisions
from treeward.bandit.shared_taste import spread_of
from treeward.core.errors import ArtefactCorrupt
from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray, Floats
from treeward.explorer.crowd_edition import CrowdEdition, make_edition
from treeward.store.base import EventStore, User, spelled
from treeward.store.events import EVENT, REWARD

NOTE = "crowd"
"""Under which the store keeps the latest edition."""
_SAMPLE = 1_500
"""Users that the spread of tastes is fitted to, at most."""
_FIRST_FIT, _GROWTH = 500, 1.25
"""The spread is fitted once so many rewards came, and again whenever there are a quarter more."""
_MOST_REWARDS = 200
"""So many of a user's latest rewards take part in that."""
_LEAST, _SHARE, _ITEMS = 50, 500, 2_000
_WAITING = 4_096


class CrowdKeeper:
    """What everybody taught, as sums that are always up to date, and the latest edition that follows from them.

    Parameters
    ----------
    base
        What is believed before anybody comes.
    store
        Where the events are.
    half_life
        Days after which a reward counts half as much; None: it counts for ever.
    """

    def __init__(self, base: Crowd, store: EventStore, half_life: float | None = None) -> None:
        self.base, self._store, self._half_life = base, store, half_life
        self.problem = ""
        """What was wrong with the edition in the store, if anything was."""
        numbers = store.number_items(base.ids) if len(base.times) else np.zeros(0, dtype=np.int32)
        self._given = np.zeros((2, int(numbers.max(initial=-1)) + 1))
        self._given[:, numbers] = base.times, base.earned
        self._sums = ItemSums(half_life)
        self._fresh: deque[tuple[AnyArray, int]] = deque()
        self._waiting = 0
        self._sample: dict[User, int] = {}
        self._below = 1 << 64
        self._key = blake2b(store.secret(), digest_size=16, person=b"crowd").digest()
        self._lock, self.publishing = Lock(), RLock()
        self._spread: NDArray[np.float64] | None = None
        self._next_fit = float(_FIRST_FIT)
        self._epoch = store.epoch
        self.now: CrowdEdition | None = None
        """The latest edition."""

    def begin(self, progress: Progress) -> None:
        """Fold all that the store holds, and go on from the edition it has."""
        stage = Stage(progress, "learning from everybody", 1)
        self.refold()
        try:
            held = self._store.note(NOTE)
            self.now = None if held is None else self._checked(CrowdEdition.unpacked(held))
        except ArtefactCorrupt as error:
            self.problem = str(error)
        if self.now is not None:
            self._spread, self._next_fit = self.now.taste.spread, max(_FIRST_FIT, _GROWTH * self.now.rewards)
        stage.step()

    def _checked(self, held: CrowdEdition) -> CrowdEdition | None:
        """Return an edition if it is about these vectors; None if not, and say so."""
        if len(held.taste.mean) != len(np.asarray(self.base.mean)):
            self.problem = f"the crowd's edition in the store has {len(held.taste.mean)} dimensions, the items have " \
                           f"{len(np.asarray(self.base.mean))}: it was left aside"  # fmt: skip
            return None
        return held

    def refold(self) -> None:
        """Add up everything once more, from the events in the store."""
        sums = ItemSums(self._half_life)
        with self._lock:
            self._fresh.clear()
            self._waiting, self._epoch = 0, self._store.epoch
        for events in self._store.chunks():
            sums.add(events)
        with self._lock:
            self._sums, self._sample, self._below = sums, {}, 1 << 64
        for user in self._store.users():
            self._notice(user)

    def fold(self, users: Sequence[User], events: AnyArray) -> None:
        """Take in rewards that were recorded, each a user's."""
        taught = of_decisions(events)
        if not taught.any():
            return
        for user, counts in zip(users, taught.tolist(), strict=True):
            if counts:
                self._notice(user)
        self._add(events, 1)

    def forget(self, user: User, events: AnyArray) -> None:
        """Subtract all that a user taught."""
        with self._lock:
            self._sample.pop(user, None)
        self._add(events, -1)
        self._epoch = self._store.epoch

    def merged(self, source: User, target: User) -> None:
        """Take note that one user's events are another's now."""
        with self._lock:
            self._sample.pop(source, None)
        self._notice(target)
        self._epoch = self._store.epoch

    def _add(self, events: AnyArray, sign: int) -> None:
        with self._lock:
            self._fresh.append((events, sign))
            self._waiting += len(events)
            if len(self._fresh) >= _WAITING or sign < 0:
                self._fold_fresh()

    def _fold_fresh(self) -> None:
        while self._fresh:
            sign = self._fresh[0][1]
            pieces = []
            while self._fresh and self._fresh[0][1] == sign:
                pieces.append(self._fresh.popleft()[0].tobytes())
            self._sums.add(np.frombuffer(b"".join(pieces), dtype=EVENT), sign)

    def _notice(self, user: User) -> None:
        """Let a user be one of the sample if their hash is among the lowest: the same users, in whatever order."""
        drawn = int.from_bytes(blake2b(spelled(user), key=self._key, digest_size=8).digest(), "little")
        if drawn >= self._below or user in self._sample:
            return
        with self._lock:
            self._sample[user] = drawn
            if len(self._sample) > 2 * _SAMPLE:
                self._below = sorted(self._sample.values())[_SAMPLE]
                self._sample = {user: drawn for user, drawn in self._sample.items() if drawn < self._below}

    @property
    def sums(self) -> ItemSums:
        """A copy of the sums over everybody's rewards."""
        with self._lock:
            self._fold_fresh()
            return self._sums.copy()

    def due(self, items: int) -> bool:
        """Tell whether enough came since the last edition for another to be worth while."""
        before = 0 if self.now is None else self.now.rewards
        return self._waiting >= max(_LEAST, items // _ITEMS, before // _SHARE)

    @property
    def waiting(self) -> int:
        """How many events came since the last edition."""
        return self._waiting

    def edition(self, vectors: Floats, places: AnyArray) -> CrowdEdition:
        """Return the next edition, made of what came so far; one at a time: hold `publishing`.

        `places`: the row in `vectors` of every item number, -1 where there is none.
        """
        if self._store.remote or self._store.epoch != self._epoch:
            self.refold()  # others write too, or erased somebody
        with self._lock:
            self._fold_fresh()
            sums = self._all(self._sums)
            self._waiting = 0
            sample = sorted(self._sample.items(), key=lambda one: one[1])[:_SAMPLE]
        number = 1 if self.now is None else self.now.number + 1
        moment = self._epoch, time()
        made = make_edition(number, self.base, vectors, places, sums, self._spread, moment)
        if sums[3] >= self._next_fit and not self.base.users:
            self._spread = self._fitted(made, vectors, places, [user for user, _ in sample])
            self._next_fit = _GROWTH * sums[3]
            made = make_edition(number, self.base, vectors, places, sums, self._spread, moment)
        return made

    def _all(self, sums: ItemSums) -> tuple[AnyArray, AnyArray, float, int]:
        """Return counts, totals, squares and number of rewards, with those that were given at the start."""
        count, total, squares = sums.count.astype(np.float64), sums.total, sums.squares
        times, earned = self._given
        if not len(times):
            return count, total, squares, sums.rewards
        size = max(len(count), len(times))
        count, total = np.pad(count, (0, size - len(count))), np.pad(total, (0, size - len(total)))
        count[: len(times)] += times
        total[: len(times)] += earned
        # Of what was given, the squares are not known: its noise is.
        squares += float(times.sum() * self.base.noise + (earned**2 / np.maximum(times, 1)).sum())
        return count, total, squares, sums.rewards

    def as_crowd(self, made: CrowdEdition, ids: pl.Series) -> Crowd:
        """Return an edition as a crowd that can be saved, and begun with elsewhere."""
        base, taste = self.base, made.taste
        told = {**base.provenance, "edition": made.number, "rewards": made.rewards}
        times, earned, rates = made.times, made.earned, base.rates
        if len(base.rates):  # ids are those of the log then, and rates a feature of theirs
            both = pl.DataFrame({"id": ids, "times": times, "earned": earned})
            known = base.ids.to_frame("id").join(both, on="id", how="left", maintain_order="left")
            ids, times, earned = base.ids, *(known[name].fill_null(0.0).to_numpy() for name in ("times", "earned"))
        return replace(
            base, mean=taste.mean, covariance=taste.spread, noise=taste.noise, ids=ids, rates=rates, provenance=told,
            users=max(base.users, len(self._sample)), times=times, earned=earned,
        )  # fmt: skip

    def _fitted(self, made: CrowdEdition, vectors: Floats, places: AnyArray, users: list[User]) -> NDArray[np.float64]:
        """Return the spread of tastes among a sample of users who gave at least two rewards."""
        offset = np.zeros(len(vectors), dtype=np.float32)
        at = places[made.numbers]
        offset[at[at >= 0]] = made.effects[at >= 0]
        mean = made.taste.mean.astype(np.float32)
        wide: list[tuple[Floats, NDArray[np.float64]]] = []
        for events in self._store.newer(users, [0] * len(users)):
            mine = events[of_decisions(events) & (events["kind"] == REWARD)][-_MOST_REWARDS:]
            items = mine["item"]
            where = np.where(items < len(places), places[np.minimum(items, len(places) - 1)], -1)
            mine, where = mine[where >= 0], where[where >= 0]
            if len(mine) > 1:
                x = vectors[where]
                wide.append((x, mine["reward"] - x @ mean - offset[where]))
        return spread_of(made.taste, wide)
