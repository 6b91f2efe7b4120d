"""Where public data sets are found, and whether a copy is the right one."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from tests.commands import run
from treeward.core.errors import DataError
from treeward.data.loaders import LOADERS, kind_of, load_dataset
from treeward.data.public_sets import MEASURED, PUBLISHED, PublicFile, PublicSet, check_copy, public_sets

SLICES = Path(__file__).parents[3] / "shared" / "data"
RESULTS = Path(__file__).parents[2] / "docs" / "results"


def digest(text):
    return sha256(text.encode()).hexdigest()


@pytest.fixture
def tiny(monkeypatch):
    """A data set of two files, of which one has another name and folder where it is found."""
    log = PublicFile("log.txt", "there/all.txt", {PUBLISHED: digest("events"), MEASURED: digest("some events")})
    known = PublicSet("A log", "https://example.org", "none stated", "sequences",
                      (log, PublicFile("items.txt", "items.txt", {PUBLISHED: digest("items")})), "A note.")  # fmt: skip
    monkeypatch.setattr("treeward.cli.data.public_sets", lambda: {"tiny": known, "other": known})
    return known


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "my copy"
    folder.mkdir()
    (folder / "log.txt").write_text("events")
    (folder / "items.txt").write_text("items")
    return folder


def test_a_good_copy_passes(tiny, copy):
    assert [one.copy for one in check_copy(tiny, copy)] == [PUBLISHED, PUBLISHED]
    told = run("data", "fetch", "tiny", copy, width=300)
    assert "log.txt is as published" in told
    assert "All files of tiny are there, and none differs." in told
    assert run("data", "fetch", "tiny", copy / "log.txt", width=300) == told
    (copy / "log.txt").write_text("some events")
    assert "log.txt is as measured for the docs" in run("data", "fetch", "tiny", copy, width=300)


def test_each_file_that_differs_is_named_with_both_sums(tiny, copy):
    (copy / "log.txt").write_text("event")
    (copy / "items.txt").unlink()
    error = run("data", "fetch", "tiny", copy, code=2, width=300)
    assert f"error: {copy}: missing or different: log.txt, items.txt" in error
    first, second = check_copy(tiny, copy)
    assert str(first) == (
        f"log.txt differs: its SHA-256 is {digest('event')}, not {digest('events')} (as published) or "
        f"{digest('some events')} (as measured for the docs)"
    )
    assert str(second) == "items.txt is missing"


def test_a_file_under_its_published_name_is_named(tiny, copy):
    (copy / "there").mkdir()
    (copy / "log.txt").rename(copy / "there" / "all.txt")
    assert str(check_copy(tiny, copy)[0]) == (
        f"log.txt is missing: move {copy / 'there' / 'all.txt'} to {copy / 'log.txt'}"
    )


def test_bad_names_and_folders_are_refused(tiny, copy):
    assert "data fetch: NAME must be one of tiny, other" in run("data", "fetch", "tidy", copy, code=2)
    with pytest.raises(DataError, match="nowhere: cannot be read: there is no such file or folder"):
        check_copy(tiny, copy / "nowhere")
    assert "nowhere: cannot be read" in run("data", "fetch", "tiny", "nowhere", cwd=copy, code=2)


def test_every_set_says_where_it_is_found_and_what_is_read(tiny):
    told = run("data", "fetch", width=300)
    assert told.count("https://example.org") == 2
    assert "log.txt (there: there/all.txt), items.txt" in told
    assert "A note." in told
    assert "Nothing is downloaded" in told
    assert run("data", "fetch", "other", width=300).count("https://example.org") == 1


def test_the_table_is_sound():
    assert list(public_sets())[:8] == [
        "sports", "beauty", "movielens-small", "movietweetings", "taobao", "mind", "coat", "open-bandit",
    ]  # fmt: skip
    for known in public_sets().values():
        assert known.loader in LOADERS
        assert known.found.startswith("https://")
        assert known.terms
        for file in known.files:
            assert file.known
            assert all(re.fullmatch("[0-9a-f]{64}", sum) for sum in file.known.values())
            assert known.note or MEASURED not in file.known


def test_results_were_measured_on_sets_that_are_listed():
    used = {name for path in RESULTS.glob("*.json") for name in json.loads(path.read_text())["data_sha256"]}
    assert used <= {name for name, known in public_sets().items() if known.figures}


@pytest.mark.skipif(not SLICES.is_dir(), reason="the slices of real data are not here")
@pytest.mark.parametrize("name", [name for name, known in public_sets().items() if known.figures])
def test_the_shared_copies_are_those_that_were_measured(name):
    known = public_sets()[name]
    for one in check_copy(known, SLICES / name):
        assert one.copy == (MEASURED if MEASURED in one.file.known else PUBLISHED), str(one)
    place = SLICES / name / Path(known.files[0].name).parent
    assert kind_of(place) == known.loader
    if name in ("coat", "open-bandit"):  # the smallest
        assert load_dataset(place).source["loader"] == known.loader
