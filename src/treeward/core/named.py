"""Code of others by name: ``file.py:name`` or ``package.module:name``."""

import sys
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass
from pathlib import Path
from types import ModuleType
from typing import Any

from treeward.core.errors import InvalidArgument, TreewardError


def is_own(name: str) -> bool:
    """Tell whether a name is of somebody's own code, and not one that treeward has.

    Examples
    --------
    >>> is_own("hcb"), is_own("mine.py:Best")
    (False, True)
    """
    return ":" in name


def find(owner: str, parameter: str, name: str, what: str) -> Any:
    """Return what a name stands for; `what` says in words what it should be, for errors.

    A file is run as a program, once: take none from strangers.
    """
    where, _, last = name.rpartition(":")
    if where.endswith(".py") and not Path(where).is_file():
        raise InvalidArgument(owner, parameter, f"{what} in a file that exists", name)
    try:
        module = _of_file(str(Path(where).resolve()), _digest(where)) if where.endswith(".py") else import_module(where)
    except TreewardError:
        raise
    except (Exception, SystemExit) as error:  # whatever the code of others does
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
    """Return the SHA-256 of the files that names are of; empty if none is."""
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
    """Return an object of a class that goes by a name; what goes wrong in somebody's own is told as one line."""
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
