"""Who became whom: users that were forgotten or merged, so that their open decisions find the right one, or nobody."""

from hashlib import blake2b
from typing import NamedTuple

from treeward.store.users import User, spelled


class Move(NamedTuple):
    """From some epoch on, somebody is somebody else."""

    at: int
    """The epoch in which it happened."""
    target: User | None
    """Who they are now; None: nobody."""
    since: int
    """The epoch since which that is who is meant."""


class Moves:
    """Moves by sealed name: what is kept of somebody forgotten does not tell who they were.

    Parameters
    ----------
    secret
        What names are sealed with.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret, self.epoch = secret, 0
        self._of: dict[bytes, list[Move]] = {}
        self._become: dict[User, set[bytes]] = {}
        self.latest: list[tuple[bytes, Move]] = []
        """The moves of all whom the last one concerned, to be written down in place of what there is of them."""

    def __len__(self) -> int:
        return len(self._of)

    def listed(self) -> list[tuple[bytes, Move]]:
        """Return all moves; a name's in the order they happened."""
        return [(sealed, move) for sealed, moves in sorted(self._of.items()) for move in moves]

    def load(self, sealed: bytes, move: Move) -> None:
        """Take in a move that was written down; a name's in the order they happened."""
        self._of.setdefault(sealed, []).append(move)
        if move.target is not None:
            self._become.setdefault(move.target, set()).add(sealed)

    def add(self, user: User, target: User | None) -> None:
        """Begin an epoch in which somebody is somebody else, or nobody, and so are all who had become them."""
        self.epoch += 1
        mine, concerned = self._seal(user), self._become.pop(user, set())
        for sealed in concerned:
            self._of[sealed] = [
                Move(at, target, self.epoch) if now == user else Move(at, now, since)
                for at, now, since in self._of[sealed]
            ]
            if target is not None:
                self._become.setdefault(target, set()).add(sealed)
        self._of.setdefault(mine, []).append(Move(self.epoch, target, self.epoch))
        if target is not None:
            self._become.setdefault(target, set()).add(mine)
        self.latest = [(sealed, move) for sealed in (*concerned, mine) for move in self._of[sealed]]

    def resolve(self, user: User, epoch: int) -> User | None:
        """Return who a user of that epoch is now."""
        now: User | None = user
        while now is not None and self._of:
            later = [move for move in self._of.get(self._seal(now), []) if move.at > epoch]
            if not later:
                break
            _, now, epoch = later[0]
        return now

    def _seal(self, user: User) -> bytes:
        """Return a name for a user that does not tell who they are."""
        return blake2b(spelled(user), digest_size=16, key=self.secret).digest()
