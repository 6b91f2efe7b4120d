"""Which items, tree and prior are served: those of the settings, until others take their place.

The choice is a note in the store: every replica finds it there, at its start and within a second or two of a change. A
service that is started with other settings than the choice was made for goes by its settings.
"""

from dataclasses import replace
from pathlib import Path

import msgspec

from treeward.core.errors import InvalidArgument, StoreVersion
from treeward.serve.settings import Settings
from treeward.store.base import EventStore

_NOTE = "snapshot"


class Snapshot(msgspec.Struct, frozen=True):
    """What recommendations are made of."""

    items: str
    tree: str = ""
    """Empty: grown from the items when they are loaded."""
    prior: str = ""
    features: str = ""

    @classmethod
    def of(cls, settings: Settings) -> "Snapshot":
        """Return what settings ask for."""
        return cls(*map(_absolute, (settings.items, settings.tree, settings.prior, settings.features)))

    def into(self, settings: Settings) -> Settings:
        """Return settings that ask for this."""
        return replace(settings, items=self.items, tree=self.tree, prior=self.prior, features=self.features)


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if path else ""


class Choice(msgspec.Struct, frozen=True):
    """What is served, what was before, and what the settings said when that was decided."""

    now: Snapshot
    before: Snapshot
    settings: Snapshot

    def after(self, snapshot: Snapshot) -> "Choice":
        """Return the choice of another; of the same again, with the same way back."""
        return self if snapshot == self.now else Choice(snapshot, self.now, self.settings)

    def back(self) -> Snapshot:
        """Return what was served before."""
        if self.before == self.now:
            raise InvalidArgument("snapshot", "back", "used after another snapshot was served", "there was none")
        return self.before

    def named(self, items: str, tree: str, prior: str, features: str) -> Snapshot:
        """Return a snapshot that somebody names; where the items stay, so does what is not named."""
        if not (items or tree or prior or features):
            raise InvalidArgument("snapshot", "items", "a saved catalogue, or a file of item vectors", "nothing")
        given, now = Snapshot(*map(_absolute, (items, tree, prior, features))), self.now
        if items:
            return given
        return Snapshot(now.items, given.tree or now.tree, given.prior or now.prior, given.features or now.features)

    def keep(self, store: EventStore) -> None:
        """Write it down for everybody."""
        store.metadata.put({_NOTE: msgspec.json.encode(self)})


def choice_of(store: EventStore, settings: Settings) -> Choice:
    """Return what is to be served over a store."""
    asked, found = Snapshot.of(settings), store.metadata.get(_NOTE)
    if found is not None:
        try:
            made = msgspec.json.decode(found, type=Choice)
        except msgspec.DecodeError as error:
            raise StoreVersion(f"{store!r}: its choice of a snapshot is of another version ({error})") from error
        if made.settings == asked:
            return made
    return Choice(asked, asked, asked)
