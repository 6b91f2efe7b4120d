"""The settings of a service, from a TOML file, the environment and flags, in this order."""

# ruff: noqa: RUF009  (`_of` makes a field, which is no default)

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec

from treeward.core import checks, compile_ahead
from treeward.core.checks import Check, Count, Natural, NotNegative, Number, Positive, Whole
from treeward.core.errors import InvalidArgument
from treeward.data.column_roles import ITEM_ROLES
from treeward.store.opening import file_of, is_database, without_password

PREFIX = "TREEWARD_"
CLIENT_KEY = "TREEWARD_KEY"
"""The key that commands send to a service."""
_OTHERS = (CLIENT_KEY, compile_ahead.SWITCH)
"""Variables with the prefix that are no settings of a service."""
ROLES = ("read", "write", "admin")
"""What a key may do; each role includes those before it."""
SHORTEST_KEY = 32
_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _of(about: str, default: Any = None, **more: Any) -> Any:
    return field(default=default, metadata={"about": about}, **more)


@dataclass(frozen=True)
class Existing(Check):
    """A path that exists, or none."""

    what: str
    folder: bool = False

    def describe(self) -> str:
        """Return the rule in words."""
        return f"a {self.what} that exists"

    def check(self, owner: str, parameter: str, value: Any) -> str:
        """Return the path, or raise `InvalidArgument`."""
        if value and not (Path(value).is_dir() if self.folder else Path(value).exists()):
            raise InvalidArgument(owner, parameter, self.describe(), value)
        return str(value)


