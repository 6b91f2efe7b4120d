"""Options of commands are those of the library: names, defaults, bounds and help texts."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from tests.commands import run
from treeward.cli.options import Derived, expanded, meanings
from treeward.core.checks import Count, Whole
from treeward.core.errors import InvalidArgument


def library(
    rounds: Count = 5,
    sizes: tuple[int, ...] = (1, 2),
    kind: Literal["a", "b"] = "a",
    fast: bool = False,
    most: int | None = None,
) -> None:
    """Do something.

    Parameters
    ----------
    rounds
        How many rounds.
    sizes, kind
        Shared ``words``
        over two lines.

    Examples
    --------
    >>> library()
    """


@dataclass(frozen=True)
class Fields:
    count: Annotated[int, Whole(low=2)] = 3
    """How many."""
    bare: str = ""


class Tuple(NamedTuple):
    count: int = 4
    """How many of it."""


def called(source, *names, **defaults):
    """Return a function that calls a command with derived options, and returns what it got."""
    app, got = typer.Typer(), {}

    @app.command()
    @expanded
    def command(values: Annotated[dict[str, Any], Derived(source, *names, **defaults)]) -> None:
        got.update(values)

    def call(*arguments):
        got.clear()
        done = CliRunner().invoke(app, arguments)
        if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
            raise done.exception
        return got or done.output

    return call


def test_help_texts_come_from_docstrings_and_fields():
    assert meanings(library)["rounds"].help == "How many rounds."
    assert meanings(library)["kind"].help == meanings(library)["sizes"].help == "Shared words over two lines."
    assert meanings(library)["fast"].help == ""
    assert (meanings(Fields)["count"].help, meanings(Fields)["bare"].help) == ("How many.", "")
    assert (meanings(Tuple)["count"].help, meanings(Tuple)["count"].default) == ("How many of it.", 4)


def test_options_have_the_library_defaults_unless_the_command_has_its_own():
    call = called(library, "rounds", "sizes", "kind", "fast", "most")
    assert call() == {"rounds": 5, "sizes": (1, 2), "kind": "a", "fast": False, "most": None}
    assert call("--sizes", "3,4", "--kind", "b", "--fast", "--most", "7") == {
        "rounds": 5, "sizes": (3, 4), "kind": "b", "fast": True, "most": 7,
    }  # fmt: skip
    assert called(library, "kind", rounds=9)() == {"kind": "a", "rounds": 9}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--rounds", "0"], "--rounds must be an integer of at least 1, got 0"),
        (["--sizes", "3,x"], "--sizes must be integers separated by commas, got '3,x'"),
    ],
)
def test_a_value_that_breaks_the_library_rule_is_refused_by_option(arguments, why):
    with pytest.raises(InvalidArgument) as refused:
        called(library, "rounds", "sizes")(*arguments)
    assert why in str(refused.value)


def test_an_optional_setting_is_none_unless_given_and_names_its_default():
    call = called(Fields, "count", optional=True)
    assert call() == {"count": None}
    assert "Default: 3." in call("--help")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["simulate", "--users", "x"], "error: simulate: --users must be an integer, got 'x'"),
        (["bench", "--items", "3"], "error: bench: --items must be at least 100, got '3'"),
        (["demo", "--port", "70000"], "error: demo: --port must be at most 65535, got '70000'"),
        (["demo", "--port=x"], "error: demo: --port must be an integer, got 'x'"),
        (["demo", "--items", "5"], "error: demo: --items must be an integer of at least 100, got 5"),
        (["demo", "--dim", "1"], "error: demo: --dim must be an integer of at least 2, got 1"),
        (["simulate", "--items", "0"], "error: simulate: --items must be an integer of at least 100, got 0"),
        (["simulate", "--dim", "1"], "error: simulate: --dim must be an integer of at least 2, got 1"),
        (["tree", "build", "x", "-o", "y", "--threads", "0"],
         "error: tree build: --threads must be an integer of at least 1, got 0"),
        (["serve", "x", "--set", "spare=1e308"],
         "error: serve: spare must be a finite number of at least 0 and of at most 10, got 1e+308"),
        (["serve", "--mode", "wild"], "error: serve: --mode must be one of online, frozen, apprentice, got 'wild'"),
        (["tree", "build"], "error: tree build: Missing argument 'items'"),
        (["sevre"], "error: treeward: No such command 'sevre'. Did you mean 'serve', 'store'?"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence(words, why):
    if "serve" in words:
        words = [*words, "--check"]
    assert run(*words, code=2, width=200).strip() == why
