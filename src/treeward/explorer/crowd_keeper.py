"""`CrowdKeeper`: makes editions of the crowd from all users' rewards, and installs them."""

from dataclasses import replace
from threading import RLock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.crowd import Crowd
from treeward.bandit.item_sums import ItemSums, of_decisions
from treeward.bandit.shared_taste import spread_of
from treeward.core.errors import ArtefactCorrupt, InvalidArgument
from treeward.core.progress import Progress, Stage
from treeward.core.types import AnyArray, Floats
from treeward.data.catalogue import Catalogue
from treeward.engine.layout import Plan
from treeward.explorer.crowd_edition import CrowdEdition, make_edition
from treeward.explorer.crowd_sums import SAMPLE, CrowdSums
from treeward.explorer.runtime import Runtime
from treeward.explorer.snapshot import Current, Snapshot
from treeward.policy.base import Policy
from treeward.store.base import EventStore, User
from treeward.store.events import CHANGE, REWARD
from treeward.store.numbers import number_items

NOTE = "crowd"
"""The store's key of the latest edition."""
_FIRST_FIT, _GROWTH = 500, 1.25
"""The spread is fitted after this many rewards, and again whenever there are a quarter more."""
_MOST_REWARDS = 200
"""How many of a user's latest rewards the fit uses."""
_LEAST, _SHARE, _ITEMS = 50, 500, 2_000


