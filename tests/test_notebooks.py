"""The notebooks are stored with what their cells print and draw, and that is current.

Every code cell is run here, at its full size, and has to print what is stored: exactly, on a machine of the same
arithmetic as the one where it was stored; elsewhere, as many lines. They run in this process, without a Jupyter kernel,
which spares `make test` its packages; `make notebooks` runs them as Jupyter does, and stores what it saw. What is
stored has to belong to the cells even where a notebook cannot run.
"""

import ast
import importlib.util
import json
import re
from pathlib import Path

import matplotlib
import pytest
from threadpoolctl import threadpool_limits

import treeward as tw

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

_found = importlib.util.spec_from_file_location("run_notebooks", ROOT / "docs" / "run_notebooks.py")
run_notebooks = importlib.util.module_from_spec(_found)
_found.loader.exec_module(run_notebooks)
VARIABLE, MOVIELENS = run_notebooks.MOVIELENS


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def evaluated(code, space):
    """Run a cell; return the value of its last line, if Jupyter would show that."""
    tree = ast.parse(code)
    last = None
    if isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "cell", "exec"), space)
    return None if last is None else eval(compile(last, "cell", "eval"), space)


def printed(code, space, capsys):
    """Run a cell; return the texts that Jupyter would show: prints, the last value, and the size of each figure."""
    from matplotlib import pyplot

    value, texts = evaluated(code, space), []
    out, err = capsys.readouterr()
    assert err == ""
    if out:
        texts.append(out)
    if value is not None:
        texts.append(repr(value))
        if hasattr(value, "_repr_html_"):
            texts.append(value._repr_html_())
    texts += [repr(pyplot.figure(number)) for number in pyplot.get_fignums()]
    pyplot.close("all")
    return texts


def stored(cell):
    """Return the texts that are stored with a cell."""
    texts = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            texts.append("".join(output["text"]))
        else:
            texts += ["".join(output["data"][kind]) for kind in ("text/plain", "text/html") if kind in output["data"]]
    return texts


def shape(texts):
    """Return what is the same on every machine: how many texts, of how many lines each. (See `arithmetic`.)"""
    return [text.count("\n") for text in texts]


@each_notebook
def test_every_cell_prints_what_is_stored(path, tmp_path, monkeypatch, capsys):
    if VARIABLE in "".join(cells(path, "code")[0]["source"]):
        if not MOVIELENS.is_dir():
            pytest.skip(f"no data in {MOVIELENS}")
        monkeypatch.setenv(VARIABLE, str(MOVIELENS))
    monkeypatch.chdir(tmp_path)
    comparable = json.loads(path.read_text())["metadata"]["treeward"]["arithmetic"] == run_notebooks.arithmetic()
    space = {}
    try:
        with threadpool_limits(1), matplotlib.rc_context(matplotlib.rcParamsDefault | {"backend": "agg"}):
            for cell in cells(path, "code"):
                now, then = printed("".join(cell["source"]), space, capsys), stored(cell)
                if not comparable:
                    now, then = shape(now), shape(then)
                assert now == then, f"run `make notebooks`: cell {cell['id']} of {path.name} prints something else now"
    finally:
        if "folder" in space:
            space["folder"].cleanup()
    assert list(tmp_path.iterdir()) == []


@each_notebook
def test_what_is_stored_belongs_to_the_cells(path):
    told = json.loads(path.read_text())
    digests = {"code": run_notebooks.code_digest(told), "outputs": run_notebooks.outputs_digest(told)}
    recorded = told["metadata"].pop("treeward")
    assert re.fullmatch("[0-9a-f]{64}", recorded.pop("arithmetic"))
    assert recorded == digests, f"run `make notebooks`: {path.name} changed since it was run"
    assert told["metadata"] == {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    assert (told["nbformat"], told["nbformat_minor"]) == (4, 5)
    assert path.stat().st_size <= run_notebooks.MOST_BYTES
    assert len(told["cells"]) <= 15
    assert len({cell["id"] for cell in told["cells"]}) == len(told["cells"])
    assert all(cell["metadata"] == {} for cell in told["cells"])
    code = [cell for cell in told["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell["outputs"]):
        assert output.get("metadata", {}) == {}
        assert output["output_type"] in ("stream", "execute_result", "display_data")
        assert set(output.get("data", ())) <= run_notebooks.KEPT
        assert output.get("name", "stdout") == "stdout"
    text = json.dumps([cell["outputs"] for cell in code])
    assert not re.search(r"/(tmp|home|work|root|Users)/|0x[0-9a-f]{6}", text)


def test_a_change_of_code_or_outputs_is_noticed():
    told = json.loads(NOTEBOOKS[0].read_text())
    code, outputs = run_notebooks.code_digest(told), run_notebooks.outputs_digest(told)
    first = next(cell for cell in told["cells"] if cell["cell_type"] == "code")
    first["source"] = [*first["source"], " "]
    assert run_notebooks.code_digest(told) != code
    assert run_notebooks.outputs_digest(told) == outputs
    first["outputs"] = []
    assert run_notebooks.outputs_digest(told) != outputs
    told["cells"][0]["source"] = "# Text may change"
    told["metadata"] = {}
    first["source"].pop()
    assert run_notebooks.code_digest(told) == code


@pytest.mark.parametrize("missing", ["ratings.csv", "movies.csv"])
def test_the_real_log_says_where_its_data_are_found(missing, tmp_path, monkeypatch):
    for name in {"ratings.csv", "movies.csv"} - {missing}:
        (tmp_path / name).touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    first = cells(ROOT / "docs" / "notebooks" / "6-a-real-log.ipynb", "code")[0]
    with pytest.raises(
        FileNotFoundError, match=rf"no {missing} in .*: unpack ml-latest-small.zip from https://grouplens"
    ):
        evaluated("".join(first["source"]), {})


@each_notebook
def test_it_is_on_the_site_and_its_links_lead_somewhere(path):
    assert f"notebooks/{path.name}\n" in (ROOT / "mkdocs.yml").read_text()
    assert f"(notebooks/{path.name})" in (ROOT / "docs" / "getting-started.md").read_text()
    first, *rest = ["".join(cell["source"]) for cell in cells(path, "markdown")]
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
