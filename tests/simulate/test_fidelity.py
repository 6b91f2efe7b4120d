"""How far worlds are to be trusted: evidence, pages, worlds of matrices."""

import json
import re
from math import comb

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run
from tests.simulate.test_fit import FAST, shown_to_everybody
from treeward.core.errors import InvalidArgument
from treeward.simulate import World
from treeward.simulate.fidelity import calibration
from treeward.simulate.fidelity_page import render
from treeward.simulate.fit import fit
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def truth():
    return World(*vivid(items=150, users=300, dim=8, seed=2))


@pytest.fixture(scope="module")
def learned(truth):
    return World.fit(shown_to_everybody(truth, skips=False), tw.Catalogue(range(150)), **FAST)


def test_a_learned_world_brings_its_evidence(learned, tmp_path):
    told = learned.fidelity(users=100)
    assert [one.name for one in told.accounts] == [
        "with weights",
        "without weights",
        "popularity alone",
        "the same chance for all",
    ]
    weighted, plain, popular, constant = told.accounts
    assert weighted.auc == learned.provenance["auc"]
    assert plain.auc == learned.provenance["auc_unweighted"]
    assert popular.auc == learned.provenance["auc_popularity"]
    assert constant.log_loss > plain.log_loss
    assert weighted.popularity < plain.popularity  # less of the exposure passes for taste
    assert sum(bin.events for bin in weighted.calibration) == learned.provenance["held_out"]
    assert 0 <= weighted.calibration_error < 0.2
    learned.save(tmp_path / "world")
    assert World.load(tmp_path / "world").fidelity(users=100) == told
    alone = World.fit(shown_to_everybody(World.synthetic(150, 100, 8), times=20), tw.Catalogue(range(150)), **FAST,
                      exposure="none")  # fmt: skip
    assert [one.name for one in alone.fidelity(50).accounts][:2] == ["without weights", "popularity alone"]


def slow_lists(world, made, score, count):
    """HR@k and NDCG@k of all users, by sorting all items that were not rewarded in training."""
    hits, gains = [], []
    for user in range(world.users):
        liked, seen = (set(part.item[(part.user == user) & (part.reward > 0)]) for part in (made.held_out, made.train))
        if liked:
            order = [item for item in np.argsort(-score(user), kind="stable").tolist() if item not in seen]
            found = [item in liked for item in order[:count]]
            best = sum(1 / np.log2(place + 2) for place in range(min(count, len(liked))))
            hits.append(any(found))
            gains.append(sum(one / np.log2(place + 2) for place, one in enumerate(found)) / best)
    return np.mean(hits), np.mean(gains), len(hits)


def test_hit_rate_and_ndcg_rank_all_items_that_were_not_rewarded_in_training(truth, learned):
    made = fit(shown_to_everybody(truth, skips=False), tw.Catalogue(range(150)), **FAST)
    for count in (3, 10):
        told = learned.fidelity(users=20, count=count)
        weighted, plain, popular, constant = told.accounts
        hits, gains, users = slow_lists(learned, made, learned.probabilities, count)
        assert (weighted.hit_rate, weighted.ndcg) == pytest.approx((hits, gains), abs=1e-6)
        assert (told.ranked, told.count) == (users, count)
        assert plain.hit_rate > constant.hit_rate
        assert popular.ndcg > constant.ndcg
        assert f"HR@{count}" in render(told).decode()
        assert json.loads(told.json())["accounts"][0]["ndcg"] == weighted.ndcg
    # In no order, any ten of the candidates are as likely to be the first as any others.
    seen, liked = (np.bincount(part.user[part.reward > 0], minlength=300) for part in (made.train, made.held_out))
    pairs = [(150 - mine, wanted) for mine, wanted in zip(seen.tolist(), liked.tolist(), strict=True) if wanted]
    chances = [1 - comb(candidates - wanted, 10) / comb(candidates, 10) for candidates, wanted in pairs]
    assert constant.hit_rate == pytest.approx(np.mean(chances))
    with pytest.raises(InvalidArgument, match="count must be an integer of at least 1"):
        learned.fidelity(count=0)


def test_a_world_without_rankings_still_tells_the_rest(learned, tmp_path):
    old = World(learned.catalogue, *learned.tastes[:4], provenance=learned.provenance,
                evidence=learned.evidence._replace(ranking=None))  # fmt: skip
    old.save(tmp_path / "old")
    told = World.load(tmp_path / "old").fidelity(users=20)
    assert told.accounts[0].auc == learned.fidelity(users=20).accounts[0].auc
    assert {one.hit_rate for one in told.accounts} == {one.ndcg for one in told.accounts} == {None}
    assert told.ranked == 0
    assert b"HR@10" in render(told)


