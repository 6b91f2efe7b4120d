"""`DecisionIds`: an id holds everything that feedback needs, sealed so that it cannot be forged."""

import binascii
import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from treeward.core.errors import UnknownDecision
from treeward.store.identities import User, spelled, user_of

_VERSION = 2
_HEAD = struct.Struct("<BHiiHqIIqIf")
_SEAL = 12
_LONGEST = 4096
_USUAL, _IN_URLS = b"+/", b"-_"
_TO_URLS, _FROM_URLS = bytes.maketrans(_USUAL, _IN_URLS), bytes.maketrans(_IN_URLS, _USUAL)


class SealedDecision(NamedTuple):
    """What a decision id says."""

    snapshot: int
    """The store's number of the tree."""
    item: int
    """The store's number of the item."""
    node: int
    """The node it was taken from."""
    slot: int
    call: int
    """The call's nonce; the decision's own is call + slot."""
    events: int
    """How many events of the user were known."""
    epoch: int
    """The store's epoch."""
    time: int
    """Milliseconds since 1970."""
    edition: int
    """The crowd's edition; 0: there was none."""
    own: float
    """The part of the estimate that is the user's own taste; see `store.events`."""
    user: User

    @property
    def nonce(self) -> int:
        """The decision's nonce."""
        return self.call + self.slot


class DecisionIds:
    """Seals decisions into ids and reads them back, with a secret key."""

    def __init__(self, secret: bytes) -> None:
        self._fresh = blake2b(digest_size=_SEAL, key=secret)

    def _seal(self, body: bytes) -> bytes:
        hasher = self._fresh.copy()
        hasher.update(body)
        return hasher.digest()

    def seal(self, user: User, *fields: float) -> str:
        """Return the id of a decision; `fields` are those of `SealedDecision`, without the user."""
        body = _HEAD.pack(_VERSION, *fields) + spelled(user)
        return _encoded(body + self._seal(body)).decode()

    def unseal(self, id: object) -> SealedDecision:
        """Return what an id says; raise `UnknownDecision` if it was not made with this key."""
        if not isinstance(id, str) or not id.isascii() or len(id) > _LONGEST:
            raise UnknownDecision(f"no decision has the id {_short(id)}")
        given = id.encode()
        try:
            whole = binascii.a2b_base64(given.translate(_FROM_URLS) + b"==")  # it ignores what is too much
        except binascii.Error as error:
            raise UnknownDecision(f"no decision has the id {_short(id)}") from error
        body, seal = whole[:-_SEAL], whole[-_SEAL:]
        genuine = len(body) > _HEAD.size and compare_digest(self._seal(body), seal)
        # An id has one spelling. The decoder accepts others too, but ids that look different must be different.
        if not genuine or _encoded(whole) != given:
            raise UnknownDecision(f"no decision has the id {_short(id)}")
        fields = _HEAD.unpack_from(body)
        if fields[0] != _VERSION:
            raise UnknownDecision(f"the id {_short(id)} is of a version that this treeward does not know")
        return SealedDecision._make((*fields[1:], user_of(body[_HEAD.size :])))


def _encoded(whole: bytes) -> bytes:
    """Return bytes in base64 for URLs; the functions of `base64` take twice as long, and this is called often."""
    return binascii.b2a_base64(whole, newline=False).translate(_TO_URLS).rstrip(b"=")


def _short(id: object) -> str:
    shown = repr(id)
    return shown if len(shown) <= 60 else shown[:57] + "..."
