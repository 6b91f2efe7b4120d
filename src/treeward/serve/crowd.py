"""The crowd in a service: editions are published in the background, and shown on the page."""

from random import uniform
from threading import Lock
from time import monotonic, time

import numpy as np

from treeward.explorer.estimates import item_name, node_name
from treeward.explorer.explorer import Explorer
from treeward.serve import wire

_SHARE = 10.0
"""Publishing takes at most one in this many seconds, so that a large catalogue does not occupy a core."""
_SHORTEST, _LONGEST = 0.01, 1.0
_JITTER = 0.5
"""Replicas wait longer by a random part of the time between editions, up to this: few then make the same one."""
_RISEN, _NODES = 12, 6
_WORTH_LISTING = 0.1
"""Items are listed down to this part of the largest effect."""


class Publisher:
    """Publishes an edition of an explorer's crowd every few seconds, and follows those of other replicas."""

    def __init__(self, explorer: Explorer, every: float) -> None:
        self._explorer, self._every = explorer, every
        self._lock, self._closed = Lock(), False
        self._failure = ""
        self.took = 0.0
        """Seconds it took to make the last edition."""
        self._next = monotonic() + every
        self._next_look = 0.0

    @property
    def pause(self) -> float:
        """Seconds between two calls of `tend`."""
        return min(_LONGEST, max(_SHORTEST, self._every / 2))

    @property
    def number(self) -> int:
        """Number of the present edition; 0: there is none."""
        keeper = self._explorer.crowd_keeper
        return 0 if keeper is None or keeper.latest is None else keeper.latest.number

    @property
    def problem(self) -> str:
        """Why there is no newer edition, or what was wrong with the one in the store; empty if all is well."""
        keeper = self._explorer.crowd_keeper
        return self._failure or ("" if keeper is None else keeper.problem)

    @property
    def warning(self) -> str:
        """The problem in a sentence for `/readyz`: the service goes on with the last sound edition."""
        return f"edition {self.number} stays: {self.problem}" if self.problem else ""

    def tend(self) -> bool:
        """Publish if rewards came and it is time, or follow another replica; return whether there is a new edition.

        Errors are not raised: the last edition stays, and `problem` says why.
        """
        with self._lock:
            if self._closed or self._explorer.crowd_keeper is None:
                return False
            try:
                new = self._tend()
            except Exception as error:
                self._failure = f"{type(error).__name__}: {error}"
                self._next = monotonic() + max(_LONGEST, self._every, _SHARE * self.took)
                return False
            if new:
                self._explorer.crowd_keeper.problem = ""
            if new or not self._explorer.crowd_keeper.waiting:
                self._failure = ""
            return new

    def _tend(self) -> bool:
        keeper = self._explorer.crowd_keeper
        assert keeper is not None
        remote = self._explorer.store.shared
        if remote and self._followed():
            return True
        if not keeper.waiting or monotonic() < self._next:
            return False
        begun = monotonic()
        self._explorer.publish()
        self.took = monotonic() - begun
        wait = max(self._every, _SHARE * self.took)
        self._next = monotonic() + (uniform(1.0, 1.0 + _JITTER) * wait if remote else wait)
        return True

    def _followed(self) -> bool:
        """Take over a newer edition of another replica; reading takes no larger share of time than publishing."""
        if monotonic() < self._next_look:
            return False
        begun = monotonic()
        keeper = self._explorer.crowd_keeper
        new = keeper is not None and keeper.follow()
        took = monotonic() - begun
        self._next_look = monotonic() + max(min(self._every, _LONGEST), _SHARE * took)
        if new:  # by this clock: that of another machine may differ
            self._next = max(self._next, monotonic() + uniform(1.0, 1.0 + _JITTER) * self._every)
        return new

    def close(self) -> None:
        """Finish an edition that is being written, and begin no other."""
        with self._lock:
            self._closed = True

    def measured(self) -> dict[str, float]:
        """Return the metrics of the crowd."""
        keeper = self._explorer.crowd_keeper
        now = None if keeper is None else keeper.latest
        if keeper is None or now is None:
            return dict.fromkeys(("edition", "rewards", "publish_seconds", "waiting", "age_seconds"), 0.0)
        return {
            "edition": now.number,
            "rewards": now.rewards,
            "publish_seconds": self.took,
            "waiting": keeper.waiting,
            "age_seconds": max(0.0, time() - now.time),
        }


def crowd_view(explorer: Explorer, publisher: Publisher) -> wire.CrowdView:
    """Return what was learned from all users."""
    keeper = explorer.crowd_keeper
    now = None if keeper is None else keeper.latest
    if keeper is None or now is None:
        return wire.CrowdView(False, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, "", [], [], [])
    nodes = _nodes(explorer)
    return wire.CrowdView(
        True, now.number, now.rewards, keeper.waiting, max(0.0, time() - now.time), publisher.took, now.taste.noise,
        now.mean_reward, keeper.sampled, publisher.problem, _risen(explorer), nodes[:_NODES],
        nodes[: len(nodes) - _NODES - 1 : -1] if len(nodes) > _NODES else [],
    )  # fmt: skip


def _risen(explorer: Explorer) -> list[wire.RisenItem]:
    """Return the items with the largest effects, of those that may be shown."""
    keeper, inspect = explorer.crowd_keeper, explorer.inspect
    assert keeper is not None
    assert keeper.latest is not None
    now, shop, found = keeper.latest, inspect.catalogue, list[wire.RisenItem]()
    most = max(0, len(now.effects) - 4 * _RISEN)  # some may have been removed
    order = np.argpartition(now.effects, most)[most:] if most else np.arange(len(now.effects))
    order = order[np.argsort(-now.effects[order], kind="stable")]
    for at, row in zip(order.tolist(), inspect.rows_of(now.numbers[order]).tolist(), strict=True):
        if row < 0 or not now.effects[at] > _WORTH_LISTING * now.effects[order[0]] > 0 or shop.ids[row] not in inspect:
            continue
        title = item_name(shop, row) if shop.titles is not None else None
        times, earned = float(now.times[at]), float(now.earned[at])
        effect, mean = round(float(now.effects[at]), 5), round(earned / max(times, 1e-12), 5)
        counts = inspect.item_counts(np.array([row]))
        found.append(wire.RisenItem(
            shop.ids[row], title, effect, round(times, 3), mean, int(counts.shown[0]), round(float(counts.earned[0]), 6)
        ))  # fmt: skip
        if len(found) == _RISEN:
            break
    return found


def _nodes(explorer: Explorer) -> list[wire.CrowdNode]:
    """Return the nodes at level 2, best mean first."""
    inspect = explorer.inspect
    tree, (means, offsets), size = inspect.tree, inspect.crowd_means(), inspect.sizes()
    made = [
        wire.CrowdNode(node, node_name(tree, node), int(size[node]), round(float(means[node]), 5),
                       round(float(offsets[node]), 5))
        for node in np.flatnonzero(tree.level == 2).tolist() if size[node]
    ]  # fmt: skip
    return sorted(made, key=lambda one: -one.mean)
