"""The notebooks run, say nothing of an earlier run, and are part of the site.

Every code cell is run here, at its full size: kernels warm, the five take some seconds each, and a notebook that only
compiles may still fail for whoever opens it. They run in this process, without a Jupyter kernel, which spares
`make test` its packages. `make docs` runs them as Jupyter does, and stops at the first cell that fails or warns.
"""

import ast
import json
import re
from pathlib import Path

import matplotlib
import pytest

import treeward as tw

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
PICTURES = {"1-first-steps": 1, "2-your-own-data": 0, "3-compare-policies": 2, "4-explore-the-tree": 1}
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def shown(code, space):
    """Run a cell; return what Jupyter would show of its last line."""
    tree = ast.parse(code)
    last = None
    if isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "cell", "exec"), space)
    return None if last is None else eval(compile(last, "cell", "eval"), space)


@each_notebook
def test_every_cell_runs(path, tmp_path, monkeypatch, capsys):
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    space = {}
    for code in cells(path, "code"):
        value = shown(code, space)
        for way in ("_repr_html_", "_repr_png_", "__repr__"):
            assert not hasattr(value, way) or getattr(value, way)()
    assert len(pyplot.get_fignums()) == PICTURES.get(path.stem, 3)
    pyplot.close("all")
    if "folder" in space:
        space["folder"].cleanup()
    assert list(tmp_path.iterdir()) == []


@each_notebook
def test_nothing_of_an_earlier_run_is_kept(path):
    told = json.loads(path.read_text())
    assert told["metadata"] == {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    assert (told["nbformat"], told["nbformat_minor"]) == (4, 5)
    assert len(told["cells"]) <= 15
    assert len({cell["id"] for cell in told["cells"]}) == len(told["cells"])
    for cell in told["cells"]:
        assert cell["metadata"] == {}
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@each_notebook
def test_it_is_on_the_site_and_its_links_lead_somewhere(path):
    assert f"notebooks/{path.name}\n" in (ROOT / "mkdocs.yml").read_text()
    assert f"(notebooks/{path.name})" in (ROOT / "docs" / "getting-started.md").read_text()
    first, *rest = cells(path, "markdown")
    assert first.startswith("# ")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", "".join([first, *rest])):
        assert (path.parent / target).exists(), target


def test_what_a_cell_ends_with_is_short_and_readable():
    world = tw.World.synthetic(items=200, users=4, dim=4, seed=0)
    explorer = tw.Explorer(world.catalogue, policy=tw.PHCB(), exposures="all", seed=0, memory=1 << 22)
    [d] = explorer.recommend([0])
    explorer.feedback({d.id: 1.0})
    log = tw.Interactions([0, 0, 1, 1], [0, 1, 2, 3], rewards=[1, 0, 0, 1], times=[1, 1, 2, 2])
    looks = [
        tw.simulate(tw.PHCB(), world, rounds=2),
        tw.replay(tw.HCB(), log, world.catalogue),
        tw.off_policy(explorer.log(), target=lambda user: [1 / 200] * 200),
        explorer.tree.describe(),
        explorer.explain(d),
        explorer.inspect.health(),
        world.fidelity(),
    ]
    for one in looks:
        assert repr(one) == str(one)
        assert len(repr(one)) < 700
    assert repr(looks[5]).startswith("200 items in ")
    assert repr(looks[5]).endswith(looks[5].advice)
    assert explorer.tree._repr_png_().startswith(b"\x89PNG")
