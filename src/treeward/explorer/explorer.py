"""`Explorer`: recommend and learn, over a catalogue, its tree, a policy and a store of events."""

from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from time import time_ns
from typing import Literal, Self

import numpy as np
import polars as pl

from treeward.bandit.crowd import Crowd
from treeward.core import checks
from treeward.core.errors import InvalidArgument, NothingLeft, StoreError, TreewardError, UnknownId
from treeward.core.progress import Progress, silent
from treeward.data.catalogue import Catalogue, Id
from treeward.data.interactions import Interactions
from treeward.embed.features import Context
from treeward.explorer.changes import first_page
from treeward.explorer.decider import SLOT_BITS, Calls
from treeward.explorer.filters import Exclude, Where
from treeward.explorer.imported import imported
from treeward.explorer.inspection import Inspection
from treeward.explorer.ledger import Given, Ledger, Outcome
from treeward.explorer.names import users_of
from treeward.explorer.records import Decision, Explanation, Ingested
from treeward.explorer.rewards import REPEATS, checked_range
from treeward.explorer.shared import Shared, with_crowd
from treeward.explorer.snapshot import SPARE, How, Snapshot
from treeward.explorer.tally import Tally
from treeward.policy.base import Policy
from treeward.policy.beam import Beam
from treeward.policy.compile_learning import compile_learning_ahead
from treeward.store.base import EventStore, User
from treeward.store.copy import is_incomplete, mark_served
from treeward.store.events import EVENT, SHOWN, now
from treeward.store.memory import MemoryStore
from treeward.tree.item_tree import ItemTree


