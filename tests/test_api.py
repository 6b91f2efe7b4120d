"""What others build on does not change by accident."""

import difflib
import inspect
from pathlib import Path

import treeward as tw
from tests import api
from treeward.simulate.run import simulate

KEPT = Path(__file__).with_name("api.txt")


def test_the_public_interface_is_what_was_written_down():
    before, now = KEPT.read_text().splitlines(), api.rendered().splitlines()
    changes = "\n".join(difflib.unified_diff(before, now, "tests/api.txt", "this tree", lineterm="", n=0))
    assert not changes, (
        f"the public interface changed:\n{changes}\n\n"
        "If that is meant: python -m tests.api > tests/api.txt, and say so in CHANGELOG.md; what was removed or "
        "renamed breaks somebody's program."
    )


def test_changes_of_every_kind_would_be_noticed():
    class Thing:
        """Stands for a public class."""

        __module__ = "treeward.made.up"
        constant = 3

        def __init__(self, a, *, b=1):
            pass

        @property
        def width(self):
            return 1

        @classmethod
        def load(cls, path, verify=True):
            pass

        def save(self, path, *, overwrite=False, log=[]):  # noqa: B006
            pass

        def _hidden(self):
            pass

    def function(a, /, b=None, *rest, c="x", **more):
        pass

    assert list(api._thing("tw.Thing", Thing)) == [
        "class tw.Thing(a, *, b=1)",
        "    constant",
        "    load(cls, path, verify=True) (classmethod)",
        "    save(self, path, *, overwrite=False, log=...)",
        "    width (property)",
    ]
    assert list(api._thing("tw.function", function)) == ["tw.function(a, /, b=None, *rest, c='x', **more)"]


def test_simulate_has_its_signature_as_a_function_and_as_a_package():
    # The first access returns the function; from then on the name is that of the package.
    for _ in range(2):
        assert inspect.signature(tw.simulate) == inspect.signature(simulate)
