"""Who may call: keys by their hashes, and how often each may."""

import secrets
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest

from treeward.serve.settings import ROLES, Key


def new_key() -> tuple[str, str]:
    """Return a new key and the hash that goes into the settings."""
    key = "tw_" + secrets.token_urlsafe(32)
    return key, sha256(key.encode()).hexdigest()


class Keys:
    """Knows callers by the key they send. Without any keys, whoever reaches the service may do everything."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]
        self.open = Key("anyone", "", "admin") if not keys else None

    def find(self, header: bytes | None) -> Key | None:
        """Return whose key an Authorization header holds; every comparison takes the same time."""
        if self.open is not None:
            return self.open
        if header is None or header[:7].lower() != b"bearer ":
            return None
        given, found = sha256(header[7:].strip()).digest(), None
        for digest, key in self._keys:
            if compare_digest(digest, given):
                found = key
        return found


def allows(key: Key, role: str) -> bool:
    """Tell whether a key may do what needs a role."""
    return ROLES.index(key.role) >= ROLES.index(role)


class Buckets:
    """So many requests a second for each key, and twice as many at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._held: dict[str, tuple[float, float]] = {}

    def wait_of(self, name: str, now: float) -> float:
        """Take one request, and return 0, or return how many seconds to wait."""
        if not self._rate:
            return 0.0
        most = max(1.0, 2 * self._rate)
        level, then = self._held.get(name, (most, now))
        level = min(most, level + (now - then) * self._rate)
        if level < 1:
            self._held[name] = level, now
            return (1 - level) / self._rate
        self._held[name] = level - 1, now
        return 0.0
