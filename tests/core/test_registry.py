import subprocess
import sys
from pathlib import Path

import pytest

from treeward.core import registry
from treeward.core.errors import InvalidArgument
from treeward.core.registry import Registry, code_digest, find, find_class, is_own, make

TABLES = (registry.BANDITS, registry.TREE_POLICIES, registry.BASELINES, registry.LOADERS, registry.STORES)


@pytest.mark.parametrize("table", TABLES)
def test_every_registered_name_can_be_imported(table):
    known = Registry(table)
    assert list(known) == list(table)
    assert len(known) == len(table)
    for name in known:
        assert callable(known[name])
        assert known[name].__name__ == table[name].partition(":")[2]
        assert known.module(name).__name__ == table[name].partition(":")[0]


def test_registry_itself_imports_nothing_heavy():
    code = "import sys, treeward.core.registry; print(*{'numpy', 'polars', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_unknown_name_is_not_in_a_registry():
    known = Registry(registry.BANDITS)
    assert "linucb" in known
    assert "linusb" not in known
    with pytest.raises(KeyError):
        known["linusb"]


def test_own_code_is_found_in_a_file_and_reloaded_when_it_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a long path would be cut in the message
    file = Path("mine.py")
    file.write_text("class Mine(dict):\n    size = 1\n")
    name = f"{file}:Mine"
    assert is_own(name)
    first, digest = find("here", "thing", name, "a thing"), code_digest(name)
    assert find("here", "thing", name, "a thing") is first
    file.write_text("class Mine(dict):\n    size = 20\n")
    assert find("here", "thing", name, "a thing").size == 20
    assert code_digest(name) != digest
    assert code_digest("hcb", "package.module:Name") == ""
    assert find_class("here", "thing", name, dict, "a dict").size == 20
    with pytest.raises(InvalidArgument, match="thing must be a list, got .*a class of another kind"):
        find_class("here", "thing", name, list, "a list")


def test_error_in_an_own_class_becomes_one_line():
    def broken():
        raise RuntimeError("two\nlines")

    with pytest.raises(InvalidArgument, match=r"made of nothing \(RuntimeError: two lines\), got 'mine.py:Mine'"):
        make("here", "thing", "mine.py:Mine", broken)
    with pytest.raises(RuntimeError):
        make("here", "thing", "mine", broken)
