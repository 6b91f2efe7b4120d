"""Users, and their identity over time: open decisions of forgotten or merged users must find the right user."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from secrets import token_bytes
from typing import NamedTuple

from treeward.core.errors import InvalidArgument

User = int | str
PREFIX = "identity/"
_OWNED = "owned/"


def spelled(user: User) -> bytes:
    """Return a user as bytes: no two are spelled the same, not even 7 and "7".

    Examples
    --------
    >>> spelled(7), spelled("7")
    (b'i7', b's7')
    """
    return b"s" + user.encode(errors="surrogatepass") if isinstance(user, str) else b"i%d" % user


def user_of(name: bytes) -> User:
    """Return the user who is spelled so."""
    return int(name[1:]) if name[:1] == b"i" else str(name[1:], "utf-8", "surrogatepass")


def check_users(owner: str, users: Sequence[User]) -> None:
    """Refuse users that are neither strings nor integers."""
    if not all(isinstance(user, str | int) for user in users):
        raise InvalidArgument(owner, "users", "strings or integers", users)


def check_utf8(owner: str, users: Sequence[User]) -> None:
    """Refuse names that cannot be written in UTF-8."""
    for user in users:
        if isinstance(user, str):
            try:
                user.encode()
            except UnicodeEncodeError as error:
                raise InvalidArgument(owner, "users", "strings that can be written in UTF-8", user) from error


class _Move(NamedTuple):
    """A user became another one."""

    at: int
    """The epoch in which it happened."""
    target: User | None
    """The user they are now; None: they were forgotten."""
    since: int
    """The epoch from which on later moves of the target count."""


class Identities:
    """Moves by hashed name: what is kept of a user who was forgotten does not tell who they were.

    Callers read `epoch` before they call `resolve`, and give it to `EventStore.append`.

    Parameters
    ----------
    metadata
        A store's: the keys ``secret``, ``epoch`` and ``identity/...`` are read.
    """

    def __init__(self, metadata: Mapping[str, bytes]) -> None:
        self.secret = metadata["secret"]
        """Seals decision ids and names; made once, the same as long as the store lives."""
        self.epoch = int(metadata["epoch"])
        """How many users were forgotten or merged so far."""
        self._moves: dict[str, tuple[_Move, ...]] = {}
        self._become: dict[User, set[str]] = {}
        """The keys of all who are this user now."""
        for key, value in metadata.items():
            if key.startswith(PREFIX):
                self._set(key, tuple(_Move(*move) for move in json.loads(value)))

    @staticmethod
    def first() -> dict[str, bytes]:
        """Return the metadata that a new store begins with."""
        return {"secret": token_bytes(32), "epoch": b"0"}

    def resolve(self, user: User, epoch: int) -> User | None:
        """Return who a user of that epoch is now: the same, the one they were merged with, or None if forgotten."""
        now: User | None = user
        while now is not None and self._moves:
            later = [move for move in self._moves.get(self._key(now), ()) if move.at > epoch]
            if not later:
                break
            _, now, epoch = later[0]
        return now

    def moved_since(self, user: User, epoch: int) -> bool:
        """Return whether a name was forgotten or merged after an epoch: then its events are others now.

        `resolve` does not tell: a user who was merged with another, and then back, has their name again.
        """
        return bool(self._moves) and any(move.at > epoch for move in self._moves.get(self._key(user), ()))

    def owner_key(self, user: User, key: str = "") -> str:
        """Return the key whose presence says that the value of another key is about a user.

        Without `key`, what all such keys of the user begin with.
        """
        return f"{_OWNED}{self._hash(user)}/{key}"

    def move(self, user: User, target: User | None, owned: Iterable[str] = ()) -> dict[str, bytes | None]:
        """Begin an epoch in which a user is another, or none, and so are all who had become them.

        Return the metadata that changed, None for a key to remove. Written in place of the former, it leaves no trace
        of the user's name. `owned` are the keys that begin with the user's `owner_key`: the values that they are about
        go to the target, or are made empty.
        """
        epoch, mine, concerned = self.epoch + 1, self._key(user), self._become.pop(user, set())
        for key in concerned:
            self._set(key, tuple(_Move(move.at, target, epoch) if move.target == user else move
                                 for move in self._moves[key]))  # fmt: skip
        self._set(mine, (*self._moves.get(mine, ()), _Move(epoch, target, epoch)))
        # Last: a caller that reads the new epoch must resolve by the new moves.
        self.epoch = epoch
        changed: dict[str, bytes | None] = {key: json.dumps(self._moves[key]).encode() for key in (*concerned, mine)}
        start = self.owner_key(user)
        for mark in owned:
            what = mark.removeprefix(start)
            changed[mark] = None
            changed[what if target is None else self.owner_key(target, what)] = b""
        return {**changed, "epoch": b"%d" % epoch}

    def _set(self, key: str, moves: tuple[_Move, ...]) -> None:
        self._moves[key] = moves
        for move in moves:
            if move.target is not None:
                self._become.setdefault(move.target, set()).add(key)

    def _key(self, user: User) -> str:
        return PREFIX + self._hash(user)

    def _hash(self, user: User) -> str:
        return blake2b(spelled(user), digest_size=16, key=self.secret).hexdigest()