class CrowdKeeper:
    """Learns from all users: keeps the sums of their rewards, and makes and installs editions of the crowd.

    Parameters
    ----------
    base
        What is believed before any reward.
    store
        Where the events are.
    half_life
        Days after which a reward counts half as much; None: it always counts fully.
    current
        The snapshot that editions are installed in.
    runtime
        The clock, and what makes locks.
    """

    def __init__(
        self, base: Crowd, store: EventStore, half_life: float | None, current: Current, runtime: Runtime
    ) -> None:
        self.base, self._store, self._current, self._runtime = base, store, current, runtime
        self.problem = ""
        """What was wrong with the edition in the store, if anything was."""
        numbers = number_items(store, base.ids) if len(base.times) else np.zeros(0, dtype=np.int32)
        self._given = np.zeros((2, int(numbers.max(initial=-1)) + 1))
        self._given[:, numbers] = base.times, base.earned
        self._spread: NDArray[np.float64] | None = None
        self._next_fit = float(_FIRST_FIT)
        self.latest: CrowdEdition | None = None
        """The latest edition."""
        self._share(CrowdSums(store, half_life, runtime))

    def _share(self, sums: CrowdSums) -> None:
        self._sums = sums
        self.add, self.forget, self.merged, self.recount = sums.add, sums.forget, sums.merged, sums.recount
        self.recording = sums.recording

    def begin(self, progress: Progress) -> None:
        """Add up everything in the store, and continue from the edition it has."""
        stage = Stage(progress, "learning from everybody", 1)
        self.recount()
        held = self._held()
        if held is not None:
            self._continue_from(held)
            if held.rewards != self.sums.rewards or held.epoch != self._store.identities.epoch:
                self._sums.waiting = 1
        stage.step()

    @property
    def publishing(self) -> RLock:
        """Held while an edition is made."""
        return self._sums.publishing

    @property
    def moving(self) -> RLock:
        """Held while a user is erased or merged, in the store and here: no edition is made in between."""
        return self._sums.moving

    @property
    def sampled(self) -> int:
        """How many users the spread of tastes is fitted to."""
        return min(SAMPLE, len(self._sums.sample))

    @property
    def sums(self) -> ItemSums:
        """A copy of the sums of all rewards; where other processes write too, as of the last edition."""
        return self._sums.sums

    @property
    def waiting(self) -> int:
        """How many events were added since the last edition."""
        return self._sums.waiting

    def is_due(self, items: int) -> bool:
        """Return whether there are enough new events for another edition."""
        before = 0 if self.latest is None else self.latest.rewards
        return self._sums.waiting >= max(_LEAST, items // _ITEMS, before // _SHARE)

    # --- publishing --------------------------------------------------------------------------------------------------

    def publish(self) -> int:
        """Make an edition of all rewards so far, store and install it; return its number."""
        with self.publishing:
            try:
                snapshot = self._current.snapshot
                made = self._next_edition(snapshot.decider.plan.items, snapshot.decider.positions.place_of_number)
                if self._store.shared and self.follow():  # another replica was faster: its edition is for all
                    self.keep_waiting()  # it may lack the latest events of this one
                    assert self.latest is not None
                    return self.latest.number
                plan = snapshot.decider.with_edition(made)
                self._store.metadata.put({NOTE: made.packed()})
            except BaseException:
                self.keep_waiting()
                raise
            self.latest = made
            self._install(made, snapshot, plan)
        return made.number

    def publish_if_due(self, items: int) -> None:
        """Publish if there are enough new events; of several threads, one does."""
        if self.is_due(items):
            with self.publishing:
                if self.is_due(items):
                    self.publish()

    def follow(self) -> bool:
        """Install the latest edition that another replica has stored, if there is a newer one; return whether.

        An edition that is damaged, or for items of other dimensions, is ignored: the last valid one stays.
        """
        with self.publishing:
            made = self._newer()
            if made is None:
                return False
            snapshot = self._current.snapshot
            plan = snapshot.decider.with_edition(made)
            self._continue_from(made)
            self._install(made, snapshot, plan)
        return True

    def take_over(self, former: "CrowdKeeper") -> None:
        """Share the sums of another keeper over the same store, and publish.

        Rewards that the other one received while this one was made, or that are still on their way to it, count here.
        """
        with self.publishing, former.publishing:
            theirs = former._sums
            theirs.number = max(theirs.number, self._sums.number)
            self._share(theirs)
        self.publish()

    def install_latest(self) -> None:
        """Install the latest edition in the current snapshot: it may have been published while that was made."""
        if self.latest is None or self.latest is self._current.snapshot.decider.edition:
            return
        with self.publishing:
            snapshot, latest = self._current.snapshot, self.latest
            plan = snapshot.decider.with_edition(latest)
            with self._current.lock:
                if self._current.snapshot is snapshot:
                    snapshot.decider.install(latest, plan)

    def _install(self, made: CrowdEdition, snapshot: Snapshot, plan: Plan) -> None:
        """Install an edition; `plan` was made for `snapshot`."""
        with self._current.lock:
            if self._current.snapshot is not snapshot:  # replaced in the meantime
                snapshot = self._current.snapshot
                plan = snapshot.decider.with_edition(made)
            snapshot.decider.install(made, plan)

    def keep_waiting(self) -> None:
        """Note that an edition could not be stored or installed: its events still wait."""
        self._sums.waiting = max(1, self._sums.waiting)

    def _held(self) -> CrowdEdition | None:
        """Return the edition in the store; None if there is no valid one, and then `problem` says why."""
        try:
            content = self._store.metadata.get(NOTE)
            held = None if content is None else CrowdEdition.unpacked(content)
        except ArtefactCorrupt as error:
            self.problem = str(error)
            return None
        if held is None:
            return None
        theirs, mine = len(held.taste.mean), len(np.asarray(self.base.mean))
        if theirs != mine:
            self.problem = f"the crowd's edition in the store has {theirs} dimensions, the items have {mine}: ignored"
            return None
        self._sums.number = max(self._sums.number, held.number)
        return held

    def _newer(self) -> CrowdEdition | None:
        """Return the edition in the store if another process has written it since the latest one here.

        If two have the same number, the one in the store counts.
        """
        held, latest = self._held(), self.latest
        if held is None or latest is None:
            return held
        same = (held.number, held.time, held.rewards) == (latest.number, latest.time, latest.rewards)
        return None if same or held.number < latest.number else held

    def _continue_from(self, made: CrowdEdition) -> None:
        self.latest, self.problem = made, ""
        self._spread, self._next_fit = made.taste.spread, max(_FIRST_FIT, _GROWTH * made.rewards)

    # --- making an edition -------------------------------------------------------------------------------------------

    def _next_edition(self, vectors: Floats, places: AnyArray) -> CrowdEdition:
        """Return the next edition, made of all events so far; hold `publishing`.

        `places`: the row in `vectors` of every item number, -1 where there is none.
        """
        taken = self._sums.take()
        sums = self._with_given(taken.sums)
        number = self._sums.number + 1
        moment = taken.epoch, self._runtime.nanoseconds() / 1e9
        made = make_edition(number, self.base, vectors, places, sums, self._spread, moment)
        if sums[3] >= self._next_fit and not self.base.fitted:
            self._spread = self._fitted(made, vectors, places, taken.users)
            self._next_fit = _GROWTH * sums[3]
            made = make_edition(number, self.base, vectors, places, sums, self._spread, moment)
        self._sums.number = number
        given, half_life = float(self._given[0].sum()), taken.sums.half_life or 0.0
        return made._replace(events=taken.events, half_life=half_life, given=given)

    def _with_given(self, sums: ItemSums) -> tuple[AnyArray, AnyArray, float, int]:
        """Return counts, totals, squares and number of rewards, including those of the crowd it began with."""
        count, total, squares = sums.count.astype(np.float64), sums.total, sums.squares
        times, earned = self._given
        if not len(times):
            return count, total, squares, sums.rewards
        size = max(len(count), len(times))
        count, total = np.pad(count, (0, size - len(count))), np.pad(total, (0, size - len(total)))
        count[: len(times)] += times
        total[: len(times)] += earned
        # The squares of the given rewards are unknown, but their noise is known.
        squares += float(times.sum() * self.base.noise + (earned**2 / np.maximum(times, 1)).sum())
        return count, total, squares, sums.rewards

    @property
    def crowd(self) -> Crowd | None:
        """The latest edition as a crowd that can be saved, and that another explorer can begin with."""
        made, base = self.latest, self.base
        if made is None:
            return None
        with self._current.lock:
            snapshot = self._current.snapshot
            rows = snapshot.decider.positions.rows(made.numbers)
            ids = snapshot.catalogue.ids[rows[rows >= 0]]  # without items that the catalogue no longer has
        told = {**base.provenance, "edition": made.number, "rewards": made.rewards}
        times, earned, taste = made.times[rows >= 0], made.earned[rows >= 0], made.taste
        if len(base.rates):  # the ids are those of the fitted log then, and rates are a feature of them
            both = pl.DataFrame({"id": ids, "times": times, "earned": earned})
            known = base.ids.to_frame("id").join(both, on="id", how="left", maintain_order="left")
            ids, times, earned = base.ids, *(known[name].fill_null(0.0).to_numpy() for name in ("times", "earned"))
        return replace(
            base, mean=taste.mean, covariance=taste.spread, noise=taste.noise, ids=ids, provenance=told,
            users=max(base.users, len(self._sums.sample)), times=times, earned=earned,
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


def keeper_for(
    crowd: bool | Crowd,
    policy: Policy,
    catalogue: Catalogue,
    store: EventStore,
    half_life: float | None,
    current: Current,
    runtime: Runtime,
) -> CrowdKeeper | None:
    """Return what learns from all users; None: every user is learned alone."""
    if not isinstance(crowd, bool | Crowd):
        raise InvalidArgument("Explorer", "crowd", "True, False or a Crowd", crowd)
    base = crowd if isinstance(crowd, Crowd) else policy.prior
    if crowd is False or (base is None and policy.features is not None):
        return None
    if base is None:
        base = Crowd.empty(catalogue)
    return CrowdKeeper(base, store, half_life, current, runtime) if isinstance(base, Crowd) else None
