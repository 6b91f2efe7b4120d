"""What an explorer estimates of users' fields and counts of items."""

import numpy as np
import pytest

import treeward as tw
from tests.browsing import SHOTS, browser, needs_browser, watched  # noqa: F401
from treeward.data.synthetic import synthetic_catalogue
from treeward.explorer.records import Totals


@pytest.mark.parametrize("name", ["phcb", "hcb", "beam", "flat"])
def test_fields_agree_with_interests_for_every_policy(name):
    shop = synthetic_catalogue(600, dim=8, seed=0)
    made = tw.Explorer(shop, policy=tw.policy.TREE_POLICIES[name](), seed=0, counts=True)
    for i in range(60):
        [d] = made.recommend(["ada"])
        made.feedback({d.id: float(i % 2)})
    told = made.inspect.field("ada")
    assert (told.upto, told.events) == (60, 60)
    assert told.visits[0] == 60
    assert told.reward[0] == 30.0
    assert np.isfinite(told.mean).all()
    assert min(told.width) > 0
    interests = {one.node: one for one in made.inspect.interests("ada")}
    for i, node in enumerate(told.nodes.node):
        if node in interests:
            assert told.mean[i] == pytest.approx(interests[node].mean, abs=1e-5)
            assert told.visits[i] == interests[node].visits
    counts = made.inspect.item_counts()
    assert counts.earned.sum() == 30.0
    assert made.forget("ada") == 60
    assert made.inspect.item_counts().earned.sum() == 0.0
    with pytest.raises(tw.InvalidArgument, match="counts"):
        tw.Explorer(shop, seed=0).inspect.item_counts()


def test_counts_are_recovered_from_the_store():
    shop, store = synthetic_catalogue(300, dim=4, seed=0), tw.MemoryStore()
    first = tw.Explorer(shop, store=store, exposures="all", on_repeat="last", counts=True, seed=0)
    for i in range(40):
        for d in first.recommend(["ada", "bob"], n=2):
            first.feedback({d.id: i / 40})
            first.feedback({d.id: 1.0})
    first.ingest(tw.Interactions(["eva"] * 3, shop.ids[:3]))
    again = tw.Explorer(shop, store=store, exposures="all", counts=True, seed=0)
    mine, theirs = first.inspect.item_counts(), again.inspect.item_counts()
    np.testing.assert_allclose(mine.shown, theirs.shown)
    np.testing.assert_allclose(mine.earned, theirs.earned)
    assert (mine.shown.sum(), mine.earned.sum()) == (160, pytest.approx(163.0))
    assert first.inspect.totals() == Totals(int((mine.shown > 0).sum()), 163, pytest.approx(163.0))
    assert (again.inspect.totals().rewards, again.inspect.totals().earned) == (0, 0.0)
    nodes = np.arange(len(first.tree.parent))
    assert first.inspect.node_counts(nodes).shown[0] == 160


def test_bold_decisions_reject_a_higher_mean():
    shop = synthetic_catalogue(500, dim=8, seed=0)
    meek = tw.Explorer(shop, policy=tw.Beam(tw.LinUCB(alpha=0.0), fresh=0.0), seed=0)
    bold = tw.Explorer(shop, policy=tw.Beam(tw.LinUCB(alpha=5.0)), seed=0)
    said = {}
    for name, made in (("meek", meek), ("bold", bold)):
        told = []
        for i in range(80):
            [d] = made.recommend(["ada"])
            made.feedback({d.id: float(i % 3 == 0)})
            best = max(one.mean for one in made.explain(d).steps[-1].considered)
            assert d.bold == (best > d.mean + 1e-6) or abs(best - d.mean) < 1e-5
            told.append(d.bold)
        said[name] = sum(told)
    assert said["meek"] == 0
    assert said["bold"] > 20
