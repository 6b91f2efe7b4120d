"""`treeward experiment regret`: measured regret over catalogue sizes, next to the paper's bounds."""

import math

import polars as pl
import pytest

from tests.commands import run as cli
from treeward.core.errors import InvalidArgument
from treeward.experiment.regret import ARMS, Sizes, bound_hcb, bound_linucb, measure_regret

SMALL = Sizes(items=(200, 1_000), users=4, rounds=30, repeats=2, dim=8)


def test_trees_shrink_tenfold_down_to_the_items():
    assert SMALL.spec(200).widths == (10,)
    assert Sizes().spec(1_000).widths == (10, 100)
    assert Sizes().spec(100_000).widths == (10, 100, 1_000, 10_000)


def test_bounds_are_those_of_the_paper():
    assert bound_hcb(1_000, 400, 16) == pytest.approx((16 + 4) * 3 * math.sqrt(10 * 400))
    growth = bound_linucb(100_000, 400, 16) / bound_linucb(1_000, 400, 16)
    logs = [math.log(items * 400 * math.log(400) / 0.05) for items in (100_000, 1_000)]
    assert growth == pytest.approx((logs[0] / logs[1]) ** 1.5)
    assert bound_hcb(100_000, 400, 16) / bound_hcb(1_000, 400, 16) == pytest.approx(5 / 3)


def test_regret_is_measured_and_reported(tmp_path):
    told = cli(
        "experiment", "regret", "-o", tmp_path / "run", "--items", "200,1000", "--users", 4, "--rounds", 30,
        "--repeats", 2, "--dim", 8, "--processes", 1,
    )  # fmt: skip
    assert "LinUCB's bound grows by 1.00" in told
    made = measure_regret(SMALL, tmp_path / "run", processes=1)  # finished: nothing is computed again
    assert [(row.items, row.arm) for row in made.rows] == [(n, arm.label) for n in (200, 1_000) for arm in ARMS]
    for row in made.rows:
        assert 0 < row.regret.mean < 30
        assert row.growth == 1 or row.items == 1_000
        assert 0 < row.best <= 1
    assert pl.read_csv(tmp_path / "run" / "report.csv").height == 8
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Growth with the catalogue" in page
    assert "HCB&#x27;s bound" in page
    assert (tmp_path / "run" / "report.png").read_bytes().startswith(b"\x89PNG")


def test_bad_sizes_are_refused(tmp_path):
    for wrong in ((), (1_000, 200), (200, 200), (50,)):
        with pytest.raises(InvalidArgument, match="items must be"):
            measure_regret(SMALL._replace(items=wrong), tmp_path)
    assert "integers separated by commas" in cli("experiment", "regret", "-o", tmp_path, "--items", "many", code=2)
