"""Where events live. Knows events, never a policy."""

from treeward.store.base import EventStore, User
from treeward.store.memory import MemoryStore
from treeward.store.sqlite import SQLiteStore

STORES: dict[str, type[EventStore]] = {"memory": MemoryStore, "sqlite": SQLiteStore}

__all__ = ["STORES", "EventStore", "MemoryStore", "SQLiteStore", "User"]
