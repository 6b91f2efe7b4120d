"""How a service is set up: one table of settings, from a TOML file, the environment and flags, in this order."""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit import STRENGTHS, bandit_named
from treeward.bandit.rules import Bandit, Rule
from treeward.core import checks
from treeward.core.errors import InvalidArgument
from treeward.core.named import is_own, make
from treeward.data.catalogue import Catalogue
from treeward.data.column_roles import ITEM_ROLES
from treeward.data.tables import READERS
from treeward.explorer.filters import fulfilled
from treeward.explorer.rewards import checked_range
from treeward.policy import TREE_POLICIES, policy_named
from treeward.policy.base import Policy
from treeward.store.opening import check_file, is_database

PREFIX = "TREEWARD_"
CLIENT_KEY = "TREEWARD_KEY"
"""The key that commands send to a service; it is no setting of the service."""
ROLES = ("read", "write", "admin")
"""What a key may do: each also what those before it may."""


def _of(about: str, default: Any = None, **more: Any) -> Any:
    return field(default=default, metadata={"about": about}, **more)


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who may call, known by the SHA-256 of their key."""

    name: str
    sha256: str
    role: Literal["read", "write", "admin"] = "write"


@dataclass(frozen=True)
class Settings:
    """Everything a service can be told; the comment of each is the table in the docs."""

    items: str = _of("the catalogue: a saved one, .csv, .tsv, .parquet or .npy", "")
    columns: tuple[str, ...] = _of('of a table of items, which is what: `["id=sku", "vector=emb"]`', ())
    tree: str = _of("a saved tree; by default one is built", "")
    store: str = _of(
        "the file events live in, `memory`, or `postgresql://user@host/database`", "treeward.db", repr=False
    )
    policy: str = _of(
        "how to explore: `beam`, `phcb`, `hcb`, `cb-leaf`, `cb-category`, `flat`, or your own: `file.py:Class`", "beam"
    )
    prior: str = _of("what `treeward prior fit` wrote: what the crowd begins with; none by default", "")
    crowd: bool = _of("learn from everybody: what one user's rewards teach also helps all others", True)
    publish_every: float = _of("seconds between editions of the crowd; longer where making one takes over a tenth", 1.0)
    half_life: float = _of("days after which a reward counts half as much to the crowd; 0: it counts for ever", 0.0)
    features: str = _of("what `treeward embed neural` wrote, or other saved features; none by default", "")
    bandit: str = _of("`linucb`, `thompson`, `epsilon`, or your own: `file.py:Class`", "linucb")
    strength: float = _of("the bandit's alpha, v or epsilon; 0: its own default", 0.0)
    budget: int = _of("score computations a decision; 0: the policy's own default", 0)
    repeats: bool | int = _of("whether an item may be shown to a user again; a number: after so many others", True)
    on_repeat: Literal["reject", "max", "sum", "last"] = _of("what another reward for a decision does", "reject")
    reward_low: float = _of("the least reward there may be", 0.0)
    reward_high: float = _of("the largest", 1.0)
    window: float = _of("seconds in which feedback to a decision counts; 0: always", 0.0)
    default_reward: float | None = _of("what a decision earns if nothing came in the window; none by default", None)
    exposures: Literal["background", "strict"] = _of(
        "what was shown is on disk within 50 ms, or before the reply", "background"
    )
    reports: str = _of("folder whose pages (`report.html` of experiments) the page lists; none by default", "")
    mode: Literal["online", "frozen", "apprentice"] = _of(
        "learn; record rewards but learn nothing; or serve the caller's own item and learn beside it", "online"
    )
    holdout: float = _of("the share of users who get the caller's fallback or what is popular", 0.0)
    where: str = _of("what an item must fulfil to be shown, as SQL: `stock > 0 and country in ('SE', 'NO')`", "")
    cold: float = _of("without a crowd: what an added item gains in score until it was shown; 0: nothing", 0.1)
    spare: float = _of("free places for items to come, as a share of those there are", 0.125)
    rebuild: float = _of("the share of items that may come or go until the tree is clustered anew; 0: never", 0.2)
    snapshots: str = _of("folder for what was clustered anew; by default beside the store, if that is a file", "")
    host: str = _of("where to listen; anything but loopback needs a key", "127.0.0.1")
    port: int = _of("0: any free one", 8000)
    admin_port: int = _of("where metrics and admin routes listen, on loopback; 0: any free one; -1: nowhere", 8001)
    keys: tuple[Key, ...] = _of("tables with `name`, `role` and `sha256`; see `treeward key new`", ())
    workers: int = _of("processes behind one port; more than 1 needs a store that is a database", 1)
    memory: int = _of("megabytes for the state of the users asked for lately", 1024)
    max_body: int = _of("bytes of a request's body", 1 << 20)
    max_batch: int = _of("rows of a batch, and items of a recommendation", 1000)
    max_connections: int = _of("connections at a time", 1000)
    max_waiting: int = _of("requests that may wait; more are answered 503", 2000)
    header_timeout: float = _of("seconds until a request's headers must be there", 10.0)
    body_timeout: float = _of("seconds until its body must be there", 10.0)
    rate: float = _of("requests a second and key; 0: any", 0.0)
    log: Literal["json", "off"] = _of("the access log, on stderr", "json")

    def check(self) -> None:
        """Refuse what cannot be, before anything is loaded."""
        owner = "serve"
        checks.typed(owner, "settings", asdict(self), Settings)
        if not self.items:
            raise InvalidArgument(owner, "items", "the path of a catalogue", self.items)
        self.roles()
        self._check_rule()
        checked_range((self.reward_low, self.reward_high))
        for name, what in (
            ("tree", "saved tree"),
            ("prior", "saved prior"),
            ("features", "saved features"),
            ("reports", "folder"),
        ):
            path = getattr(self, name)
            if path and not (Path(path).is_dir() if name == "reports" else Path(path).exists()):
                raise InvalidArgument(owner, name, f"a {what} that exists", path)
        checks.repeats(owner, self.repeats)
        checks.integer(owner, "budget", self.budget, low=0)
        self._check_store()
        checks.number(owner, "holdout", self.holdout, low=0, below=1)
        if self.default_reward is not None:
            checks.number(owner, "default_reward", self.default_reward, low=self.reward_low, high=self.reward_high)
            if not self.window:
                raise InvalidArgument(owner, "window", "above 0 where there is a default_reward", self.window)
        for name in ("window", "rate", "strength", "cold", "spare", "rebuild", "half_life"):
            checks.number(owner, name, getattr(self, name), low=0)
        for name in ("header_timeout", "body_timeout", "publish_every"):
            checks.number(owner, name, getattr(self, name), above=0)
        for name in ("max_body", "max_batch", "max_connections", "max_waiting"):
            checks.integer(owner, name, getattr(self, name), low=1)
        checks.integer(owner, "memory", self.memory, low=1, high=1 << 24)
        checks.integer(owner, "port", self.port, low=0, high=65535)
        checks.integer(owner, "admin_port", self.admin_port, low=-1, high=65535)
        self._check_keys()
        self.condition()

    def condition(self) -> pl.Expr | None:
        """Return what items must fulfil to be shown; None: nothing."""
        try:
            return pl.sql_expr(self.where) if self.where else None
        except pl.exceptions.PolarsError as error:
            rule = "a condition in SQL on the catalogue's columns, such as stock > 0"
            raise InvalidArgument("serve", "where", rule, f"{self.where} ({str(error).splitlines()[0]})") from error

    def load_items(self) -> Catalogue:
        """Return the items: a table with its columns mapped, or what was saved."""
        table = Path(self.items).suffix.lower() in READERS  # after a rebuild it is a saved catalogue
        return Catalogue.load(self.items, columns=self.roles() if table else None)

    def fulfilling(self, catalogue: Catalogue) -> NDArray[np.bool_]:
        """Return which items fulfil `where`; refuse one that does not fit the catalogue's columns."""
        condition = self.condition()
        try:
            return np.ones(len(catalogue), np.bool_) if condition is None else fulfilled(catalogue, condition)
        except InvalidArgument as error:
            rule = f"a condition on the columns {', '.join(catalogue.table.columns)}"
            raise InvalidArgument("serve", "where", rule, f"{self.where} ({error.value})") from error

    def make_bandit(self) -> Bandit:
        """Return the bandit."""
        kind = bandit_named("serve", "bandit", self.bandit)
        if self.strength and is_own(self.bandit):
            raise InvalidArgument(
                "serve", "strength", "0 where the bandit is your own: its class says it", self.strength
            )
        given = {STRENGTHS[self.bandit]: self.strength} if self.strength else {}
        made: Bandit = make("serve", "bandit", self.bandit, kind, **given)
        return made

    def make_policy(self, **aids: object) -> Policy:
        """Return the policy, with its bandit and budget; `aids` are its prior and features."""
        kind = policy_named("serve", "policy", self.policy, TREE_POLICIES)
        if kind.shared_state or not kind.replayable:
            raise InvalidArgument(
                "serve", "policy", "one whose state of a user follows from that user's events", self.policy
            )
        given = {**aids, "budget": self.budget} if self.budget else aids
        made: Policy = make("serve", "policy", self.policy, kind, self.make_bandit(), **given)
        return made

    def roles(self) -> dict[str, str]:
        """Return which column of a table of items is what."""
        made = dict(one.split("=", 1) for one in self.columns if "=" in one)
        if len(made) != len(self.columns) or not set(made) <= set(ITEM_ROLES):
            rule = f"each role once, as ROLE=NAME, of {', '.join(ITEM_ROLES)}"
            raise InvalidArgument("serve", "columns", rule, list(self.columns))
        return made

    def _check_rule(self) -> None:
        rule = self.make_policy().bandit.rule(1)
        if not isinstance(rule, Rule):
            raise InvalidArgument("serve", "bandit", "a class whose rule(dim) returns a Rule", f"{rule!r:.80}")

    def _check_store(self) -> None:
        shared, workers = is_database(self.store), checks.integer("serve", "workers", self.workers, low=1, high=256)
        if workers > 1 and not shared:
            raise InvalidArgument("serve", "workers", "1, unless the store is postgresql://...", workers)
        if not shared:
            check_file(self.store)
        if self.store != "memory" and not shared and not Path(self.store).absolute().parent.is_dir():
            raise InvalidArgument("serve", "store", "in a folder that exists", self.store)

    def _check_keys(self) -> None:
        for key in self.keys:
            if len(key.sha256) != 64 or not set(key.sha256) <= set("0123456789abcdef"):
                raise InvalidArgument("serve", "keys", "with sha256 in 64 hexadecimal digits", key.name)
        if len({key.name for key in self.keys}) != len(self.keys):
            raise InvalidArgument("serve", "keys", "with names that are all different", [key.name for key in self.keys])
        if not self.keys and not is_loopback(self.host):
            rule = "127.0.0.1, ::1 or localhost as long as there are no keys (treeward key new makes one)"
            raise InvalidArgument("serve", "host", rule, self.host)


