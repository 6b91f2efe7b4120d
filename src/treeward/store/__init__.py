"""Where events live. Knows events, never a policy."""

from treeward.store.base import EventStore, User
from treeward.store.memory import MemoryStore

STORES: dict[str, type[EventStore]] = {"memory": MemoryStore}

__all__ = ["STORES", "EventStore", "MemoryStore", "User"]