def test_spread_is_what_the_users_would_earn():
    rewards = np.zeros((40, 20))
    rewards[:, 3] = 0.5  # everybody likes it a little
    rewards[np.arange(40), 4 + np.arange(40) % 16] = 1.0  # and loves one of their own
    told = World.from_matrix(rewards, tw.Catalogue(range(20))).fidelity()
    one, ten = told.spread
    assert (one.size, ten.size) == (1, 10)
    assert one.own == 1.0
    assert one.common == 0.5
    alike = World.from_matrix(np.tile(np.linspace(0, 1, 20), (9, 1)), tw.Catalogue(range(20))).fidelity()
    assert b"cannot tell a good policy from a popularity list" in render(alike)
    assert alike.spread[0].own == alike.spread[0].common == 1.0
    assert one.random == pytest.approx(rewards.mean())
    assert ten.own == pytest.approx(0.15)
    assert told.accounts == ()
    assert told.gains == (0.5,) * 40


def test_calibration_bins_hold_equally_many():
    chances = np.linspace(0.01, 0.99, 1_000)
    rewards = (np.random.default_rng(0).uniform(size=1_000) < chances).astype(np.float32)
    bins = calibration(chances, rewards)
    assert {bin.events for bin in bins} == {100}
    assert max(abs(bin.predicted - bin.observed) for bin in bins) < 0.15
    assert calibration(chances[:3], rewards[:3])[0].events == 1
    even = calibration(np.full(1_000, 0.2), np.repeat([1, 0], [200, 800]).astype(np.float32))
    assert max(abs(bin.observed - 0.2) for bin in even) < 0.15  # the order of rewards does not matter


def test_fidelity_is_written_as_page_and_json(learned, truth, tmp_path):
    told = learned.fidelity(users=50)
    page = told.save(tmp_path / "world.html").read_text()
    assert "How far to trust this world" in page
    assert not re.search(r"""<(script|link|img|iframe)[^>]*(src|href)""", page)  # nothing is fetched
    figures = json.loads(told.save(tmp_path / "world.json").read_bytes())
    assert figures["accounts"][0]["auc"] == told.accounts[0].auc
    assert figures["spread"][0]["own"] == told.spread[0].own
    plain = truth.fidelity(users=20).save(tmp_path / "truth.html").read_text()
    assert "nothing to check it against" in plain
    with pytest.raises(InvalidArgument, match=r"a file ending in .html or .json"):
        told.save(tmp_path / "world.txt")


def test_weights_do_not_reveal_what_is_held_out(truth):
    log = shown_to_everybody(truth, times=30, skips=False)
    whole = fit(log, tw.Catalogue(range(150)), **FAST)
    train = whole.train.reward > 0
    liked = np.bincount(whole.train.item[train], minlength=150)
    np.testing.assert_array_equal(whole.liked, liked)
    raw = liked**0.5
    np.testing.assert_allclose(whole.propensity, np.maximum(raw / raw.mean(), 0.1), rtol=1e-5)


def test_wrong_types_are_refused(truth):
    log, shop = shown_to_everybody(truth, times=5), tw.Catalogue(range(150))
    with pytest.raises(InvalidArgument, match="interactions must be of type Interactions, got 'list'"):
        World.fit([1, 2], shop)
    with pytest.raises(InvalidArgument, match="catalogue must be of type Catalogue, got 'list'"):
        World.fit(log, [1, 2])
    with pytest.raises(InvalidArgument, match="a Catalogue"):
        World.from_matrix(np.eye(2), [1, 2])
    world = World.fit(log, shop, **{**FAST, "dim": np.int64(4), "seed": np.int64(3)})
    assert world.fidelity(10).json()
    with pytest.raises(InvalidArgument, match="rate must be small enough"):
        World.fit(log, shop, rate=1e30, decay=1e30)


def test_drawn_items_top_up_few_skips(truth):
    log = shown_to_everybody(truth)
    clicks = log.table.filter(pl.col("reward") > 0)
    few = pl.concat([clicks, log.table.filter(pl.col("reward") <= 0)[: clicks.height // 2]])
    made = fit(tw.Interactions(few["user"], few["item"], rewards=few["reward"]), tw.Catalogue(range(150)), **FAST)
    assert made.settings["exposure"] == "popularity"
    assert made.train.reward.mean() == pytest.approx(0.2, abs=0.05)
    pairs = [set(zip(part.user.tolist(), part.item.tolist(), strict=True)) for part in (made.train, made.held_out)]
    assert not pairs[0] & pairs[1]  # nothing that is held out is learned from, negatives included


def test_world_commands_fit_and_report(truth, tmp_path):
    log = shown_to_everybody(truth, skips=False)
    log.table.select("user", "item").write_csv(tmp_path / "events.csv")
    world, page = tmp_path / "world", tmp_path / "page.html"
    assert "without weights" in run("world", "fit", tmp_path / "events.csv", "-o", world, "--dim", "8")
    both = run("world", "report", world, "-o", page, "-o", tmp_path / "told.json", "--users", "50")
    assert "own best" in both
    assert page.exists()
    assert (tmp_path / "told.json").exists()
    assert "outside of what treeward saved" in run("world", "report", world, "-o", world / "manifest.json", code=2)
    assert "--out must be one of .html, .json" in run("world", "report", world, "-o", "page.pdf", code=2)
    assert "which `treeward world fit` makes" in run("world", "report", tmp_path / "nowhere", code=2, width=300)
