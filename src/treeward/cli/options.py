"""Options of commands, derived from what they set.

A command names a function, a class of settings or a group of options in the type of one parameter, and `expanded`
turns that into one option per field::

    @app.command()
    @expanded
    def fit(log: LogFlags, fitting: Annotated[dict[str, Any], Derived(Crowd.fit, "users", "seed")]) -> None:
        Crowd.fit(log.read().part("train"), items, **fitting)

Names, types, bounds, defaults and help texts are those of the library, so that they cannot differ from it.
"""

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, wraps
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer

from treeward.core.checks import rule_of
from treeward.core.errors import InvalidArgument
from treeward.data.column_roles import ITEM_ROLES, LOG_ROLES

Command = Callable[..., None]

Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Seed = Annotated[int, typer.Option(help="Every random choice comes from this seed.", min=0)]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Which column of a table has which role, e.g. --column user=visitor --column id=sku. "
        f"Roles of a log: {', '.join(LOG_ROLES)}; of items: {', '.join(ITEM_ROLES)}. Repeatable. "
        "Default: columns of these names.",
        metavar="ROLE=NAME",
        show_default=False,
    ),
]
ITEMS = "Items: a saved catalogue, a .csv, .tsv or .parquet table, or a .npy matrix of vectors."


class Derived:
    """Options for some parameters of a function, or some fields of a dataclass or a named tuple.

    Parameters
    ----------
    source
        The function or class.
    names
        The parameters that become options.
    defaults
        Defaults of this command that differ from those of the source.
    words
        Help texts for this command that differ from those of the source.
    optional
        Whether an option that is not given is None, because its value may come from a file or the environment.
    """

    def __init__(
        self, source: Any, *names: str, words: Mapping[str, str] | None = None, optional: bool = False, **defaults: Any
    ) -> None:
        self.source, self.words, self.optional, self.defaults = source, words or {}, optional, defaults
        self.names = (*names, *(name for name in defaults if name not in names))


class _Meaning(NamedTuple):
    """What the library says of a parameter."""

    annotation: Any
    default: Any
    help: str


def expanded(command: Command) -> Command:
    """Replace each parameter of a command that stands for several options by these options."""
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    flat: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        derived = next(
            (extra for extra in getattr(one.annotation, "__metadata__", ()) if isinstance(extra, Derived)), None
        )
        if derived is not None:
            options = [_derived(derived, name) for name in derived.names]
            groups[one.name] = _converter(command, derived), [option.name for option in options]
        elif is_dataclass(one.annotation):
            group: Any = one.annotation
            options = list(inspect.signature(group).parameters.values())
            groups[one.name] = group, [option.name for option in options]
        else:
            options = [one]
        flat += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, (make, names) in groups.items():
            given[name] = make(**{option: given.pop(option) for option in names})
        command(**given)

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return run


def _derived(derived: Derived, name: str) -> inspect.Parameter:
    """Return a parameter of the library as an option of a command."""
    meaning = meanings(derived.source)[name]
    default = derived.defaults.get(name, meaning.default)
    kind = _typer_type(meaning.annotation)
    if kind is str and isinstance(default, Sequence) and not isinstance(default, str):
        default = ",".join(map(str, default))
    help = _sentence(derived.words.get(name, meaning.help))
    if derived.optional:
        help += f" Default: {default}." if default not in (None, "") else ""
        kind, default = kind | None, None
    shown = default not in (None, "")
    names = [f"--{name.replace('_', '-')}"] if kind is bool and not default else []  # nothing to switch off
    option = typer.Option(*names, help=help, show_default=shown)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _typer_type(annotation: Any) -> Any:
    """Return the type of an option for a parameter of this type; its rule is checked apart, in our own words."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        parts = [one for one in get_args(annotation) if one is not NoneType]
        # Several types, such as bool | int, are read from text by whatever takes the value.
        return (_typer_type(parts[0]) if len(parts) == 1 else str) | None
    simple = annotation in (int, float, bool, str) or get_origin(annotation) is Literal
    return annotation if simple else str


def _element(annotation: Any) -> type | None:
    """Return the type of the numbers in a sequence of numbers, or None where the type is another."""
    for one in (annotation, *get_args(annotation)):
        if get_origin(one) in (tuple, Sequence, list):
            inner = get_args(one)[0]
            inner = get_args(inner)[0] if get_origin(inner) is Annotated else inner
            return inner if inner in (int, float) else None
    return None


def _converter(command: Command, derived: Derived) -> Callable[..., dict[str, Any]]:
    """Return a function that turns the values of derived options into what the library takes, and checks them."""

    def convert(**given: Any) -> dict[str, Any]:
        for name, value in given.items():
            annotation, flag = meanings(derived.source)[name].annotation, f"--{name.replace('_', '-')}"
            element, rule = _element(annotation), rule_of(annotation)
            if element is not None and isinstance(value, str):
                value = numbers(_name_of(command), flag, value, element)
            if rule is not None and value is not None:
                value = rule.check(_name_of(command), flag, value)
            given[name] = value
        return given

    return convert


def _name_of(command: Command) -> str:
    group = command.__module__.rpartition(".")[2].replace("_", "-")
    name = command.__name__.rstrip("_").replace("_", "-")
    return name if name == group else f"{group} {name}"


def numbers(owner: str, parameter: str, text: str, kind: type = int) -> tuple[Any, ...]:
    """Return the numbers in a list such as 100,10000.

    Examples
    --------
    >>> numbers("tree build", "--widths", "100,10_000")
    (100, 10000)
    """
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        word = "integers" if kind is int else "numbers"
        raise InvalidArgument(owner, parameter, f"{word} separated by commas", text) from error


@cache
def meanings(source: Any) -> Mapping[str, _Meaning]:
    """Return type, default and help text of every parameter of a function, or every field of a class.

    Help texts are the *Parameters* of a docstring, or the docstrings below fields.
    """
    words = _parameters(inspect.getdoc(source) or "")
    if not inspect.isclass(source):
        found = inspect.signature(source).parameters.values()
        return {one.name: _Meaning(one.annotation, one.default, words.get(one.name, "")) for one in found}
    words |= _field_docs(source)
    defaults: Mapping[str, Any] = getattr(source, "_field_defaults", {})
    if is_dataclass(source):
        return {
            one.name: _Meaning(
                one.type,
                None if one.default is MISSING else one.default,
                one.metadata.get("about") or words.get(one.name, ""),
            )
            for one in fields(source)
        }
    return {
        name: _Meaning(kind, defaults.get(name), words.get(name, "")) for name, kind in source.__annotations__.items()
    }


def _parameters(text: str) -> dict[str, str]:
    """Return the help texts in the *Parameters* of a docstring; two names may share one."""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^(\S[^\n]*)\n((?:[ \t]+[^\n]*\n?|\n)+)", found[1] if found else "", re.MULTILINE)
    return {name.strip(): _plain(body) for names, body in entries for name in names.split(",")}


def _field_docs(kind: type) -> dict[str, str]:
    """Return the docstrings that follow the fields of a class."""
    try:
        [body] = ast.parse(dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):  # there is no source, as in a frozen program
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        one.target.id: _plain(after.value.value)
        for one, after in pairwise(body.body)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(after, ast.Expr)
        if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
    }


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "").split())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def given_flags(**flags: Any) -> dict[str, Any]:
    """Return the flags that were given: None would overrule a setting of the file or the environment."""
    return {name: value for name, value in flags.items() if value is not None}
