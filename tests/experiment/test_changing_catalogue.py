"""`experiment changing-catalogue`: ways to keep a tree while items come and go, run, resumed and reported."""

import pytest

import treeward as tw
from tests.commands import run as cli
from treeward.core.errors import ArtefactExists
from treeward.experiment.changing_catalogue import (
    WAYS,
    ChangingCatalogue,
    load_changing_catalogue,
    run_changing_catalogue,
)
from treeward.experiment.changing_catalogue_report import way_summaries, write_changing_catalogue


def test_a_run_that_was_cut_short_goes_on_with_equal_results(tmp_path):
    spec = ChangingCatalogue(items=400, users=30, days=5, rounds=8, churn=(0.1, 0.3), repeats=1)
    lived = run_changing_catalogue(spec, tmp_path / "run", processes=2)
    assert lived.rewards.height == 2 * len(WAYS) * 30 * 5
    assert lived.rewards["reward"].is_between(0, 8).all()
    lines = way_summaries(lived)
    assert [one.share for one in lines if one.way == "rebuilt every day"] == [1.0, 1.0]
    static = [one for one in lines if one.way == "static"]
    assert [(one.within_1, one.within_3) for one in static] == [(0.0, 0.0)] * 2
    assert any(one.within_3 > 0 for one in lines)
    pages = write_changing_catalogue(lived, tmp_path / "run")
    assert "A changing catalogue" in pages[0].read_text()
    gone = sorted((tmp_path / "run" / "cells").iterdir())[3]
    for file in gone.iterdir():
        file.unlink()
    told = cli("experiment", "changing-catalogue", "-o", tmp_path / "run", "--items", 400, "--users", 30, "--days", 5,
               "--rounds", 8, "--churn", "0.1,0.3", "--repeats", 1)  # fmt: skip
    assert told.count("static") == 2
    assert "must be numbers separated by commas" in cli(
        "experiment", "changing-catalogue", "-o", tmp_path / "x", "--churn", "a", code=2
    )
    again = load_changing_catalogue(tmp_path / "run")
    assert again.rewards.equals(lived.rewards)
    assert again.waits.equals(lived.waits)
    with pytest.raises(ArtefactExists, match="another experiment"):
        run_changing_catalogue(ChangingCatalogue(items=500), tmp_path / "run")
    for bad in ({"churn": ()}, {"churn": (0.9,)}, {"users": 0}, {"items": 3}):
        with pytest.raises(tw.InvalidArgument):
            run_changing_catalogue(ChangingCatalogue(**bad), tmp_path / "bad")
