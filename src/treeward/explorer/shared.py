"""The shared half of an explorer: what everybody taught, and whose events these are."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from treeward.bandit.crowd import Crowd
from treeward.core import checks
from treeward.core.errors import InvalidArgument
from treeward.core.progress import Progress
from treeward.data.catalogue import Catalogue
from treeward.engine.layout import Plan
from treeward.explorer.crowd_edition import CrowdEdition
from treeward.explorer.crowd_keeper import NOTE, CrowdKeeper
from treeward.explorer.living import Living
from treeward.explorer.names import users_of
from treeward.explorer.snapshot import Snapshot
from treeward.explorer.tally import Tally
from treeward.policy.base import Policy
from treeward.store.base import EventStore, User


class Shared(Living):
    """How an `Explorer` learns from everybody, and forgets somebody."""

    _crowd: CrowdKeeper | None
    _tally: Tally | None

    def publish(self) -> int:
        """Let all that came so far count for everybody, and return the number of the crowd's edition that knows it.

        This happens by itself whenever a number of rewards came (50, or a five-hundredth of those there were). A
        service does it every second or so instead, in the background.

        Raises
        ------
        InvalidArgument
            If every user is learned alone.
        """
        keeper = self._crowd
        if keeper is None:
            raise InvalidArgument("Explorer.publish", "crowd", "True: every user is learned alone", False)
        with keeper.publishing:
            try:
                now = self._now
                made = keeper.edition(now.decider.plan.items, now.decider.roster.places)
                if self.store.shared and self.follow():  # another replica was faster: its edition holds for all
                    keeper.unpublished()  # it may lack what came here last
                    assert keeper.now is not None
                    return keeper.now.number
                plan = now.laid_out(made)
                self.store.metadata.put({NOTE: made.packed()})
            except BaseException:
                keeper.unpublished()
                raise
            keeper.now = made
            self._install(made, now, plan)
        return made.number

    def _follow_crowd(self) -> None:
        """Decide by the crowd's latest edition: one may have been published while items were laid out."""
        keeper = self._how.crowd
        if keeper is None or keeper.now is None or keeper.now is self._now.decider.edition:
            return
        with keeper.publishing:
            now, latest = self._now, keeper.now
            plan = now.laid_out(latest)
            with self._lock:
                if self._now is now:
                    now.decider.install(latest, plan)

    def follow(self) -> bool:
        """Take over the latest edition of the crowd that another replica wrote into the store, if there is a newer one.

        An edition that is damaged, or about items of other dimensions, is left aside: the last sound one stays.

        Returns
        -------
        bool
            Whether there was one.
        """
        keeper = self._crowd
        if keeper is None:
            return False
        with keeper.publishing:
            made = keeper.newer()
            if made is None:
                return False
            now = self._now
            plan = now.laid_out(made)
            keeper.take(made)
            self._install(made, now, plan)
        return True

    def succeed(self, former: "Shared") -> None:
        """Go on where another explorer of the same store stops: with the rewards that came to it in the meantime."""
        mine, theirs = self._crowd, former._crowd
        if mine is None or theirs is None:
            return
        with mine.publishing, theirs.publishing:
            mine.follows(theirs)
        self.publish()

    def _install(self, made: CrowdEdition, now: Snapshot, plan: Plan) -> None:
        """Decide by an edition of the crowd, which was laid out for `now`."""
        with self._lock:
            if self._now is not now:  # laid out again in the meantime
                now, plan = self._now, self._now.laid_out(made)
            now.decider.install(made, plan)

    @property
    def keeper(self) -> CrowdKeeper | None:
        """What learns from everybody; None where every user is learned alone."""
        return self._crowd

    def _publish_if_due(self, keeper: CrowdKeeper) -> None:
        if keeper.due(len(self._now.catalogue)):
            with keeper.publishing:  # of several threads, one publishes
                if keeper.due(len(self._now.catalogue)):
                    self.publish()

    @property
    def crowd(self) -> Crowd | None:
        """What everybody taught so far, as of the latest edition; None where every user is learned alone."""
        keeper = self._crowd
        if keeper is None or keeper.now is None:
            return None
        with self._lock:
            row_of, ids = self._now.decider.roster.row_of, self._now.catalogue.ids
        return keeper.as_crowd(keeper.now, ids[row_of[keeper.now.numbers]])

    def forget(self, user: User) -> int:
        """Erase a user: events, state, open decisions. Return how many events that were."""
        [who] = users_of("Explorer.forget", [user])
        with self._moving(), self._lock:
            self._now.decider.seats.drop(who)
            events = self.store.move(who, None)
            if self._tally is not None:
                self._tally.add(events, -1)
            if self._crowd is not None:
                self._crowd.forget(who, events)
        self.store.flush()
        return len(events)

    def _moving(self) -> AbstractContextManager[object]:
        """Keep editions of the crowd from being made while a user is only half erased, or half another."""
        return nullcontext() if self._crowd is None else self._crowd.moving

    def merge(self, anonymous: User, known: User) -> int:
        """Make one user's events another's, as at login; return how many.

        They count as if they came after the other's. Feedback for decisions the first user got before goes to the
        second; asked for again, the first is new.
        """
        [source], [target] = users_of("Explorer.merge", [anonymous]), users_of("Explorer.merge", [known])
        if source == target:
            raise InvalidArgument("Explorer.merge", "known", "another user than the anonymous one", known)
        with self._moving(), self._lock:
            moved = len(self.store.move(source, target))
            if self._crowd is not None:
                self._crowd.merged(source, target)
            self._now.decider.seats.drop(source)
        self.store.flush()
        return moved


def with_crowd(
    policy: Policy,
    catalogue: Catalogue,
    store: EventStore,
    crowd: bool | Crowd,
    half_life: float | None,
    progress: Progress,
) -> tuple[Policy, CrowdKeeper | None]:
    """Return the policy as it begins, and what learns from everybody; None: nothing does."""
    if not isinstance(crowd, bool | Crowd):
        raise InvalidArgument("Explorer", "crowd", "True, False or a Crowd", crowd)
    given = crowd if isinstance(crowd, Crowd) else policy.prior
    if crowd is False or (given is None and policy.features is not None):
        return policy, None
    if given is None:
        given = Crowd.nobody(catalogue)
    if not isinstance(given, Crowd):
        return policy, None
    days = None if half_life is None else checks.number("Explorer", "half_life", half_life, above=0)
    keeper = CrowdKeeper(given, store, days)
    keeper.begin(progress)
    return replace(policy, prior=given), keeper