class Repeats(Check):
    """Whether an item may be shown again, or after how many others."""

    def describe(self) -> str:
        """Return the rule in words."""
        return "True, False, or a number of other items, from 1 to 1000"

    def check(self, owner: str, parameter: str, value: Any) -> Any:
        """Return the value, or raise `InvalidArgument`."""
        checks.repeats(owner, value)
        return value


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A caller, known by the SHA-256 of their key; settings may name a file with the key instead."""

    name: str
    sha256: str = ""
    role: Literal["read", "write", "admin"] = "write"
    file: str = ""

    def hashed(self) -> "Key":
        """Return the key with the hash of what its file has, if it names one. No error contains what is in it."""
        if not self.file:
            return self
        if self.sha256:
            raise InvalidArgument("serve", "keys", "with either sha256 or file, not both", self.name)
        key = secret_of(self.file, f"keys (file of {self.name})").strip()
        if len(key) < SHORTEST_KEY or not _KEY.fullmatch(key):
            rule = f"at least {SHORTEST_KEY} letters, digits, - and _, as `treeward key new` makes them"
            raise InvalidArgument("serve", f"keys (file of {self.name})", rule, f"{len(key)} characters")
        return msgspec.structs.replace(self, sha256=sha256(key.encode()).hexdigest(), file="")


@dataclass(frozen=True)
class Settings:
    """Every setting of a service; their descriptions are the table in the docs."""

    items: str = _of("the catalogue: a saved one, .csv, .tsv, .parquet or .npy", "")
    columns: tuple[str, ...] = _of('roles of the columns of a table of items: `["id=sku", "vector=emb"]`', ())
    tree: Annotated[str, Existing("saved tree")] = _of("a saved tree; by default one is built", "")
    store: str = _of(
        "where events are kept: a file, `memory`, or `postgresql://user@host/database`", "treeward.db", repr=False
    )
    store_password_file: str = _of("file with the password of the database in `store`; none by default", "")
    policy: str = _of(
        "how to explore: `beam`, `phcb`, `hcb`, `cb-leaf`, `cb-category`, `flat`, or your own: `file.py:Class`", "beam"
    )
    prior: Annotated[str, Existing("saved prior")] = _of(
        "what the crowd starts with: a prior from `treeward prior fit`; none by default", ""
    )
    crowd: bool = _of("learn from all users: one user's rewards also help all others", True)
    publish_every: Positive = _of(
        "seconds between editions of the crowd; longer if making one takes over a tenth of that", 1.0
    )
    half_life: NotNegative = _of(
        "days after which a reward counts half as much in the crowd; 0: rewards never fade", 0.0
    )
    features: Annotated[str, Existing("saved features")] = _of(
        "saved features, such as those of `treeward embed neural`; none by default", ""
    )
    bandit: str = _of("`linucb`, `thompson`, `epsilon`, or your own: `file.py:Class`", "linucb")
    strength: NotNegative = _of("the bandit's alpha, v or epsilon; 0: its own default", 0.0)
    budget: Natural = _of("scores computed per decision; 0: the policy's own default", 0)
    repeats: Annotated[bool | int, Repeats()] = _of(
        "whether an item may be shown to a user again; a number: after that many others", False
    )
    on_repeat: Literal["reject", "max", "sum", "last"] = _of("what another reward for a decision does", "reject")
    reward_low: float = _of("the smallest possible reward", 0.0)
    reward_high: float = _of("the largest possible reward", 1.0)
    window: NotNegative = _of("seconds during which feedback on a decision counts; 0: always", 0.0)
    default_reward: float | None = _of(
        "reward of a decision without feedback when its window ends; none by default", None
    )
    exposures: Literal["background", "strict"] = _of(
        "exposures are on disk within 50 ms, or before the reply", "background"
    )
    reports: Annotated[str, Existing("folder", folder=True)] = _of(
        "folder whose pages (`report.html` of experiments) the page lists; none by default", ""
    )
    mode: Literal["online", "frozen", "apprentice"] = _of(
        "learn; record rewards without learning; or serve the caller's own items and learn from them", "online"
    )
    holdout: Annotated[float, Number(low=0, below=1)] = _of(
        "share of users who get the caller's fallback, or popular items", 0.0
    )
    where: str = _of("condition for an item to be shown, in SQL: `stock > 0 and country in ('SE', 'NO')`", "")
    cold: NotNegative = _of("without a crowd: bonus on the score of an added item until it was shown; 0: none", 0.1)
    spare: Annotated[float, Number(low=0, high=10)] = _of(
        "free places for items to be added, as a share of those there are", 0.125
    )
    rebuild: NotNegative = _of("share of items that may be added or removed before the tree is rebuilt; 0: never", 0.2)
    snapshots: str = _of("folder for rebuilt trees; by default next to the store, if that is a file", "")
    personalizer: bool = _of("also answer the requests of Azure Personalizer, under `/personalizer`", False)
    host: str = _of("address to listen on; anything but loopback needs a key", "127.0.0.1")
    port: Annotated[int, Whole(0, 65535)] = _of("0: any free one", 8000)
    admin_port: Annotated[int, Whole(-1, 65535)] = _of(
        "port of metrics and admin routes, on loopback; 0: any free one; -1: none", 8001
    )
    tls_cert: Annotated[str, Existing("file")] = _of(
        "certificate chain in PEM: `port` is then answered by https; none by default", ""
    )
    tls_key: Annotated[str, Existing("file")] = _of("its private key in PEM, without a password", "")
    keys: tuple[Key, ...] = _of("tables with `name`, `role`, and `sha256` or `file`; see `treeward key new`", ())
    workers: Annotated[int, Whole(1, 256)] = _of(
        "processes behind one port; more than 1 needs a database as the store", 1
    )
    memory: Annotated[int, Whole(1, 1 << 24)] = _of("megabytes for the state of recent users", 1024)
    max_body: Count = _of("bytes of a request's body", 1 << 20)
    max_batch: Count = _of("rows of a batch, and items of a recommendation", 1000)
    max_connections: Count = _of("connections at a time", 1000)
    max_waiting: Count = _of("requests that may wait; more are answered 503", 2000)
    header_timeout: Positive = _of("seconds until a request's headers must have arrived", 10.0)
    body_timeout: Positive = _of("seconds until its body must have arrived", 10.0)
    rate: NotNegative = _of("requests per second and key; 0: no limit", 0.0)
    log: Literal["json", "off"] = _of("the access log, on stderr", "json")

    def check(self) -> None:
        """Refuse settings that cannot be served, before anything is loaded.

        Each field follows its own rule; here are those that concern more than one. `parts.check` refuses what only the
        classes that settings name can tell: importing those takes longer than a service may take to listen.
        """
        checks.validate(self, "serve")
        if not self.items:
            raise InvalidArgument("serve", "items", "the path of a catalogue", self.items)
        self.roles()
        self._check_store()
        if self.default_reward is not None and not self.window:
            raise InvalidArgument("serve", "window", "above 0 where there is a default_reward", self.window)
        self._check_keys()
        if self.personalizer and self.repeats is not True:
            rule = "True where personalizer is on: its callers rank the same actions again and again"
            raise InvalidArgument("serve", "repeats", rule, self.repeats)
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidArgument("serve", "tls_key", "given where tls_cert is, and only there", self.tls_key)

    def with_secrets(self) -> "Settings":
        """Return the same with the hashes of keys in files, and the password in the address of the store.

        The result names no such files any more.
        """
        keys = tuple(key.hashed() for key in self.keys)
        if not self.store_password_file:
            return replace(self, keys=keys)
        found = _DATABASE.fullmatch(self.store)
        if found is None:
            rule = "given only where store is postgresql://USER@HOST..., without a password"
            raise InvalidArgument("serve", "store_password_file", rule, without_password(self.store))
        password = quote(secret_of(self.store_password_file, "store_password_file"), safe="")
        return replace(self, keys=keys, store=f"{found[1]}:{password}@{found[2]}", store_password_file="")

    def roles(self) -> dict[str, str]:
        """Return the column of a table of items for each role."""
        made = dict(one.split("=", 1) for one in self.columns if "=" in one)
        if len(made) != len(self.columns) or not set(made) <= set(ITEM_ROLES):
            rule = f"each role once, as ROLE=NAME, of {', '.join(ITEM_ROLES)}"
            raise InvalidArgument("serve", "columns", rule, list(self.columns))
        return made

    def _check_store(self) -> None:
        if is_database(self.store):
            return
        if self.workers > 1:
            raise InvalidArgument("serve", "workers", "1, unless the store is postgresql://...", self.workers)
        file = file_of(self.store)
        if file is not None and not file.absolute().parent.is_dir():
            raise InvalidArgument("serve", "store", "in a folder that exists", self.store)

    def _check_keys(self) -> None:
        for key in self.keys:
            if key.file and not key.sha256:
                continue  # its file was not read
            if len(key.sha256) != 64 or not set(key.sha256) <= set("0123456789abcdef"):
                raise InvalidArgument("serve", "keys", "with sha256 in 64 hexadecimal digits", key.name)
        if len({key.name for key in self.keys}) != len(self.keys):
            raise InvalidArgument("serve", "keys", "with names that are all different", [key.name for key in self.keys])
        if not self.keys and not is_loopback(self.host):
            rule = "127.0.0.1, ::1 or localhost as long as there are no keys (treeward key new makes one)"
            raise InvalidArgument("serve", "host", rule, self.host)


_DATABASE = re.compile(r"(postgres(?:ql)?://[^:/?#@]+)@([^@]*)")
"""The address of a database with a user and no password."""


def secret_of(path: str, parameter: str) -> str:
    """Return the only line of a file. No error contains what is in it, or its path, which may be a secret."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")  # editors may begin it with a mark of the encoding
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or ("not UTF-8" if isinstance(error, UnicodeDecodeError) else "no path")
        raise InvalidArgument("serve", parameter, "a file that can be read", why) from None
    # Only \n ends a line: a password may have spaces at its ends, or other letters that separate lines.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if len(lines) != 1 or not lines[0].strip():
        raise InvalidArgument("serve", parameter, "a file of one line", f"{len(lines)} lines")
    return lines[0]


