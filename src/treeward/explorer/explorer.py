"""`Explorer`: recommend and learn, over a catalogue, its tree, a policy and a store of events."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Annotated, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from treeward.bandit.crowd import Crowd
from treeward.core import checks
from treeward.core.artefact import StrPath
from treeward.core.checks import NotNegative, Positive, Seed
from treeward.core.errors import InvalidArgument, NothingLeft, StoreError
from treeward.core.progress import Progress, silent
from treeward.data.catalogue import Catalogue, Id
from treeward.data.interactions import Interactions
from treeward.embed.features import Context
from treeward.explorer.change_pages import first_page
from treeward.explorer.changes import CatalogueChanges
from treeward.explorer.crowd_keeper import keeper_for
from treeward.explorer.decider import SLOT_BITS
from treeward.explorer.deciding import Deciding
from treeward.explorer.filters import Exclude, Where
from treeward.explorer.ingest import events_of_log
from treeward.explorer.inspection import Inspection
from treeward.explorer.item_counts import ItemCounts
from treeward.explorer.records import Decision, Explanation, Ingested
from treeward.explorer.rewards import OnRepeat, Outcome, Rewards, checked_range
from treeward.explorer.runtime import Runtime
from treeward.explorer.snapshot import SPARE, Current, Request, Setup, Snapshot
from treeward.policy.base import Policy
from treeward.policy.beam import Beam
from treeward.policy.compile_learning import compile_learning_ahead
from treeward.state.replay_aside import Replay
from treeward.store.base import EventStore, User
from treeward.store.copy import is_incomplete, mark_served
from treeward.store.memory import MemoryStore
from treeward.tree.item_tree import ItemTree


class Explorer:
    """Recommends items and learns from feedback. Safe to call from several threads.

    Parameters
    ----------
    catalogue
        The items.
    tree
        Their tree; by default one is built from the catalogue's vectors.
    policy
        How to explore; `Beam` with LinUCB by default. A policy with shared state is refused: a user's state must follow
        from the user's own events and those of the crowd.
    store
        Where events live; a `MemoryStore` by default.
    repeats
        Whether an item may be shown to a user again; a number: after that many others.
    on_repeat
        What another reward for the same decision does. ``"reject"``: an error; ``"max"``: the larger counts; ``"sum"``:
        different rewards add up (even beyond `reward_range`), and the same one again counts as a retry; ``"last"``: the
        latest counts. The same reward again never changes anything.
    reward_range
        The least and the largest legal reward.
    seed
        Where draws come from. By default the store's secret, so that they cannot be predicted.
    exposures
        ``"needed"``: exposures are recorded only if an item may not be shown again; ``"all"``: always, with their
        propensities, which off-policy estimates need; see `log`.
    exposed_within
        Seconds until exposures are safe in the store; None: they are safe when `recommend` returns.
    window
        Seconds after a decision in which feedback counts; None: always.
    learns
        False: rewards are recorded, but never change a decision.
    counts
        Count how often every item was shown and what it earned; see `Inspection.item_counts`. The events in the store
        are counted first, which takes a moment if there are many.
    cold
        Without a crowd, the score of an added item is raised by `cold` / sqrt(1 + times shown), in units of reward,
        until it was shown 100 times.
    spare
        Free places for added items, as a share of the items of each leaf; 0: none until the first change.
    where
        A condition that an item must fulfil to be shown, in every call, as in `recommend`: ``pl.col("stock") > 0``. A
        change of the column, by `add`, is effective at once.
    memory
        Bytes for the states of recently active users; other users are replayed from their events when needed. Long
        histories take more: 12 bytes per event of a user in memory.
    crowd
        True: users also learn from each other, see `Crowd`. A `Crowd`, fitted to a log or saved before, is what that
        begins with. False: every user is learned alone. A policy with a fixed `Prior`, or with learned features, always
        learns users alone.
    half_life
        Days after which a reward counts half as much for the crowd; None: it always counts fully.
    publishes
        Whether editions of the crowd are made automatically, as rewards are recorded; False: by `publish`.
    progress
        Called with (stage, done, total) as events are counted.

    Examples
    --------
    >>> from treeward.data.synthetic import synthetic_catalogue
    >>> explorer = Explorer(synthetic_catalogue(1_000, dim=8, seed=0), seed=0)
    >>> [d] = explorer.recommend(["ada"])
    >>> d.user, d.slot, d.propensity > 0
    ('ada', 0, True)
    >>> explorer.feedback({d.id: 1.0})[d.id], explorer.feedback({d.id: 1.0})[d.id]
    ('recorded', 'duplicate')
    >>> len(explorer.recommend(["ada", "bob"], n=3))
    6
    """

    @checks.checked("Explorer")
    def __init__(
        self,
        catalogue: Catalogue,
        tree: ItemTree | None = None,
        policy: Policy | None = None,
        store: EventStore | None = None,
        *,
        repeats: bool | int = True,
        on_repeat: OnRepeat = "reject",
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: Seed | None = None,
        exposures: Literal["needed", "all"] = "needed",
        exposed_within: NotNegative | None = None,
        window: Positive | None = None,
        learns: bool = True,
        counts: bool = False,
        cold: NotNegative = 0.1,
        spare: Annotated[float, checks.Number(low=0, high=10)] = 0.0,
        where: Where | None = None,
        memory: checks.Count = 1 << 30,
        crowd: bool | Crowd = True,
        half_life: Positive | None = None,
        publishes: bool = True,
        progress: Progress | None = None,
    ) -> None:
        once, rest = checks.repeats("Explorer", repeats)
        if rest >= len(catalogue):
            raise InvalidArgument("Explorer", "repeats", f"fewer than the {len(catalogue)} items", repeats)
        limits, runtime = checked_range(reward_range), Runtime()
        self.store: EventStore = MemoryStore() if store is None else store
        policy = Beam() if policy is None else policy
        _check(policy, self.store)
        compile_learning_ahead(policy)
        self._current, self._publishes = Current(runtime.lock()), publishes
        keeper = keeper_for(crowd, policy, catalogue, self.store, half_life, self._current, runtime)
        if keeper is not None:
            keeper.begin(progress or silent)
            # The crowd knows how uncertain new items are: they need no other bonus.
            policy, cold = replace(policy, prior=keeper.base), 0.0
        self.policy, self.crowd_keeper = policy, keeper
        setup = Setup(policy, self.store, once, rest, seed, memory, cold, where, keeper)
        spare, page = spare or (SPARE if catalogue.gone else 0.0), first_page(self.store, catalogue)
        self._current.snapshot = Snapshot(setup, catalogue, tree, spare=spare, page=page, progress=progress)
        self._current.snapshot.filters.base(None, None)  # refuses a condition that does not fit the columns
        mark_served(self.store)
        self._item_counts = item_counts = ItemCounts(runtime) if counts else None
        if item_counts is not None:
            item_counts.add_all(self.store, progress or silent)
        self.rewards = Rewards(
            self._current, self.store, on_repeat, limits, window, learns, item_counts, keeper, runtime
        )  # fmt: skip
        records = exposures == "all" or once
        self._deciding = Deciding(self.store, self.rewards.ids, records, exposed_within, item_counts, runtime)
        self.changes = CatalogueChanges(self._current, setup, (catalogue, page), self._deciding.shown, runtime)
        self.changes.catch_up()
        # A replica begins with the others' edition, and publishes when it is its turn.
        if keeper is not None and (publishes or not self.store.shared or keeper.latest is None):
            keeper.publish()
        if item_counts is not None:
            self._current.snapshot.set_shown(lambda numbers: item_counts.read(numbers)[0])

    def __repr__(self) -> str:
        return f"Explorer({len(self):,} items, {self.policy.name}, {self.store!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return how many items may be shown."""
        return len(self._snapshot)

    def __contains__(self, item: Id) -> bool:
        """Return whether an item may be shown."""
        return item in self._snapshot

    def close(self) -> None:
        """Close the store."""
        with self._current.lock:
            self.store.close()

    @property
    def catalogue(self) -> Catalogue:
        """The items, including removed ones; a row keeps its number until the next `refit` or `rebuild`."""
        return self._snapshot.catalogue

    @property
    def tree(self) -> ItemTree:
        """The tree that the policy searches, as it was last built; `inspect.sizes` counts what is in it now."""
        return self._snapshot.tree

    @property
    def inspect(self) -> Inspection:
        """What is known, for pages, services and checks. It reads one snapshot, even after that was replaced."""
        return Inspection(self._snapshot, self._current.lock, self.rewards, self._item_counts)

    @property
    def _snapshot(self) -> Snapshot:
        return self._current.snapshot

    # --- deciding ----------------------------------------------------------------------------------------------------

    def recommend(
        self,
        users: Sequence[User],
        n: int = 1,
        *,
        exclude: Exclude | None = None,
        allow: Iterable[Id] | None = None,
        where: Where | None = None,
        diverse: bool = False,
        context: Context | None = None,
    ) -> list[Decision]:
        """Choose `n` different items for each user; an unknown user is a cold start, not an error.

        Each of the n items is a separate decision with the policy's whole budget of scores: n decisions cost n budgets.
        Nothing is learned between them, and no item is repeated.

        Parameters
        ----------
        users
            Different users, strings or integers.
        n
            Decisions per user: first the n of the first user, then those of the second, and so on.
        exclude
            Item ids that must not be shown, to all of the users or by user. Unknown ids are ignored.
        allow
            Only these item ids may be shown. Unknown ids are ignored.
        where
            Only items whose columns in the catalogue fulfil this: ``{"country": "SE"}``, ``{"country": ["SE", "NO"]}``,
            ``{"price": {"max": 10}}``, several of them, or a polars expression.
        diverse
            Spread each user's n items over the tree: no two from one leaf before every other leaf was used.
        context
            The context of the request: ``{"device": "phone", "hour": 9}``; the policy's features say what is legal.

        Raises
        ------
        NothingLeft
            If fewer than n items may be shown to one of the users. Then nothing is decided for any user.
        """
        owner = "Explorer.recommend"
        who = checks.users(owner, users)
        n = checks.integer(owner, "n", n, low=1, high=1 << SLOT_BITS)
        keeper, current = self.crowd_keeper, self._current
        if keeper is not None and self._publishes:
            keeper.publish_if_due(len(current.snapshot.decider.positions))
        with current.lock:
            snapshot = current.snapshot
            if n > len(snapshot.decider.positions):
                raise NothingLeft(f"{n} items were asked for, but there are only {len(snapshot.decider.positions)}")
            if not who:
                return []
            made = self._deciding.recommend(snapshot, who, n, Request(exclude, allow, where, diverse, context))
        if self._deciding.flushes:
            self.store.flush()
        return self._deciding.described(made)

    def has_at_hand(self, user: User) -> bool:
        """Return whether a user's state is in memory, or is computed in no time; see `prepare`."""
        return self._snapshot.decider.states.has_at_hand(user)

    def prepare(self, users: Collection[User]) -> None:
        """Compute the states of users who are not in memory, while other threads recommend.

        `recommend` would do it as well, but other calls wait for that.
        """
        snapshot = self._current.snapshot
        states = snapshot.decider.states
        absent = [user for user in dict.fromkeys(users) if not states.has_at_hand(user)]
        if absent:
            replay = Replay(states, absent)
            with self._current.lock:
                if snapshot is self._current.snapshot:
                    replay.finish()

    def preview(
        self,
        user: User,
        n: int = 1,
        *,
        exclude: Exclude | None = None,
        allow: Iterable[Id] | None = None,
        where: Where | None = None,
        diverse: bool = False,
        context: Context | None = None,
    ) -> list[Decision]:
        """Choose items for a user as `recommend` does, without recording that they were shown."""
        [who] = checks.users("Explorer.preview", [user])
        with self._current.lock:
            snapshot = self._snapshot
            most = min(len(snapshot.decider.positions), 1 << SLOT_BITS)
            n = checks.integer("Explorer.preview", "n", n, low=1, high=most)
            made = self._deciding.preview(snapshot, who, n, Request(exclude, allow, where, diverse, context))
        return self._deciding.described(made)

    def adopt(
        self, user: User, items: Sequence[Id], *, context: Context | None = None, epoch: int | None = None
    ) -> list[Decision]:
        """Treat items that another system chose for a user as decisions, so that feedback to them is learned from.

        They have no mean, width and path, and a propensity of 1: this explorer could not have chosen otherwise.

        With `epoch`, `user` is a name as of that epoch of the store: if they were merged since, the items are recorded
        for the user they became; if they were forgotten, `UnknownDecision` is raised.
        """
        [who] = checks.users("Explorer.adopt", [user])
        if isinstance(items, str) or not isinstance(items, Collection) or not 0 < len(items) <= 1 << SLOT_BITS:
            raise InvalidArgument("Explorer.adopt", "items", "a list of at least one item", items)
        with self._current.lock:
            made = self._deciding.adopt(self._snapshot, who, items, context, epoch)
        if self._deciding.flushes:
            self.store.flush()
        return self._deciding.described(made)

    # --- learning ----------------------------------------------------------------------------------------------------

    def feedback(self, rewards: Mapping[str, float]) -> dict[str, Outcome]:
        """Record rewards by decision id, in any order, at any time, and as often as you like.

        All of them are safe when this returns, or none if it raises.

        Returns
        -------
        dict
            For each id: ``"recorded"``; ``"duplicate"`` if it is known already; ``"changed"`` if it changed an earlier
            reward (see `on_repeat`).

        Raises
        ------
        UnknownDecision
            For an id that was not made here, or whose user was forgotten.
        FeedbackConflict
            For a reward that differs from the decision's earlier one, if repeats are rejected.
        """
        if not isinstance(rewards, Mapping):
            raise InvalidArgument("Explorer.feedback", "rewards", "a mapping from decision ids to rewards", rewards)
        return self.rewards.record(rewards)

    def ingest(self, interactions: Interactions, *, unknown: Literal["error", "skip"] = "error") -> Ingested:
        """Record a log of earlier events, so that its users are not cold starts.

        An event counts as if a decision had led to its item. The same log ingested twice counts twice. Only the users
        of the log learn from it. The crowd learns from decisions, and from a log by `Crowd.fit`: a log of clicks does
        not say what was not clicked.

        Parameters
        ----------
        interactions
            The log; its events are ordered by time, if it has times.
        unknown
            What to do about items that the catalogue does not have.
        """
        owner = "Explorer.ingest"
        if not isinstance(interactions, Interactions):
            raise InvalidArgument(owner, "interactions", "an Interactions", type(interactions).__name__)
        skip = checks.one_of(owner, "unknown", unknown, ("error", "skip")) == "skip"
        if not interactions.users.dtype.is_integer():
            checks.users(owner, interactions.users.unique().cast(pl.String).to_list())
        with self._current.lock:
            snapshot = self._snapshot
            positions = snapshot.decider.positions
            latest = np.flatnonzero(positions.place_of_row >= 0)  # every item's latest row
            ids, numbers = snapshot.catalogue.ids[latest], positions.number_of_row[latest]
        made = events_of_log(interactions, ids, numbers, self.rewards.limits, skip)
        with self._current.lock:
            self.store.extend(made.users, made.counts, made.events)
            if self._item_counts is not None:
                self._item_counts.add(made.events)
        return Ingested(len(made.events), len(made.users), made.skipped)

    def release(self, user: User) -> None:
        """Discard a user's state in memory; their next call replays their events."""
        [who] = checks.users("Explorer.release", [user])
        with self._current.lock:
            self._snapshot.decider.states.drop(who)

    def forget(self, user: User) -> int:
        """Erase a user: events, state, open decisions. Return how many events there were."""
        [who] = checks.users("Explorer.forget", [user])
        with self._moving(), self._current.lock:
            self._snapshot.decider.states.drop(who)
            events = self.store.move(who, None)
            if self._item_counts is not None:
                self._item_counts.add(events, -1)
            if self.crowd_keeper is not None:
                self.crowd_keeper.forget(who, events)
        self.store.flush()
        return len(events)

    def merge(self, anonymous: User, known: User) -> int:
        """Give one user's events to another, as at login; return how many.

        They count as if they came after the other's. Feedback to earlier decisions of the first user goes to the
        second. If the first user returns, they are a new user.
        """
        [source], [target] = checks.users("Explorer.merge", [anonymous]), checks.users("Explorer.merge", [known])
        if source == target:
            raise InvalidArgument("Explorer.merge", "known", "another user than the anonymous one", known)
        with self._moving(), self._current.lock:
            moved = len(self.store.move(source, target))
            if self.crowd_keeper is not None:
                self.crowd_keeper.merged(source, target)
            self._snapshot.decider.states.drop(source)
        self.store.flush()
        return moved

    def _moving(self) -> AbstractContextManager[object]:
        """Prevent editions of the crowd while a user is half erased or half merged."""
        return nullcontext() if self.crowd_keeper is None else self.crowd_keeper.moving

    @property
    def crowd(self) -> Crowd | None:
        """What all users taught, as of the latest edition; None where every user is learned alone."""
        return None if self.crowd_keeper is None else self.crowd_keeper.crowd

    def publish(self) -> int:
        """Let all rewards so far count for all users, and return the number of the crowd's new edition.

        This happens automatically after a number of rewards: 50, or a five-hundredth of all. A service does it in the
        background instead, about every second.

        Raises
        ------
        InvalidArgument
            If every user is learned alone.
        """
        if self.crowd_keeper is None:
            raise InvalidArgument("Explorer.publish", "crowd", "True: every user is learned alone", False)
        return self.crowd_keeper.publish()

    # --- the items ---------------------------------------------------------------------------------------------------

    def add(self, items: Catalogue) -> int:
        """Add items, or new versions of items, and return how many. They can be recommended when this returns.

        Each takes a place in the leaf nearest to its vector. Columns that the catalogue does not have are refused;
        columns that `items` does not have are null. The store keeps the items, for the next start and for replicas.
        """
        return self.changes.add(items)

    def update(self, ids: Sequence[Id], vectors: ArrayLike) -> int:
        """Give items other vectors, and return how many; everything else about them stays.

        Users' events with these items count, from now on, as if the items had always had these vectors.
        """
        return self.changes.update(ids, vectors)

    def remove(self, ids: Sequence[Id]) -> int:
        """Remove items, and return how many existed. None is recommended once this has returned.

        Unknown ids are ignored. Users' events with removed items still count, and so does feedback to them.
        """
        return self.changes.remove(ids)

    def refit(self) -> None:
        """Split leaves that are too large and join those that are too small.

        The old tree is used until the new one is ready. Removed items without events are forgotten.
        """
        self.changes.refit()

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Build a new tree of the present items.

        The old tree is used until the new one is ready. Users are then replayed from their events at their next call.
        Removed items without events are forgotten.
        """
        self.changes.rebuild(progress=progress)

    def save(self, items: StrPath, tree: StrPath) -> None:
        """Write the present catalogue and tree to two new folders, for another process to continue with."""
        self.changes.save(items, tree)

    # --- looking back ------------------------------------------------------------------------------------------------

    def log(self) -> pl.DataFrame:
        """Return every recorded decision: user, item, row, slot, propensity, exact, adopted, reward, context.

        Adopted: another system chose the item, as for users held out or from a caller's fallback (see `adopt`); its
        propensity says nothing, and estimates leave it out. Null: there is no reward, or no context. Where some users
        are strings and some integers, integers are written ``int:1``. Needs ``exposures="all"`` or ``repeats=False``,
        from before the decisions were made. Items that the catalogue does not have are left out. `off_policy` and
        `write_open_bandit` take it from here.
        """
        return self.inspect.log()

    def explain(
        self,
        decision: Decision | str,
        *,
        exclude: Exclude | None = None,
        allow: Iterable[Id] | None = None,
        where: Where | None = None,
        diverse: bool = False,
    ) -> Explanation:
        """Return how a decision, or the id of one, was made, by deciding again with what was known then.

        If the call had filters, or was to be `diverse`, give the same again. An adopted decision has no steps.
        Decisions for a user who was merged with another since raise `UnknownDecision`: what was known then is mixed
        with more.
        """
        return self.inspect.explain(decision, exclude=exclude, allow=allow, where=where, diverse=diverse)


def _check(policy: Policy, store: EventStore) -> None:
    """Refuse a policy or a store that an explorer cannot be made of."""
    if not isinstance(store, EventStore):
        raise InvalidArgument("Explorer", "store", "an EventStore, such as MemoryStore()", store)
    if is_incomplete(store):
        raise StoreError(f"{store!r}: a copy that lacks events; `treeward store copy` finishes it")
    if policy.shared_state or not policy.replayable:
        rule = "one whose state of a user follows from that user's events"
        why = "shares state between users" if policy.shared_state else "asks users questions"
        raise InvalidArgument("Explorer", "policy", rule, f"{policy.name}, which {why}")
