"""The public interface as text, which `tests/api.txt` holds: `python -m tests.api > tests/api.txt` writes it."""

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module

MODULES = ("treeward", "treeward.testing", "treeward.client")


def rendered() -> str:
    """Return every public name with its parameters and, of classes, what they offer."""
    return "".join(f"{line}\n" for module in MODULES for line in _module(module))


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    names = getattr(module, "__all__", None)
    if names is None:
        names = [one for one, made in vars(module).items() if one[0] != "_" and getattr(made, "__module__", "") == name]
    for one in sorted(names):
        yield from _thing(f"{name}.{one}", getattr(module, one))


def _thing(path: str, thing: object) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield path + _parameters(thing)
        return
    bases = ", ".join(base.__name__ for base in thing.__mro__[1:] if base.__module__.startswith("treeward"))
    yield f"class {path}{_parameters(thing)}" + (f" of {bases}" if bases else "")
    for name in sorted(dir(thing)):
        found = inspect.getattr_static(thing, name)
        if name.startswith("_") or not _ours(thing, name):
            continue
        if isinstance(found, property):
            yield f"    {name} (property)"
        elif isinstance(found, classmethod | staticmethod):
            yield f"    {name}{_parameters(found.__func__)} ({type(found).__name__})"
        elif inspect.isfunction(found):
            yield f"    {name}{_parameters(found)}"
        else:
            yield f"    {name}"


def _ours(thing: type, name: str) -> bool:
    """Tell whether a name comes from treeward, not from what its class is made of."""
    return any(name in vars(base) for base in thing.__mro__ if base.__module__.startswith("treeward"))


def _parameters(thing: object) -> str:
    """Return parameters and their defaults; types are mypy's business; defaults that are made per call are `...`."""
    try:
        found = inspect.signature(thing).parameters.values()  # type: ignore[arg-type]
    except ValueError:
        return "(...)"
    bare = [one.replace(annotation=one.empty, default=_default(one.default)) for one in found]
    return str(inspect.Signature(bare))


class _Shown(str):
    def __repr__(self) -> str:
        return str(self)


def _default(value: object) -> object:
    if value is inspect.Parameter.empty or isinstance(value, str | int | float | bool | tuple | None):
        return value
    return _Shown("...")


if __name__ == "__main__":
    sys.stdout.write(rendered())
