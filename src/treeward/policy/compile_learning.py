"""Small jobs that make numba compile what learns from events: for `treeward warm`, and for a second process."""

import numpy as np

from treeward.core.compile_ahead import compile_ahead
from treeward.data.catalogue import Catalogue
from treeward.engine.layout import empty_state
from treeward.engine.learn import replay_items
from treeward.engine.learn_paths import replay_paths
from treeward.engine.replay import Events, apply_events
from treeward.policy.base import Policy
from treeward.policy.beam import Beam
from treeward.policy.hcb import HCB
from treeward.tree.item_tree import ItemTree


def learn_from_items() -> None:
    """Compile the learning of policies that teach items only."""
    _learn(Beam())


def learn_on_paths() -> None:
    """Compile the learning of policies that teach the nodes above an item too."""
    _learn(HCB())


def compile_learning_ahead(policy: Policy) -> None:
    """Begin to compile what `policy` learns with in a second process, if it is not on disk."""
    if isinstance(policy, Beam):
        compile_ahead(learn_from_items, replay_items)
    else:
        compile_ahead(learn_on_paths, replay_paths)


def _learn(policy: Policy) -> None:
    shop = Catalogue(range(4), np.eye(4, dtype=np.float32))
    # A tree of categories: building one compiles kernels that the first process needs at the same time.
    plan = policy.plan(ItemTree.from_categories(shop.vectors, [0, 0, 1, 1]), shop)
    event = np.full(1, -1, dtype=np.int32)
    events = Events(np.zeros(1, dtype=np.uint8), event, event, np.zeros(1))
    apply_events(plan, empty_state(plan, 1, 0), np.zeros(1, dtype=np.int64), np.array([0, 1]), events)
