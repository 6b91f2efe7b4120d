import contextlib
import json
import os
import pty
import re
import signal
import subprocess

import httpx
import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import TREEWARD, run
from tests.waiting import wait_until
from treeward.cli import main


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("items")
    random = np.random.default_rng(0)
    pl.DataFrame(
        {
            "sku": [f"s{row}" for row in range(300)],
            "emb": random.standard_normal((300, 4)).tolist(),
            "name": [f"thing{row % 5} word" for row in range(300)],
            "shelf": [f"room{row % 3} > shelf{row % 2}" for row in range(300)],
        }
    ).write_parquet(folder / "items.parquet")
    np.save(folder / "items.npy", random.standard_normal((300, 4)).astype(np.float32))
    return folder


COLUMNS = ("--column", "id=sku", "--column", "vector=emb", "--column", "title=name", "--column", "category=shelf")


def test_version_and_help():
    assert run("--version") == f"treeward {tw.__version__}\n"
    for words in (
        [],
        ["tree"],
        ["tree", "build"],
        ["tree", "show"],
        ["tree", "draw"],
        ["demo"],
        ["simulate"],
        ["bench"],
    ):
        assert "Usage:" in run(*words, "--help")


def test_build_show_and_draw(items, tmp_path):
    out = run("tree", "build", items / "items.parquet", "-o", tmp_path / "tree", "--widths", "5,30", *COLUMNS)
    assert "300 items x 4 dimensions: 36 nodes, 30 leaves, 0 empty" in out
    assert "explained" in out
    assert f"treeward tree draw {tmp_path / 'tree'}" in out
    tree = tw.ItemTree.load(tmp_path / "tree")
    assert tree.widths == (5, 30)
    assert any("thing" in name for name in tree.names)
    out = run("tree", "show", tmp_path / "tree", "--most", "2")
    assert "all (node 0): level 1, 300 items, 5 children" in out
    assert "and 3 more" in out
    leaf = str(int(tree.leaves[0]))
    out = run("tree", "show", tmp_path / "tree", "--node", leaf, "--items", items / "items.parquet", *COLUMNS)
    assert re.search(r"s\d+  thing\d word", out)
    out = run(
        "tree", "draw", tmp_path / "tree", "-o", tmp_path / "t.html", "--items", items / "items.parquet", *COLUMNS
    )
    assert "Wrote" in out
    assert "thing1 word" in (tmp_path / "t.html").read_text()
    run("tree", "draw", tmp_path / "tree", "-o", tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_build_with_every_option(items, tmp_path):
    run(
        "tree", "build", items / "items.npy", "--out", tmp_path / "a", "--max-leaf", 7, "--no-normalize", "--seed", 3,
        "--threads", 1,
    )  # fmt: skip
    made = tw.ItemTree.load(tmp_path / "a")
    assert max(len(made.items_of(leaf)) for leaf in made.leaves) <= 7
    assert not made.normalized
    matrix = np.load(items / "items.npy")
    twin = tw.ItemTree.build(matrix, seed=3, max_leaf=7, normalize=False)
    assert np.array_equal(made.items, twin.items)


def test_build_by_category(items, tmp_path):
    arguments = ("--by-category", "--separator", ">", *COLUMNS)
    run("tree", "build", items / "items.parquet", "-o", tmp_path / "c", *arguments)
    assert tw.ItemTree.load(tmp_path / "c").names[1:4] == ("room0", "room1", "room2")
    error = run("tree", "build", items / "items.npy", "-o", tmp_path / "d", "--by-category", code=2)
    assert "--by-category must be used with a category column" in error


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["items.npy", "--widths", "30,5"], "widths must be strictly increasing"),
        (["items.npy", "--widths", "5,x"], "--widths must be integers separated by commas"),
        (["items.npy", "--widths", "400"], "at most the number of items (300)"),
        (["items.npy", "--seed", "-1"], "seed must be an integer of at least 0"),
        (["items.npy", "--threads", "0"], "threads must be an integer of at least 1"),
        (["absent.npy"], "absent.npy: cannot be read"),
        (["items.parquet"], "no column 'vector' for the vector"),
        (["items.parquet", "--column", "vector"], "--column must be of the form ROLE=NAME"),
        (["items.parquet", "--column", "vector=nope"], "no column 'nope' for the vector"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(items, tmp_path, arguments, why):
    arguments[0] = str(items / arguments[0])
    error = run("tree", "build", *arguments, "-o", tmp_path / "tree", code=2)
    assert why in error
    assert error.count("error:") == 1
    assert not (tmp_path / "tree").exists()


def test_odd_names_and_outputs(items, tmp_path):
    out = run("tree", "build", items / "items.npy", "-o", tmp_path / "tree[v2]")
    assert f"Saved to {tmp_path / 'tree[v2]'}." in out
    assert "d[/b].csv" in run("tree", "build", "d[/b].csv", "-o", tmp_path / "x", code=2)
    tw.ItemTree.from_categories([[1.0], [2.0]], ["thé", "日本"]).save(tmp_path / "named")
    bare = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([TREEWARD, "tree", "show", tmp_path / "named"], capture_output=True, check=False, env=bare)
    assert (done.returncode, b"th" in done.stdout) == (0, True), done.stderr
    with open("/dev/full", "w") as full:
        done = subprocess.run([TREEWARD, "tree", "show", tmp_path / "named"], stdout=full, stderr=-1, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False)
    assert "--by-category must be used without --widths" in run(
        "tree", "build", items / "items.parquet", "-o", tmp_path / "y", "--by-category", "--widths", "3", code=2
    )


def test_force_does_not_delete_the_items(items, tmp_path):
    tw.Catalogue.load(items / "items.npy").save(tmp_path / "items")
    error = run("tree", "build", tmp_path / "items", "-o", tmp_path / "items", "--force", code=2)
    assert "holds treeward.catalogue, not treeward.tree" in error
    assert len(tw.Catalogue.load(tmp_path / "items")) == 300


def test_existing_trees_are_kept_unless_forced(items, tmp_path):
    run("tree", "build", items / "items.npy", "-o", tmp_path / "tree", "--seed", 1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "tree").iterdir()}
    assert "exists" in run("tree", "build", items / "items.npy", "-o", tmp_path / "tree", "--seed", 2, code=2)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "tree").iterdir()}
    run("tree", "build", items / "items.npy", "-o", tmp_path / "tree", "--seed", 2, "--force")
    assert tw.ItemTree.load(tmp_path / "tree").provenance["seed"] == 2


