"""Where events are kept. Knows events, never a policy."""

from treeward.core import registry
from treeward.core.registry import Registry
from treeward.store.base import EventStore, Status, User
from treeward.store.events import EVENT
from treeward.store.memory import Change, MemoryStore
from treeward.store.sqlite import SQLiteStore
from treeward.store.write_through import WriteThroughStore

STORES: Registry[type[EventStore]] = Registry(registry.STORES)

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
