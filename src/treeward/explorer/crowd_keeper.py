"""`CrowdKeeper`: makes editions of the crowd out of everybody's rewards, and keeps the latest."""

from dataclasses import replace
from threading import RLock
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
from treeward.explorer.crowd_fold import SAMPLE, CrowdFold
from treeward.store.base import EventStore, User
from treeward.store.events import CHANGE, REWARD
from treeward.store.numbers import number_items

NOTE = "crowd"
"""Under which the store keeps the latest edition."""
_FIRST_FIT, _GROWTH = 500, 1.25
"""The spread is fitted once so many rewards came, and again whenever there are a quarter more."""
_MOST_REWARDS = 200
"""So many of a user's latest rewards take part in that."""
_LEAST, _SHARE, _ITEMS = 50, 500, 2_000


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
        self.base, self._store = base, store
        self.problem = ""
        """What was wrong with the edition in the store, if anything was."""
        numbers = number_items(store, base.ids) if len(base.times) else np.zeros(0, dtype=np.int32)
        self._given = np.zeros((2, int(numbers.max(initial=-1)) + 1))
        self._given[:, numbers] = base.times, base.earned
        self._folded = CrowdFold(store, half_life)
        self._spread: NDArray[np.float64] | None = None
        self._next_fit = float(_FIRST_FIT)
        self.now: CrowdEdition | None = None
        """The latest edition."""
        self.fold, self.forget, self.merged = self._folded.fold, self._folded.forget, self._folded.merged

    def begin(self, progress: Progress) -> None:
        """Fold all that the store holds, and go on from the edition it has."""
        stage = Stage(progress, "learning from everybody", 1)
        self.refold()
        held = self._held()
        if held is not None:
            self.take(held)
            if held.rewards != self.sums.rewards or held.epoch != self._store.identities.epoch:
                self._folded.waiting = 1
        stage.step()

    def _held(self) -> CrowdEdition | None:
        """Return the edition in the store; None if there is none that is sound, and then `problem` says why."""
        try:
            content = self._store.metadata.get(NOTE)
            held = None if content is None else CrowdEdition.unpacked(content)
        except ArtefactCorrupt as error:
            self.problem = str(error)
            return None
        if held is None:
            return None
        if len(held.taste.mean) != len(np.asarray(self.base.mean)):
            self.problem = f"the crowd's edition in the store has {len(held.taste.mean)} dimensions, the items have " \
                           f"{len(np.asarray(self.base.mean))}: it was left aside"  # fmt: skip
            return None
        self._folded.number = max(self._folded.number, held.number)
        return held

    def newer(self) -> CrowdEdition | None:
        """Return the edition in the store if somebody else wrote it since the one at hand was made or read.

        Of two with one number the one in the store holds.
        """
        held, now = self._held(), self.now
        if held is None or now is None:
            return held
        same = (held.number, held.time, held.rewards) == (now.number, now.time, now.rewards)
        return None if same or held.number < now.number else held

    def take(self, made: CrowdEdition) -> None:
        """Go on from an edition that was made elsewhere, or earlier."""
        self.now, self.problem = made, ""
        self._spread, self._next_fit = made.taste.spread, max(_FIRST_FIT, _GROWTH * made.rewards)

    def follows(self, former: "CrowdKeeper") -> None:
        """Share the sums of another keeper over the same store from now on.

        Rewards that came to the other while this one was made, and those still on their way to it, count here too.
        """
        theirs, mine = former._folded, self._folded
        theirs.number = max(theirs.number, mine.number)
        self._folded = theirs
        self.fold, self.forget, self.merged = theirs.fold, theirs.forget, theirs.merged

    def refold(self) -> None:
        """Add up everything once more, from the events in the store."""
        self._folded.refold()

    @property
    def publishing(self) -> RLock:
        """Held while an edition is made."""
        return self._folded.publishing

    @property
    def moving(self) -> RLock:
        """Held while a user is erased or merged, in the store and here: no edition is made in between."""
        return self._folded.moving

    @property
    def _sample(self) -> dict[User, int]:
        return self._folded.sample

    @property
    def sampled(self) -> int:
        """How many users the spread of tastes is fitted to."""
        return min(SAMPLE, len(self._sample))

    @property
    def sums(self) -> ItemSums:
        """A copy of the sums over everybody's rewards; where others write too, as of the last edition."""
        return self._folded.sums

    def due(self, items: int) -> bool:
        """Tell whether enough came since the last edition for another to be worth while."""
        before = 0 if self.now is None else self.now.rewards
        return self.waiting >= max(_LEAST, items // _ITEMS, before // _SHARE)

    @property
    def waiting(self) -> int:
        """How many events came since the last edition."""
        return self._folded.waiting

    def unpublished(self) -> None:
        """Take note that an edition could not be written or installed: what is in it still waits."""
        self._folded.waiting = max(1, self._folded.waiting)

    def edition(self, vectors: Floats, places: AnyArray) -> CrowdEdition:
        """Return the next edition, made of what came so far; one at a time: hold `publishing`.

        `places`: the row in `vectors` of every item number, -1 where there is none.
        """
        folded = self._folded.take()
        sums = self._all(folded.sums)
        number = self._folded.number + 1
        moment = folded.epoch, time()
        made = make_edition(number, self.base, vectors, places, sums, self._spread, moment)
        if sums[3] >= self._next_fit and not self.base.fitted:
            self._spread = self._fitted(made, vectors, places, folded.users)
            self._next_fit = _GROWTH * sums[3]
            made = make_edition(number, self.base, vectors, places, sums, self._spread, moment)
        self._folded.number = number
        given, half_life = float(self._given[0].sum()), folded.sums.half_life or 0.0
        return made._replace(events=folded.events, half_life=half_life, given=given)

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
        for events in self._store.read(users):
            taught = events[of_decisions(events)]
            mine, changes = taught[taught["kind"] == REWARD][-_MOST_REWARDS:], taught[taught["kind"] == CHANGE]
            if len(changes):
                mine["reward"] += changes["reward"] @ (changes["nonce"][:, None] == mine["nonce"])
            items = mine["item"]
            where = np.where(items < len(places), places[np.minimum(items, len(places) - 1)], -1)
            mine, where = mine[where >= 0], where[where >= 0]
            if len(mine) > 1:
                x = vectors[where]
                wide.append((x, mine["reward"] - x @ mean - offset[where]))
        return spread_of(made.taste, wide)