@lru_cache(maxsize=256)  # asked for every request
def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_settings(
    path: Path | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Return settings: flags before the environment (TREEWARD_PORT=...) before the file; checked."""
    told: dict[str, Any] = {}
    if path is not None:
        try:
            told = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidArgument("serve", "config", "a TOML file that can be read", f"{path}: {error}") from error
    kinds = {one.name: one.type for one in fields(Settings)}
    for name in told:
        checks.one_of("serve", "config", name, kinds)
    for name, value in (os.environ if environment is None else environment).items():
        if name.startswith(PREFIX) and name != CLIENT_KEY:
            known = checks.one_of(
                "serve", "environment", name.removeprefix(PREFIX).lower(), [one for one in kinds if one != "keys"]
            )
            told[known] = parsed(known, value, name)
    told |= {name: value for name, value in (flags or {}).items() if value is not None}
    made = checks.typed("serve", "settings", told, Settings)
    made.check()
    return made


def parsed(name: str, text: str, owner: str) -> Any:
    """Return a setting from how it is written in the environment or on the command line."""
    kinds = {one.name: one.type for one in fields(Settings) if one.name != "keys"}
    checks.one_of("serve", owner, name, kinds)
    try:
        return msgspec.convert(text, kinds[name], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument("serve", owner, f"of its type ({error})", text) from error


def table() -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every setting."""
    return [
        (one.name, "" if one.default in ("", (), None) else str(one.default), one.metadata["about"])
        for one in fields(Settings)
    ]
