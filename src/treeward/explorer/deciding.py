"""`Deciding`: recommends items by a snapshot, records what was shown, and describes it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core.errors import UnknownDecision, UnknownId
from treeward.data.catalogue import Id
from treeward.embed.features import Context
from treeward.explorer.decider import Call
from treeward.explorer.decision_ids import DecisionIds
from treeward.explorer.item_counts import ItemCounts
from treeward.explorer.records import Decision
from treeward.explorer.runtime import Runtime
from treeward.explorer.snapshot import Request, Snapshot
from treeward.store.base import EventStore, User
from treeward.store.events import EVENT, SHOWN


class Made(NamedTuple):
    """Decisions that were made, as arrays."""

    snapshot: Snapshot
    users: list[User]
    n: int
    """How many for each user."""
    call: Call
    numbers: NDArray[np.int32]
    """The store's number of each item."""
    epoch: int
    """The store's epoch in which the users had these names."""
    policy: str
    """As in `Decision`."""


class Deciding:
    """Recommends, previews and adopts items: callers hold the lock. `described` needs none.

    Parameters
    ----------
    store
        Where exposures are recorded.
    ids
        Makes decision ids.
    records
        Whether exposures are recorded ...
    within
        ... and within how many seconds they must be safe; None: when the call returns, see `flush`.
    item_counts
        Counts exposures, if there are counts.
    runtime
        The clock.
    """

    def __init__(
        self,
        store: EventStore,
        ids: DecisionIds,
        records: bool,
        within: float | None,
        item_counts: ItemCounts | None,
        runtime: Runtime,
    ) -> None:
        self._store, self._ids, self._records, self._within = store, ids, records, within
        self._item_counts, self._runtime = item_counts, runtime
        self.flushes = records and within is None
        """Whether the store must be flushed after a call, without the lock."""
        self._shown = np.zeros(0, dtype=np.bool_)

    def shown(self) -> NDArray[np.bool_]:
        """Return which items were shown since the start, by number."""
        return self._shown

    def recommend(self, snapshot: Snapshot, users: list[User], n: int, request: Request) -> Made:
        """Choose `n` items for each user, and record them."""
        made = self._decide(snapshot, users, n, request)
        snapshot.shown(made.call.decisions["place"])
        most = int(made.numbers.max()) + 1
        if most > len(self._shown):
            self._shown = np.pad(self._shown, (0, most + most // 8 - len(self._shown)))
        self._shown[made.numbers] = True
        if self._records:
            self._record(made)
        return made

    def preview(self, snapshot: Snapshot, user: User, n: int, request: Request) -> Made:
        """Choose `n` items for a user, and record nothing."""
        return self._decide(snapshot, [user], n, request)

    def _decide(self, snapshot: Snapshot, users: list[User], n: int, request: Request) -> Made:
        call = snapshot.decider.decide(users, n, snapshot.closed(users, request), request.context)
        numbers = snapshot.decider.positions.number_of_row[call.decisions["item"]]
        return Made(snapshot, users, n, call, numbers, self._store.identities.epoch, "explore")

    def adopt(
        self, snapshot: Snapshot, user: User, items: Sequence[Id], context: Context | None, since: int | None
    ) -> Made:
        """Record items that another system chose, for the user who had a name in the epoch `since`."""
        rows = np.array([snapshot.catalogue.row(item) for item in items])
        removed = next((item for item in items if item not in snapshot), None)
        if removed is not None:
            raise UnknownId(f"the item {removed!r} was removed")
        numbers = snapshot.decider.positions.number_of_row[rows]
        while True:  # again if users were forgotten or merged in between
            epoch = self._store.identities.epoch
            who = user if since is None else self._store.identities.resolve(user, since)
            if who is None:
                raise UnknownDecision("the user was forgotten meanwhile")
            call = snapshot.decider.adopt(who, rows, context)
            made = Made(snapshot, [who], len(rows), call, numbers, epoch, "adopted")
            if not self._records or self._record(made, None if since is None else epoch):
                return made

    def _record(self, made: Made, epoch: int | None = None) -> bool:
        """Add the exposures to the store, with `epoch` only if it is still the present one; return whether it was."""
        snapshot, users, n, call, numbers, _, _ = made
        chosen = call.decisions
        events = np.zeros(len(chosen), dtype=EVENT)
        events["item"], events["node"], events["own"] = numbers, chosen["node"], chosen["own"]
        events["nonce"] = call.nonces if n == 1 else np.repeat(call.nonces, n) + np.tile(np.arange(n), len(users))
        events["kind"], events["snapshot"] = SHOWN, call.snapshot
        events["time"] = self._runtime.nanoseconds() // 1_000_000_000
        events["reward"] = np.where(chosen["exact"], chosen["propensity"], -chosen["propensity"])
        owners = users if n == 1 else [user for user in users for _ in range(n)]
        if not self._store.append(owners, events, within=self._within or 0.0, epoch=epoch).all():
            return False
        places = snapshot.decider.positions.place_of_row[chosen["item"]]
        snapshot.decider.states.add_exposures(users, places.reshape(len(users), n))
        if self._item_counts is not None:
            self._item_counts.add(events)
        return True

    def described(self, made: Made) -> list[Decision]:
        """Return decisions as records, with sealed ids; needs no lock."""
        snapshot, users, n, call, numbers, epoch, policy = made
        milliseconds = self._runtime.nanoseconds() // 1_000_000
        seal, id_at, tree = self._ids.seal, snapshot.id_at, snapshot.decider.number
        nonces, known, edition = call.nonces.tolist(), call.events.tolist(), call.edition
        path_of, out = dict[int, tuple[int, ...]](), []
        for at, (one, number) in enumerate(zip(call.decisions.tolist(), numbers.tolist(), strict=True)):
            _, row, _, node, mean, width, propensity, exact, scores, _, bold, own = one
            i, slot = divmod(at, n)
            user, path = users[i], path_of.get(node)
            if path is None:
                path = path_of[node] = snapshot.path(node)
            id = seal(user, call.snapshot, number, node, slot, nonces[i], known[i], epoch, milliseconds, edition, own)
            out.append(
                Decision(
                    id, user, id_at(row), slot, mean, width, propensity, exact, path, scores, bold, edition, tree,
                    policy,
                )
            )  # fmt: skip
        return out
