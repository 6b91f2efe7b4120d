import re
import subprocess
import sys
from pathlib import Path

import pytest

import treeward

ROOT = Path(__file__).parents[1]


def test_exported_names_are_sorted_and_all_there():
    assert sorted(treeward.__all__) == list(treeward._HOME) == sorted(treeward._HOME)
    for name in treeward.__all__:
        assert getattr(treeward, name).__module__.startswith("treeward.")
    assert set(treeward.__all__) < set(dir(treeward))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = treeward.nothing


def imported_after(statement):
    code = f"import sys; {statement}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_is_light():
    assert not {"numpy", "polars", "numba", "typer"} & imported_after("import treeward")
    heavy = {"torch", "ray", "uvicorn", "starlette", "faiss", "plotly", "matplotlib"}
    assert not heavy & imported_after("import treeward; treeward.ItemTree; treeward.Catalogue")
    assert not {"numba", "polars", *heavy} & imported_after("import treeward.cli")


def test_version_is_in_the_changelog():
    assert f"## [{treeward.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_source_files_stay_small():
    for path in (ROOT / "src").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path


def test_every_dependency_is_pinned_and_justified():
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text()
    wanted = {name.lower() for name in re.findall(r'"([A-Za-z0-9-]+)(?:\[[a-z]+\])?(?:>=|==)[0-9.]+', project)} - {
        "hatchling"
    }
    assert wanted - pinned == set()
    decisions = (ROOT / "docs" / "decisions.md").read_text()
    assert {name for name in wanted if name not in decisions} == set()
