"""Bandits, policies, loaders and stores by name: treeward's own, and a user's: ``file.py:name`` or ``module:name``.

Adding one to treeward takes a file, and a line in one of the tables below. Nothing is imported before it is asked for,
so the command line can list all names at once.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from treeward.core.errors import InvalidArgument, TreewardError

T = TypeVar("T")

BANDITS = {
    "linucb": "treeward.bandit.rules:LinUCB",
    "thompson": "treeward.bandit.rules:Thompson",
    "epsilon": "treeward.bandit.rules:EpsilonGreedy",
}
TREE_POLICIES = {
    "flat": "treeward.policy.hcb:Flat",
    "cb-category": "treeward.policy.hcb:CBCategory",
    "cb-leaf": "treeward.policy.hcb:CBLeaf",
    "hcb": "treeward.policy.hcb:HCB",
    "phcb": "treeward.policy.phcb:PHCB",
    "beam": "treeward.policy.beam:Beam",
}
"""Policies that walk a tree with a posterior per user; they can be served."""
BASELINES = {
    "hmab": "treeward.policy.baselines.hmab:HMAB",
    "ictr": "treeward.policy.baselines.ictr:ICTR",
    "conucb": "treeward.policy.baselines.conucb:ConUCB",
    "context-free": "treeward.policy.baselines.context_free:ContextFree",
    "xcb": "treeward.policy.baselines.xcb:XCB",
    "spanner-greedy": "treeward.policy.baselines.spanner:SpannerGreedy",
    "spanner-igw": "treeward.policy.baselines.spanner:SpannerIGW",
    "enr": "treeward.policy.baselines.enr:ENR",
    "diag-linucb": "treeward.policy.baselines.diag_linucb:DiagLinUCB",
    "mips": "treeward.policy.baselines.mips:MIPS",
}
"""Policies for simulations only."""
LOADERS = {
    "coat": "treeward.data.loaders.coat:load",
    "gorse": "treeward.data.loaders.gorse:load",
    "mind": "treeward.data.loaders.mind:load",
    "movielens": "treeward.data.loaders.movielens:load",
    "open-bandit": "treeward.data.loaders.open_bandit:load",
    "recbole": "treeward.data.loaders.recbole:load",
    "sequences": "treeward.data.loaders.sequences:load",
    "tabular": "treeward.data.loaders.tabular:load",
    "taobao": "treeward.data.loaders.taobao:load",
}
"""The module of a loader may have `SIGNS`: names of files, or patterns, by which a path is recognised."""
STORES = {
    "memory": "treeward.store.memory:MemoryStore",
    "sqlite": "treeward.store.sqlite:SQLiteStore",
    "postgresql": "treeward.store.postgres:PostgresStore",
}
"""An address begins with the name: ``postgresql://user@host/database``. One without a name is a file of SQLite."""


class Registry(Mapping[str, T]):
    """What a table names, each imported when it is asked for.

    Examples
    --------
    >>> Registry({"root": "math:sqrt"})["root"](4)
    2.0
    """

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> T:
        found: T = getattr(self.module(name), self._table[name].partition(":")[2])
        return found

    def module(self, name: str) -> ModuleType:
        """Return the module that has what goes by this name."""
        return import_module(self._table[name].partition(":")[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def is_own(name: str) -> bool:
    """Return whether a name is that of a user's own code, not one of treeward's.

    Examples
    --------
    >>> is_own("hcb"), is_own("mine.py:Best")
    (False, True)
    """
    return ":" in name


def find(owner: str, parameter: str, name: str, what: str) -> Any:
    """Return what a name stands for; `what` says what it should be, for error messages.

    The file is run as a program, once. Do not run files from people you do not trust.
    """
    where, _, last = name.rpartition(":")
    if where.endswith(".py") and not Path(where).is_file():
        raise InvalidArgument(owner, parameter, f"{what} in a file that exists", name)
    try:
        module = _of_file(str(Path(where).resolve()), _digest(where)) if where.endswith(".py") else import_module(where)
    except TreewardError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidArgument(owner, parameter, f"{what} that can be imported ({why})", name) from error
    try:
        return getattr(module, last)
    except AttributeError as error:
        raise InvalidArgument(owner, parameter, f"{what} that {where} has ({_others(module)})", name) from error


def find_class(owner: str, parameter: str, name: str, kind: type, what: str) -> Any:
    """Return the class that a name stands for, if it is a subclass of `kind` other than that itself."""
    made = find(owner, parameter, name, what)
    if not isclass(made) or not issubclass(made, kind) or made is kind:
        raise InvalidArgument(owner, parameter, what, f"{name}, which is {_kind_of(made)}")
    return made


def code_digest(*names: str) -> str:
    """Return the SHA-256 of the files that names refer to; empty if there are none."""
    files = [where for name in names if (where := name.rpartition(":")[0]).endswith(".py")]
    return sha256("".join(map(_digest, files)).encode()).hexdigest() if files else ""


def _digest(path: str) -> str:
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


@lru_cache(64)  # the same class every time, unless the file has changed
def _of_file(path: str, digest: str) -> ModuleType:
    name = f"treeward_own_{Path(path).stem}_{sha256(path.encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be read")
    made = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[name]
        raise
    return made


def _others(module: ModuleType) -> str:
    own = [name for name, one in vars(module).items() if getattr(one, "__module__", None) == module.__name__]
    return f"it has {', '.join(own[:10])}" if own else "it has none"


def _kind_of(made: object) -> str:
    if isclass(made):
        return "a class of another kind"
    return f"no class but of type {type(made).__name__}"


def make(owner: str, parameter: str, name: str, kind: Any, *given: object, **options: object) -> Any:
    """Return an object of a named class; an error in a user's own class becomes one line."""
    try:
        return kind(*given, **options)
    except TreewardError:
        raise
    except Exception as error:
        if not is_own(name):
            raise
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidArgument(
            owner, parameter, f"a class that can be made of {_told(given, options)} ({why})", name
        ) from error


def _told(given: tuple[object, ...], options: dict[str, object]) -> str:
    return ", ".join([*(type(one).__name__ for one in given), *options]) or "nothing"
