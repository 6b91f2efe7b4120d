"""What a store holds besides events: what it takes for them to mean the same in another."""

from typing import Any, NamedTuple, Self

import polars as pl

from treeward.store.moves import Move


class Head(NamedTuple):
    """The keys and numbers of a store."""

    secret: bytes
    epoch: int
    moves: list[tuple[bytes, Move]]
    """Who became whom, by sealed name."""
    items: pl.Series
    """Item ids, in the order of their numbers."""
    snapshots: list[str]
    """Digests of trees, in the order of their numbers."""
    begun: int
    """How often the store was begun with."""
    notes: dict[str, bytes]
    unfinished: bool = False
    """Whether events are still to come from the store this is a copy of; nobody is served from it then."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it; a head with many items is as long as their ids."""
        made = self._asdict() | {
            "secret": self.secret.hex(),
            "moves": [(sealed.hex(), *move) for sealed, move in self.moves],
            "items": self.items.to_list(),
            "notes": {name: note.hex() for name, note in self.notes.items()},
        }
        return made

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> Self:
        """Return the head that `plain` made that of."""
        items = plain["items"]
        changed: dict[str, Any] = {
            "secret": bytes.fromhex(plain["secret"]),
            "moves": [(bytes.fromhex(sealed), Move(*move)) for sealed, *move in plain["moves"]],
            "items": pl.Series("id", items, dtype=None if items else pl.String),
            "notes": {name: bytes.fromhex(note) for name, note in plain["notes"].items()},
        }
        return cls(**(plain | changed))
