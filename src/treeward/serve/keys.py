"""Who may call: keys and their roles, requests per second, and, without keys, only this machine."""

import re
import secrets
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from time import monotonic

from treeward.serve.replies import Headers, Refused
from treeward.serve.settings import ROLES, Key, Settings, is_loopback

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:]+))(?::[0-9]*)?", re.IGNORECASE)
"""A host (an IPv6 address in brackets), and perhaps a port."""


def new_key() -> tuple[str, str]:
    """Return a new key, and its hash for the settings."""
    key = "tw_" + secrets.token_urlsafe(32)
    return key, sha256(key.encode()).hexdigest()


class Keys:
    """Finds the caller by the key that a request carries. Without any keys, every caller may do everything."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]
        self.open = Key("anyone", "", "admin") if not keys else None

    def find(self, header: bytes | None) -> Key | None:
        """Return the key in an Authorization header, if it is known; every comparison takes the same time."""
        if self.open is not None:
            return self.open
        if header is None or header[:7].lower() != b"bearer ":
            return None
        given, found = sha256(header[7:].strip()).digest(), None
        for digest, key in self._keys:
            if compare_digest(digest, given):
                found = key
        return found


class RateLimit:
    """A number of requests per second for each key, and twice as many at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._held: dict[str, tuple[float, float]] = {}

    def wait_of(self, name: str, now: float) -> float:
        """Take one request and return 0, or return how many seconds to wait."""
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


class Access:
    """Decides for every request whether it is let in, by the keys and the rate of the settings."""

    def __init__(self, settings: Settings) -> None:
        self.keys, self._rate, self._limit = Keys(settings.keys), settings.rate, RateLimit(settings.rate)
        self.draining = False
        """Whether the service is shutting down."""

    def check_host(self, headers: Headers) -> None:
        """Refuse, where there are no keys, a host name that may have been pointed here (DNS rebinding)."""
        if self.keys.open is not None and headers.host is not None and not _is_local(headers.host):
            told = "without keys, only 127.0.0.1 and localhost are answered to; behind a proxy, set keys"
            raise Refused(403, "host", told)

    def admit(self, headers: Headers, role: str) -> str:
        """Return the name of a caller who may now do what needs a role; refuse every other."""
        key = self.key_of(headers, role)
        self.let_in(key)
        return key.name

    def key_of(self, headers: Headers, role: str) -> Key:
        """Return the key of a caller who may do what needs a role; refuse every other. Only the headers decide."""
        key = self.keys.find(headers.authorization)
        if self.keys.open is not None:
            self.check_host(headers)
            _check_origin(headers)
        if key is None:
            raise Refused(401, "key", "send a key: Authorization: Bearer ...", ((b"www-authenticate", b"Bearer"),))
        if ROLES.index(key.role) < ROLES.index(role):
            raise Refused(403, "role", f"this needs a key with the role {role}")
        return key

    def let_in(self, key: Key) -> None:
        """Refuse a request that comes too soon after others with the same key, or while the service shuts down."""
        wait = self._limit.wait_of(key.name, monotonic()) if self._rate else 0.0
        if wait:
            after = ((b"retry-after", b"%d" % max(1, round(wait + 0.5))),)
            raise Refused(429, "rate", f"more than {self._rate:g} requests per second", after)
        if self.draining:
            raise Refused(503, "draining", "the service is shutting down", ((b"retry-after", b"1"),))


def _check_origin(headers: Headers) -> None:
    """Refuse, where there are no keys, what a page of another site may have made a local browser send."""
    origin = headers.origin
    if headers.site == b"cross-site" or (origin is not None and not _is_local(origin.partition(b"://")[2])):
        raise Refused(403, "origin", "without keys, pages of other sites are not answered; behind a proxy, set keys")


def _is_local(host: bytes) -> bool:
    parts = _HOST.fullmatch(host.decode("latin-1").lower())
    return parts is not None and is_loopback(parts[1] or parts[2])