@lru_cache(maxsize=256)  # called for every request
def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_settings(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    secrets: bool = True,
) -> Settings:
    """Return checked settings. Flags overrule the environment (TREEWARD_PORT=...), which overrules the file.

    `secrets`: whether to read the files that hold keys and the password, which only a service needs.
    """
    given: dict[str, Any] = {}
    if path is not None:
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidArgument("serve", "config", "a TOML file that can be read", f"{path}: {error}") from error
    kinds = {one.name: one.type for one in fields(Settings)}
    for name in given:
        checks.one_of("serve", "config", name, kinds)
    for name, value in (os.environ if environment is None else environment).items():
        if name.startswith(PREFIX) and name not in _OTHERS:
            known = checks.one_of(
                "serve", "environment", name.removeprefix(PREFIX).lower(), [one for one in kinds if one != "keys"]
            )
            given[known] = parsed(known, value, name)
    given |= flags or {}
    made = checks.typed("serve", "settings", given, Settings)
    if secrets:
        made = made.with_secrets()
    made.check()
    return made


_SWITCHES = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def parsed(name: str, text: str, owner: str) -> Any:
    """Return the value of a setting from its text in the environment or on the command line."""
    kinds = {one.name: one.type for one in fields(Settings) if one.name != "keys"}
    checks.one_of("serve", owner, name, kinds)
    for value in (text, _SWITCHES.get(text.lower(), text)):  # `off` is a value of `log`, and false elsewhere
        try:
            return msgspec.convert(value, kinds[name], strict=False)
        except msgspec.ValidationError as error:
            why = error
    rule = checks.rule_of(kinds[name])
    raise InvalidArgument("serve", owner, f"of its type ({why})" if rule is None else rule.describe(), text) from why


def table() -> list[tuple[str, str, str]]:
    """Return name, default and description of every setting."""
    return [
        (one.name, "" if one.default in ("", (), None) else str(one.default), one.metadata["about"])
        for one in fields(Settings)
    ]
