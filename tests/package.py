"""The package as others get it: built, installed in an empty environment outside the tree, and used without extras.

    make package

Not among the tests that always run: it installs the whole base (a minute or two), and kernels are compiled again.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
JUNK = re.compile(
    r"\.nb[ic]$|\.pyc$|__pycache__|\.db(-|$)|test-shots|bench-out|demo-out|(^|/)shared/|\.(parquet|npy|csv)$|\.venv|\.hypothesis"
)


def build(source, kind, out):
    subprocess.run([sys.executable, "-m", "build", f"--{kind}", "--outdir", out, source], check=True, env=CLEAN)
    [made] = out.iterdir()
    return made


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    return {kind: build(ROOT, kind, out / kind) for kind in ("wheel", "sdist")}


@pytest.fixture(scope="module")
def bare(dist, tmp_path_factory):
    """Return the programs of an environment with the wheel and what it needs, in the versions tried."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, dist["wheel"]], check=True, env=CLEAN)
    return folder / "bin"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a little data of every kind that the commands want."""
    folder = tmp_path_factory.mktemp("place")
    lines = (f"{user} " + " ".join(str((7 * user + n * n) % 60) for n in range(12)) for user in range(80))
    (folder / "sequences.txt").write_text("\n".join(lines))
    (folder / "movies").mkdir()
    ratings = (f"{user},{(user * 7 + n) % 30 + 1},5.0,{n}\n" for user in range(40) for n in range(8))
    (folder / "movies" / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(ratings))
    movies = (f"{movie},A film about {movie} things,Drama\n" for movie in range(1, 31))
    (folder / "movies" / "movies.csv").write_text("movieId,title,genres\n" + "".join(movies))
    (folder / "items.csv").write_text('id,vector\n1,"[0.1, 0.2]"\n2,"[0.3, 0.1]"\n')
    (folder / "shards").mkdir()
    np.save(folder / "shards" / "0.npy", np.eye(40, 4, dtype=np.float32))
    return folder


def use(bare, place, *words):
    return subprocess.run(
        [bare / words[0], *words[1:]], cwd=place, env=CLEAN, capture_output=True, text=True, check=False
    )


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_package_and_nothing_else(dist):
    held = contents(dist["wheel"])
    sources = {path for path in (ROOT / "src" / "treeward").rglob("*") if path.is_file()}
    wanted = {path.relative_to(ROOT / "src").as_posix() for path in sources if not JUNK.search(path.as_posix())}
    inside = {name for name in held if ".dist-info/" not in name}
    assert inside == wanted | {"treeward/constraints.txt"}
    assert {"treeward/py.typed", "treeward/serve/page/index.html", "treeward/store/postgres.sql"} <= inside
    assert not [name for name in held if JUNK.search(name)]


def test_the_source_archive_makes_the_same_wheel_and_holds_what_tests_need(dist, tmp_path):
    with tarfile.open(dist["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
    [tree] = tmp_path.iterdir()
    assert contents(build(tree, "wheel", tmp_path / "again")) == contents(dist["wheel"])
    held = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert not [name for name in held if JUNK.search(f"/{name}")]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert {name for name in tracked if not name.startswith((".", "deploy/"))} - held == {"Dockerfile", "compose.yaml"}


def told(wheel):
    """Return the metadata of a wheel, as an index shows it."""
    [metadata] = (held for name, held in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(metadata)


def test_metadata_say_where_everything_is(dist):
    metadata = told(dist["wheel"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert urls == project["urls"]
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert all(url.startswith("https://") for url in urls.values())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Requires-Python"] == ">=3.11"
    classifiers = metadata.get_all("Classifier")
    assert [one.rpartition(" ")[2] for one in classifiers if re.search(r"Python :: 3\.", one)] == ["3.11", "3.12"]
    assert [one for one in classifiers if one.startswith("Operating System")] == ["Operating System :: POSIX :: Linux"]
    assert set(metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])


def test_links_of_the_long_description_lead_to_the_tag(dist):
    metadata = told(dist["wheel"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown, readme = metadata.get_payload(decode=True).decode(), (ROOT / "README.md").read_text()
    targets, written = (re.findall(r"\]\(([^)\s]+)\)", text) for text in (shown, readme))
    assert len(targets) == len(written) > 20
    homes = {
        f"https://github.com/treeward/treeward/blob/v{metadata['Version']}/": False,
        f"https://raw.githubusercontent.com/treeward/treeward/v{metadata['Version']}/": True,
    }
    for target, local in zip(targets, written, strict=True):
        home = next((home for home in homes if target.startswith(home)), None)
        if home is None:
            assert target == local
            assert re.match("https://|#", target), target
        else:
            assert target.removeprefix(home) == local
            assert homes[home] == local.endswith((".png", ".svg"))
            assert (ROOT / local.partition("#")[0]).exists(), local
    assert re.sub(r"\]\([^)\s]+\)", "]()", shown).strip() == re.sub(r"\]\([^)\s]+\)", "]()", readme).strip()


def test_the_service_takes_no_more_room_than_the_docs_say(dist, tmp_path):
    """Most of it are compiled libraries: llvmlite, polars, scipy and numpy alone take more than 500 MB."""
    venv.create(tmp_path / "env", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "env" / "bin" / "python", "install", "--no-compile"]
    subprocess.run([*pip, "--quiet", "-c", ROOT / "constraints.txt", f"{dist['wheel']}[serve]"], check=True, env=CLEAN)
    size = sum(path.lstat().st_size for path in (tmp_path / "env").rglob("*") if path.is_file()) / 1e6
    said = re.search(r"takes (\d+) MB", (ROOT / "docs" / "install.md").read_text())[1]
    assert 0.9 * int(said) < size < 1.05 * int(said)


def test_it_installs_whole_and_is_sound(bare, place):
    assert use(bare, place, "python", "-m", "pip", "check").returncode == 0
    assert "Usage: treeward" in use(bare, place, "treeward", "--help").stdout
    done = use(bare, place, "treeward", "doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert found["sound"] is True
    assert {extra: found["extras"][extra]["complete"] for extra in found["extras"]} == dict.fromkeys(
        ("train", "serve", "postgres", "ray", "als"), False
    )
    assert found["extras"]["serve"]["get"].startswith("pip install 'treeward[serve]' -c ")
    assert all(one["tried"] == one["installed"] for one in found["packages"] if one["extra"] is None)


SNIPPET = """
import sys
import numpy as np
import treeward as tw

