"""Where events are kept. Knows events, never a policy."""

from treeward.store.base import EventStore, Status, User
from treeward.store.events import EVENT
from treeward.store.memory import Change, MemoryStore
from treeward.store.sqlite import SQLiteStore
from treeward.store.write_through import WriteThroughStore

STORES: dict[str, type[EventStore]] = {"memory": MemoryStore, "sqlite": SQLiteStore}

__all__ = [
    "EVENT",
    "STORES",
    "Change",
    "EventStore",
    "MemoryStore",
    "SQLiteStore",
    "Status",
    "User",
    "WriteThroughStore",
]