class Explorer(Shared):
    """Recommends items and learns from what comes of it. Safe to call from several threads.

    Parameters
    ----------
    catalogue
        The items.
    tree
        Their tree; by default one is built from the catalogue's vectors.
    policy
        How to explore; `Beam` with LinUCB by default. A policy with shared state is refused: a user's state must follow
        from the user's own events, and the crowd's.
    store
        Where events live; a `MemoryStore` by default.
    repeats
        Whether an item may be shown to a user again; a number: after so many others.
    on_repeat
        What another reward for the same decision does. ``"reject"``: an error; ``"max"``: the larger counts; ``"sum"``:
        different rewards add up (beyond `reward_range`, if they do), the same one again is taken for a retry;
        ``"last"``: the latest counts. The same reward again never changes anything.
    reward_range
        The least and the largest reward there may be.
    seed
        Where draws come from. By default the store's secret, so that they cannot be foretold.
    exposures
        ``"needed"``: what was shown is recorded only if an item may not be shown again; ``"all"``: always, with how
        likely it was, which off-policy estimates need; see `log`.
    exposed_within
        Seconds that may pass until what was shown is safe in the store; None: before `recommend` returns.
    window
        Seconds after a decision in which feedback to it counts; None: always.
    learns
        False: rewards are recorded, but change no decision, now or later.
    counts
        Keep count of how often every item was shown and what it earned; see `counts`. What the store holds is counted
        first, which takes a moment if that is much.
    cold
        Where users are learned alone, what the score of an added item gains until it was shown: `cold` / sqrt(1 + times
        shown), up to 100 times, in units of reward. 0: newcomers get nothing.
    spare
        Free places for items to come, as a share of what each leaf has; 0: none are kept until the first change.
    where
        What an item must fulfil to be shown, in every call, as `recommend` takes it: ``pl.col("stock") > 0``. A change
        of the column, by `add`, holds at once.
    memory
        Bytes for the state of the users asked for lately; the others' is rebuilt from their events when needed. Long
        histories come on top: 12 bytes an event of a user at hand.
    crowd
        True: what one user's rewards teach also helps all others, see `Crowd`; a `Crowd` that was fitted to a log, or
        saved, is where that begins. False: every user is learned alone. A policy with a fixed `Prior`, or with features
        that were learned, is left as it is.
    half_life
        Days after which a reward counts half as much to the crowd; None: it counts for ever.
    publishes
        Whether the crowd's editions come by themselves, as rewards come; False: `publish` makes them.
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

    def __init__(
        self,
        catalogue: Catalogue,
        tree: ItemTree | None = None,
        policy: Policy | None = None,
        store: EventStore | None = None,
        *,
        repeats: bool | int = True,
        on_repeat: Literal["reject", "max", "sum", "last"] = "reject",
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: int | None = None,
        exposures: Literal["needed", "all"] = "needed",
        exposed_within: float | None = None,
        window: float | None = None,
        learns: bool = True,
        counts: bool = False,
        cold: float = 0.1,
        spare: float = 0.0,
        where: Where | None = None,
        memory: int = 1 << 30,
        crowd: bool | Crowd = True,
        half_life: float | None = None,
        publishes: bool = True,
        progress: Progress | None = None,
    ) -> None:
        owner = "Explorer"
        policy = Beam() if policy is None else policy
        _checked(catalogue, tree, policy, store)
        compile_learning_ahead(policy)
        self._within = None if exposed_within is None else checks.number(owner, "exposed_within", exposed_within, low=0)
        once, rest = checks.repeats(owner, repeats)
        if rest >= len(catalogue):
            raise InvalidArgument(owner, "repeats", f"fewer than the {len(catalogue)} items", repeats)
        self._records = checks.one_of(owner, "exposures", exposures, ("needed", "all")) == "all" or once
        seed = None if seed is None else checks.integer(owner, "seed", seed, low=0)
        memory = checks.integer(owner, "memory", memory, low=1)
        cold = checks.number(owner, "cold", cold, low=0)
        spare = checks.number(owner, "spare", spare, low=0)
        self.store: EventStore = MemoryStore() if store is None else store
        self._begun_with = catalogue
        policy, keeper = with_crowd(policy, catalogue, self.store, crowd, half_life, progress or silent)
        cold = cold if keeper is None else 0.0  # what is new is uncertain: the crowd says how much
        self.policy, self._crowd, self._publishes = policy, keeper, checks.flag(owner, "publishes", publishes)
        self._how = How(policy, self.store, once, rest, seed, memory, cold, where, keeper)
        spare = spare or (SPARE if catalogue.gone else 0.0)
        self._first_page = first_page(self.store, catalogue)
        self._shown = np.zeros(0, dtype=np.bool_)
        self._now = Snapshot(self._how, catalogue, tree, spare=spare, page=self._first_page, progress=progress)
        self._now.filters.base(None, None)  # which refuses a condition that does not fit the columns
        mark_served(self.store)
        self._lock, self._changing = RLock(), RLock()
        self._tally = Tally() if checks.flag(owner, "counts", counts) else None
        if self._tally is not None:
            self._tally.add_all(self.store, progress or silent)
        self.ledger = Ledger(
            self.store,
            self._number_of,
            checks.one_of(owner, "on_repeat", on_repeat, REPEATS),
            checked_range(reward_range),
            None if window is None else checks.number(owner, "window", window, above=0),
            checks.flag(owner, "learns", learns),
            self._tally,
            keeper,
        )
        self.catch_up()
        # A replica begins with the others' edition, and publishes when it is its turn.
        if keeper is not None and (self._publishes or not self.store.shared or keeper.now is None):
            self.publish()
        if self._tally is not None:
            self._now.met(lambda numbers: self._tally.look(numbers)[0] if self._tally is not None else numbers)

    def __repr__(self) -> str:
        return f"Explorer({len(self):,} items, {self.policy.name}, {self.store!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            self.store.close()

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
        """Choose `n` different items for each user; somebody unknown is a cold start, not an error.

        Every one of the n is a decision of its own, explored under the policy's whole budget of scores: n decisions
        cost n budgets. Nothing is learned between them, but none repeats an item of those before it.

        Parameters
        ----------
        users
            Different users, strings or integers.
        n
            Decisions for each, in this order: the first user's n, the second user's n, and so on.
        exclude
            Item ids not to be shown, to all of the users, or by user. Ids the catalogue does not have are passed over.
        allow
            Only these item ids may be shown. Ids the catalogue does not have are passed over.
        where
            Only items whose columns in the catalogue fulfil this: ``{"country": "SE"}``, ``{"country": ["SE", "NO"]}``,
            ``{"price": {"max": 10}}``, all of them together, or a polars expression.
        diverse
            Spread each user's n over the tree: no two from one leaf before every other leaf had its turn.
        context
            What the request tells: ``{"device": "phone", "hour": 9}``; the policy's features say what it may.

        Raises
        ------
        NothingLeft
            If fewer than n items may be shown to one of the users. Then nothing was decided for anybody.
        """
        owner = "Explorer.recommend"
        who = users_of(owner, users)
        n = checks.integer(owner, "n", n, low=1, high=1 << SLOT_BITS)
        if n > len(self.catalogue):
            raise NothingLeft(f"{n} items were asked for, but there are only {len(self.catalogue)}")
        if self._crowd is not None and self._publishes:
            self._publish_if_due(self._crowd)
        with self._lock:
            closed = self._now.closed(who, exclude, allow, where, diverse)
            calls = self._now.decider.decide(who, n, closed, context) if who else None
            if calls is None:
                return []
            self._take_note(calls)
            if self._records:
                self._record_shown(who, n, calls)
            made = self._described(who, n, calls)
        if self._records and self._within is None:
            self.store.flush()
        return made

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
        [who] = users_of("Explorer.preview", [user])
        n = checks.integer("Explorer.preview", "n", n, low=1, high=min(len(self.catalogue), 1 << SLOT_BITS))
        with self._lock:
            closed = self._now.closed([who], exclude, allow, where, diverse)
            return self._described([who], n, self._now.decider.decide([who], n, closed, context))

    def adopt(self, user: User, items: Sequence[Id], *, context: Context | None = None) -> list[Decision]:
        """Take items that somebody else chose for a user as decisions, so that feedback to them can be learned from.

        They have no mean, width and path, and a propensity of 1: this explorer could not have chosen otherwise.
        """
        [who] = users_of("Explorer.adopt", [user])
        if not 0 < len(items) <= 1 << SLOT_BITS:
            raise InvalidArgument("Explorer.adopt", "items", "a list of at least one item", items)
        with self._lock:
            rows = [self.catalogue.row(item) for item in items]
            missing = next((item for item in items if item not in self), None)
            if missing is not None:
                raise UnknownId(f"the item {missing!r} was taken away")
            calls = self._now.decider.adopted(who, np.array(rows), context)
            if self._records:
                self._record_shown([who], len(rows), calls)
            made = self._described([who], len(rows), calls)
        if self._records and self._within is None:
            self.store.flush()
        return made

    def _record_shown(self, who: list[User], n: int, calls: Calls) -> None:
        made = calls.decisions
        events = np.zeros(len(made), dtype=EVENT)
        events["item"], events["node"] = self._now.decider.roster.numbers[made["item"]], made["node"]
        events["nonce"] = np.repeat(calls.nonce, n) + np.tile(np.arange(n), len(who))
        events["kind"], events["snapshot"], events["time"], events["own"] = SHOWN, calls.snapshot, now(), made["own"]
        events["reward"] = np.where(made["exact"], made["propensity"], -made["propensity"])
        self.store.append([user for user in who for _ in range(n)], events, within=self._within or 0.0)
        self._now.decider.seats.passed(who, n)
        if self._tally is not None:
            self._tally.add(events)

    def _described(self, who: list[User], n: int, calls: Calls) -> list[Decision]:
        """Return decisions as their caller sees them."""
        now, epoch, snapshot = time_ns() // 1_000_000, self.store.identities.epoch, calls.snapshot
        rows = calls.decisions["item"]
        numbers, items = self._now.decider.roster.numbers[rows].tolist(), self._ids_of(rows)
        nonces, known, seal = calls.nonce.tolist(), calls.events.tolist(), self.ledger.sealer.seal
        out, tree, policy = [], self._now.decider.snapshot, "explore" if calls.explored else "adopted"
        for at, made in enumerate(calls.decisions.tolist()):
            _, _, _, node, mean, width, propensity, exact, scores, _, bold, own = made
            i, slot = divmod(at, n)
            user = who[i]
            id = seal(user, snapshot, numbers[at], node, slot, nonces[i], known[i], epoch, now, calls.edition, own)
            path, edition = self._now.path(node), calls.edition
            out.append(
                Decision(
                    id, user, items[at], slot, mean, width, propensity, exact, path, scores, bold, edition, tree, policy
                )
            )  # fmt: skip
        return out

    @property
    def inspect(self) -> Inspection:
        """What is known, for pages, services and checks: reads the present snapshot, also after it was replaced."""
        return Inspection(self._now, self._lock, self.ledger, self._tally)

    @property
    def catalogue(self) -> Catalogue:
        """The items, including removed ones; a row keeps its number until the next `refit` or `rebuild`."""
        return self._now.catalogue

    @property
    def tree(self) -> ItemTree:
        """The tree that the policy searches, as it was last built; `inspect.sizes` counts what is in it now."""
        return self._now.tree

    def __len__(self) -> int:
        """Return how many items may be shown."""
        return len(self._now)

    def __contains__(self, item: Id) -> bool:
        """Return whether an item may be shown."""
        return item in self._now

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

    def feedback(self, rewards: Mapping[str, float]) -> dict[str, Outcome]:
        """Say what came of decisions: rewards by decision id, in any order, any time later, as often as one likes.

        It is recorded when this returns, and all of it or nothing. A decision counts from now on, whenever it was made.

        Returns
        -------
        dict
            For each id: ``"recorded"``; ``"duplicate"`` if there was nothing new in it; ``"changed"`` if it changed an
            earlier reward (see `on_repeat`).

        Raises
        ------
        UnknownDecision
            For an id that was not made here, or whose user was forgotten.
        FeedbackConflict
            For another reward than the decision has, if repeats are rejected.
        """
        owner = "Explorer.feedback"
        if not isinstance(rewards, Mapping):
            raise InvalidArgument(owner, "rewards", "a mapping from decision ids to rewards", rewards)
        return self.ledger.settle(rewards)

    def feedback_each(self, rows: Sequence[tuple[Given, float]]) -> list[Outcome | TreewardError]:
        """Say what came of many decisions, each for itself: return an outcome or an error a row.

        A row has a decision id or, where that got lost, a user and an item: it is then for the latest decision to show
        that item to that user which has no reward (if exposures are recorded), or else stands for itself.
        """
        return self.ledger.settle_each(rows)

    def ingest(self, interactions: Interactions, *, unknown: Literal["error", "skip"] = "error") -> Ingested:
        """Take in a log of earlier events, so that its users do not start from nothing.

        An event counts through its item: it teaches every level as if a decision had led there. Taking in the same log
        twice counts it twice. It teaches its users alone: the crowd learns from decisions, and from a log by
        `Crowd.fit`, because a log of clicks does not say what was not clicked.

        Parameters
        ----------
        interactions
            Who did what; in the order of their times, or else of the log.
        unknown
            What to do about items the catalogue does not have.
        """
        owner = "Explorer.ingest"
        if not isinstance(interactions, Interactions):
            raise InvalidArgument(owner, "interactions", "an Interactions", type(interactions).__name__)
        skip = checks.one_of(owner, "unknown", unknown, ("error", "skip")) == "skip"
        if not interactions.users.dtype.is_integer():
            users_of(owner, interactions.users.unique().cast(pl.String).to_list())
        with self._lock:
            now = self._now
            here = np.flatnonzero(now.decider.roster.place_of >= 0)  # every item's latest row
            ids, numbers = now.catalogue.ids[here], now.decider.roster.numbers[here]
        made = imported(interactions, ids, numbers, self.ledger.limits, skip)
        with self._lock:
            self.store.extend(made.users, made.counts, made.events)
            if self._tally is not None:
                self._tally.add(made.events)
        return Ingested(len(made.events), len(made.users), made.skipped)


def _checked(
    catalogue: Catalogue, tree: ItemTree | None, policy: Policy, store: EventStore | None, owner: str = "Explorer"
) -> None:
    """Refuse what an explorer cannot be made of."""
    for parameter, value, kind in (("catalogue", catalogue, Catalogue), ("policy", policy, Policy)):
        if not isinstance(value, kind):
            raise InvalidArgument(owner, parameter, f"a {kind.__name__}", value)
    if tree is not None and not isinstance(tree, ItemTree):
        raise InvalidArgument(owner, "tree", "an ItemTree, or None to build one", tree)
    if store is not None and not isinstance(store, EventStore):
        raise InvalidArgument(owner, "store", "an EventStore, such as MemoryStore()", store)
    if store is not None and is_incomplete(store):
        raise StoreError(f"{store!r}: a copy that lacks events; `treeward store copy` finishes it")
    if policy.shared_state or not policy.replayable:
        rule = "one whose state of a user follows from that user's events"
        why = "shares state between users" if policy.shared_state else "asks users questions"
        raise InvalidArgument(owner, "policy", rule, f"{policy.name}, which {why}")
