"""Where events live. Knows events, never a policy."""

from treeward.store.base import EventStore, User
from treeward.store.events import EVENT
from treeward.store.heads import Head
from treeward.store.memory import MemoryStore
from treeward.store.sqlite import SQLiteStore
from treeward.store.written import Added, WrittenStore

STORES: dict[str, type[EventStore]] = {"memory": MemoryStore, "sqlite": SQLiteStore}

__all__ = ["EVENT", "STORES", "Added", "EventStore", "Head", "MemoryStore", "SQLiteStore", "User", "WrittenStore"]
