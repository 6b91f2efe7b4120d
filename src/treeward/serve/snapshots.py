"""Which items, tree, prior and features are served: those of the settings, until a swap or a rebuild chooses others.

The choice is kept in the store, where every replica finds it at its start and within two seconds of a change. It is
ignored by a service whose settings have changed since it was made.
"""

from dataclasses import replace
from pathlib import Path

import msgspec

from treeward.core.errors import InvalidArgument, StoreVersion
from treeward.serve.settings import Settings
from treeward.store.base import EventStore

_NOTE = "snapshot"


class Snapshot(msgspec.Struct, frozen=True):
    """Paths of what recommendations are made from."""

    items: str
    tree: str = ""
    """Empty: built from the items when they are loaded."""
    prior: str = ""
    features: str = ""

    @classmethod
    def of(cls, settings: Settings) -> "Snapshot":
        """Return the snapshot that settings name."""
        return cls(*map(_absolute, (settings.items, settings.tree, settings.prior, settings.features)))

    def into(self, settings: Settings) -> Settings:
        """Return settings that name this snapshot."""
        return replace(settings, items=self.items, tree=self.tree, prior=self.prior, features=self.features)


def _absolute(path: str) -> str:
    if "\0" in path:
        raise InvalidArgument("snapshot", "path", "one without null characters", path)
    return str(Path(path).resolve()) if path else ""


class Choice(msgspec.Struct, frozen=True):
    """The snapshot that is served, the one before, and the one in the settings when that was chosen."""

    now: Snapshot
    before: Snapshot
    settings: Snapshot

    def after(self, snapshot: Snapshot) -> "Choice":
        """Return the choice of another snapshot; the same one again leaves the one before as it is."""
        return self if snapshot == self.now else Choice(snapshot, self.now, self.settings)

    def back(self) -> Snapshot:
        """Return the snapshot that was served before."""
        if self.before == self.now:
            raise InvalidArgument("snapshot", "back", "used after another snapshot was served", "there was none")
        return self.before

    def named(self, items: str, tree: str, prior: str, features: str) -> Snapshot:
        """Return the snapshot of a request; if it names no items, whatever it does not name stays."""
        if not (items or tree or prior or features):
            raise InvalidArgument("snapshot", "items", "a saved catalogue, or a file of item vectors", "nothing")
        given, now = Snapshot(*map(_absolute, (items, tree, prior, features))), self.now
        if items:
            return given
        return Snapshot(now.items, given.tree or now.tree, given.prior or now.prior, given.features or now.features)

    def keep(self, store: EventStore) -> None:
        """Note the choice in the store, for all replicas."""
        store.metadata.put({_NOTE: msgspec.json.encode(self)})


def choice_of(store: EventStore, settings: Settings) -> Choice:
    """Return what to serve over a store."""
    asked, found = Snapshot.of(settings), store.metadata.get(_NOTE)
    if found is not None:
        try:
            made = msgspec.json.decode(found, type=Choice)
        except msgspec.DecodeError as error:
            raise StoreVersion(f"{store!r}: its choice of a snapshot is of another version ({error})") from error
        if made.settings == asked:
            return made
    return Choice(asked, asked, asked)