assert "/site-packages/" in tw.__file__, tw.__file__
shop = tw.Catalogue(range(500), np.random.default_rng(0).standard_normal((500, 8)))
explorer = tw.Explorer(shop, store=tw.SQLiteStore("events.db"), memory=1 << 22)
for _ in range(20):
    [made] = explorer.recommend(["ada"])
    explorer.feedback({made.id: 1.0})
explorer.store.close()
store = tw.SQLiteStore("events.db")
assert len(store.read(["ada"])[0]) >= 20
tw.ItemTree.build(shop.vectors, (5, 20)).draw("tree.html")
assert not {"torch", "ray", "uvicorn"} & set(sys.modules)
"""


def test_the_library_works_without_extras(bare, place):
    done = use(bare, place, "python", "-W", "error", "-c", SNIPPET)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("simulate --items 2000 --users 20 --rounds 30 -o curves.html", "curves.html"),
        ("tree build shards/0.npy -o grown", "grown/manifest.json"),
        ("tree draw grown -o tree.png", "tree.png"),
        ("tree draw grown -o tree.html", "tree.html"),
    ],
)
def test_the_base_compares_policies_and_draws(line, made, bare, place):
    done = use(bare, place, "treeward", *line.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert (place / made).stat().st_size > 500


WITHOUT = [
    ("serve", "demo --no-stay -o shop"),
    ("serve", "serve sequences.txt"),
    ("serve", "serve sequences.txt --store postgresql://nobody@localhost/nothing"),
    ("serve", "swap http://localhost:1 items"),
    ("serve", "items put http://localhost:1 items.csv"),
    ("serve", "items remove http://localhost:1 3"),
    ("serve", "tree health http://localhost:1"),
    ("postgres", "store copy postgresql://nobody@localhost/nothing new.db"),
    ("postgres", "store export postgresql://nobody@localhost/nothing out"),
    ("train", "embed text movies -o text --dim 8"),
    ("train", "embed gru sequences.txt -o gru --dim 8"),
    ("train", "embed neural sequences.txt -o neural"),
    ("train", "world fit sequences.txt -o world"),
    ("train", "experiment rewards sequences.txt -o rewards"),
    ("train", "experiment closed-loop sequences.txt -o loop"),
    ("train", "experiment frontier sequences.txt -o frontier"),
    ("train", "experiment rivals sequences.txt -o rivals"),
    ("train", "experiment rivals synthetic -o rivals-synthetic"),
    ("train", "experiment deep sequences.txt -o deep"),
    ("ray", "experiment rewards sequences.txt -o there --on ray://localhost:1"),
    ("ray", "experiment changing-catalogue -o living --on ray"),
    ("ray", "tree build shards -o tree --on ray://localhost:1"),
]


@pytest.mark.parametrize(("extra", "line"), WITHOUT, ids=lambda value: value)
def test_what_needs_an_extra_says_which(extra, line, bare, place):
    done = use(bare, place, "treeward", *line.split())
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert f"pip install 'treeward[{extra}]'" in done.stderr.splitlines()[-1]


ALS = """
import treeward as tw
from treeward.experiment.baselines import Factors
try:
    Factors.fit(None, None, 4, 0)
except tw.TreewardError as error:
    print(error)
"""


def test_als_says_which(bare, place):
    """A log is needed before ALS is, and torch before a log: so this is asked of the library."""
    assert use(bare, place, "python", "-c", ALS).stdout == "ALS needs implicit: pip install 'treeward[als]'\n"