def test_rubbish_in_place_of_a_tree(tmp_path, items):
    for command in ("show", "draw"):
        assert "nothing that treeward saved" in run("tree", command, tmp_path, code=2)
    run("tree", "build", items / "items.npy", "-o", tmp_path / "tree")
    path = next((tmp_path / "tree").glob("items-*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert "SHA-256 does not match" in run("tree", "show", tmp_path / "tree", code=2)
    assert "--node must be an integer from 0 to" in run(
        "tree", "show", save(items, tmp_path / "good"), "--node", 10_000, code=2
    )


def save(items, path):
    tw.ItemTree.build(np.load(items / "items.npy")).save(path)
    return path


def rate_at_the_end(out):
    """Return the clicks per visit, in per cent, of the last two of the demo's six periods."""
    rates = [float(one) for one in re.findall(r"clicks per visit, visits [\d,]+ to [\d,]+ +([\d.]+)%", out)]
    assert len(rates) == 6, "by 250 visits; the rest of 100 belongs to those before it"
    return (rates[-2] + rates[-1]) / 2


def test_demo(tmp_path):
    small = (
        "demo",
        "--items",
        500,
        "--dim",
        8,
        "--users",
        5,
        "--rounds",
        20,
        "--visits",
        1_600,
        "-o",
        tmp_path / "out",
    )
    out = run(*small, "--port", 0, "--seed", 4)  # no terminal: it stops by itself
    assert "500 items x 8 dimensions" in out
    assert "PHCB(LinUCB), prior" in out
    assert re.search(r"visits +1,600", out)
    base = float(re.search(r"clicks per visit, items at random +([\d.]+)%", out)[1])
    learned = [rate_at_the_end(out)]
    # Runs differ, because the service draws by a secret of its own: 15 to 32 %, where random items get 14 %. So a run
    # that found little is not enough to tell.
    while learned[-1] <= base and len(learned) < 4:
        again = tmp_path / f"again{len(learned)}"
        learned.append(rate_at_the_end(run(*small[:-1], again, "--port", 0, "--seed", 4)))
    assert sum(learned) / len(learned) > base, "it learns"
    assert "The crowd is at edition" in out
    made = {"items", "tree", "tree.html", "tree.png", "curves.html", "curves.png", "prior", "events.db"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == made
    assert f"treeward serve {tmp_path / 'out' / 'items'}" in out
    run(*small, "--port", 0, "--visits", 50)  # over what is there


def test_demo_goes_on_until_it_is_told_to_stop(tmp_path):
    out = tmp_path / "out"
    small = (
        "demo",
        "--stay",
        "--items",
        300,
        "--dim",
        4,
        "--users",
        3,
        "--rounds",
        5,
        "--visits",
        50,
        "--port",
        0,
        "-o",
        out,
    )
    process = subprocess.Popen(
        [TREEWARD, *map(str, small)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    said = []
    for line in process.stdout:
        said.append(line)
        if "Ctrl-C to stop" in line:
            break
    url = re.search(r"Serving at (http://\S+) :", "".join(said))[1]
    before = httpx.get(url + "/v1/live").json()["decisions"]
    assert before >= 50
    wait_until(lambda: httpx.get(url + "/v1/live").json()["decisions"] > before, "visitors go on")
    assert [one["name"] for one in httpx.get(url + "/v1/reports").json()["reports"]] == ["curves.html", "tree.html"]
    assert "another process has it open" in run(*small, "--no-stay", code=2)
    assert httpx.get(url + "/readyz").status_code == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    assert "Stopped" in process.stdout.read()
    process.stdout.close()


def test_simulate(tmp_path):
    small = ("simulate", "--items", 300, "--users", 4, "--dim", 4, "--rounds", 30, "-o", tmp_path / "c.png")
    out = run(*small)
    assert all(name in out for name in ("random items", "Flat", "CBCategory", "CBLeaf", "HCB", "PHCB"))
    out = run(
        *small, "--policy", "hcb", "--bandit", "thompson", "--budget", 9, "--reward", "click", "--once", "--seed", 2
    )
    assert "HCB(Thompson)" in out
    assert "Flat" not in out
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "--policy must be one of flat, cb-category" in run(*small, "--policy", "magic", code=2)
    assert "--out must be a file ending in .html or .png" in run(*small, "-o", "c.svg", code=2)
    assert "budget must be an integer from 2" in run(*small, "--policy", "hcb", "--budget", 1, code=2)
    assert "nan" not in run(*small[:3], "--users", 1, *small[5:])
    assert "--bandit must be one of linucb, thompson, epsilon" in run(*small, "--bandit", "magic", code=2)
    assert "rounds must be an integer from 1 to 300" in run(*small, "--once", "--rounds", 301, code=2)


def test_bench(tmp_path):
    small = ("bench", "--items", 500, "--dim", 8, "--users", 3, "--budget", 20)
    out = run(*small, "--policy", "hcb", "--bandit", "epsilon", "-o", tmp_path / "b.json")
    assert "recommend 3 users and learn from each" in out
    told = json.loads((tmp_path / "b.json").read_text())
    assert told["items"] == 500
    assert all(0 < figure["median_us"] <= figure["p99_us"] for figure in told["figures"].values())
    assert len(told["figures"]) == 4
    assert "--policy must be one of flat" in run(*small, "--policy", "magic", code=2)
    assert "budget must be an integer from" in run(*small, "--policy", "hcb", "--budget", 1, code=2)


def test_progress_bars_in_a_terminal(items, tmp_path):
    here, there = pty.openpty()
    done = subprocess.run(
        [TREEWARD, "tree", "build", items / "items.npy", "-o", tmp_path / "tree"],
        stdout=there, stderr=there, check=True, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0
    text = os.read(here, 100_000).decode()
    assert "leaves" in text
    assert "━" in text


def test_ctrl_c_writes_nothing(tmp_path):
    np.save(tmp_path / "big.npy", np.random.default_rng(0).standard_normal((400_000, 32)).astype(np.float32))
    here, there = pty.openpty()
    process = subprocess.Popen(
        [TREEWARD, "tree", "build", tmp_path / "big.npy", "-o", tmp_path / "tree", "--widths", "100,20000"],
        stdout=there, stderr=there, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(there)
    said = b""
    while b"leaves" not in said:  # it is at work
        said += os.read(here, 100_000)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the terminal ends with the process
        while more := os.read(here, 100_000):
            said += more
    os.close(here)
    assert process.wait(120) == 130
    visible = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode())  # without colours and cursor movements
    assert visible.rstrip().endswith("interrupted")
    assert "Traceback" not in visible
    assert not (tmp_path / "tree").exists()


def test_ctrl_c_while_a_kernel_is_loaded_is_an_interruption(monkeypatch, capsys):
    def loading(**_):
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("treeward.cli.app.app", loading)
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err.strip()) == (130, "interrupted")
    monkeypatch.setattr("treeward.cli.app.app", lambda **_: _raise(SystemError("of another kind")))
    with pytest.raises(SystemError, match="of another kind"):
        main()


def test_an_error_that_follows_a_swallowed_ctrl_c_is_an_interruption(monkeypatch, capsys):
    def compiling(**_):
        with contextlib.suppress(KeyboardInterrupt):  # as LLVM's callbacks do
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr("treeward.cli.app.app", compiling)
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code, capsys.readouterr().err.strip()) == (130, "interrupted")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, inherited)


def _raise(error):
    raise error
