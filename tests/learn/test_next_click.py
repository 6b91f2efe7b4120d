"""Models of the next click."""

import numpy as np
import pytest

import treeward as tw
from tests.rings import ITEMS, ring_shop, rings
from treeward.core.errors import ArtefactError, DataError, InvalidArgument
from treeward.learn.clicks import clicks_of, last_clicks
from treeward.learn.networks import KINDS
from treeward.learn.next_click import NextClick, Settings, top_rows


@pytest.fixture(scope="module")
def shop():
    return ring_shop()


@pytest.fixture(scope="module")
def models(shop):
    settings = Settings(rate=0.01, passes=25, window=8)
    return {kind: NextClick.fit(kind, rings(600), rings(60, 1), shop, 16, settings=settings) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_predicts_the_next_click(models, shop, kind):
    held = last_clicks(clicks_of("test", rings(100, 2), shop))
    found = models[kind].top(held.histories, 3)
    recall = (found == held.following[:, None]).any(axis=1).mean()
    chance = 3 / (ITEMS - 5)
    assert recall > (0.9 if kind != "linear" else 3 * chance)  # a mean does not know which click was last
    assert models[kind].losses[-1] < models[kind].losses[0]
    for row, mine in zip(found.tolist(), held.histories, strict=True):
        assert len(set(row)) == 3
        assert not set(row) & set(mine.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_gives_the_same_vectors(models, kind, tmp_path):
    model = models[kind]
    model.save(tmp_path / "model")
    again = NextClick.load(tmp_path / "model")
    histories = [np.array([1, 2, 3]), np.array([25]), np.zeros(0, dtype=np.int64)]
    np.testing.assert_array_equal(model.user_vectors(histories), again.user_vectors(histories))
    assert not again.user_vectors(histories)[2].any()  # no clicks: zeros, so the popular items come first
    # A vector does not depend on the other histories of the batch.
    np.testing.assert_allclose(again.user_vector([25]), again.user_vectors(histories)[1], atol=1e-5)
    (tmp_path / "model" / "manifest.json").write_text("{}")
    with pytest.raises(ArtefactError):
        NextClick.load(tmp_path / "model")


def test_the_same_seed_gives_the_same_model(shop):
    settings = Settings(passes=2)
    for kind in KINDS:
        one, two, other = (
            NextClick.fit(kind, rings(40), rings(10, 1), shop, 8, seed=seed, settings=settings) for seed in (3, 3, 4)
        )
        np.testing.assert_array_equal(one.vectors, two.vectors)
        np.testing.assert_array_equal(one.weights, two.weights)
        assert not np.array_equal(one.vectors, other.vectors)


def test_many_items_are_learned_by_a_sampled_softmax():
    """More than 2,048 items: the softmax is over a sample, corrected for how it is drawn."""
    count = 2_400
    shop = tw.Catalogue(range(count))
    random = np.random.default_rng(0)
    starts = random.integers(0, count // 2, 3_000)  # the second half is never clicked
    log = tw.Interactions(np.repeat(np.arange(3_000), 2), np.stack([starts, (starts + 1) % (count // 2)], 1).ravel())
    valid = tw.Interactions(np.repeat(np.arange(200), 2), np.stack([np.arange(200), np.arange(1, 201)], 1).ravel())
    model = NextClick.fit("gru", log, valid, shop, 16, settings=Settings(rate=0.01, passes=10))
    assert model.losses[-1] < 0.8 * np.log(count)
    found = model.top([np.array([row]) for row in range(200)], 20)
    assert (found == np.arange(1, 201)[:, None]).any(axis=1).mean() > 0.3
    assert (found < count // 2).mean() > 0.9


def test_top_rows_leave_out_clicked_items_unless_included():
    scores = np.array([[0.1, 0.9, 0.5, 0.7]], dtype=np.float32)
    assert top_rows(scores.copy(), [np.array([1])], 2, include_clicked=False).tolist() == [[3, 2]]
    assert top_rows(scores.copy(), [np.array([1])], 4, include_clicked=True).tolist() == [[1, 3, 2, 0]]


def test_bad_logs_and_settings_are_refused(shop):
    log = rings(20)
    with pytest.raises(InvalidArgument, match="kind must be"):
        NextClick.fit("lstm", log, log, shop)
    with pytest.raises(InvalidArgument, match=r"start must be of shape \(40, 8\), and finite"):
        NextClick.fit("gru", log, log, shop, 8, start=np.zeros((3, 8), dtype=np.float32))
    single = tw.Interactions(["a"], ["i01"])
    with pytest.raises(DataError, match="no validation user clicked two things"):
        NextClick.fit("gru", log, single, shop)
    with pytest.raises(DataError, match="no training user clicked two things"):
        NextClick.fit("gru", single, log, shop)
    with pytest.raises(InvalidArgument, match="device must be one that torch has here"):
        NextClick.fit("gru", log, log, shop, device="zz")
    for wrong in ({"rate": 0}, {"window": 0}, {"passes": "x"}):
        with pytest.raises(InvalidArgument, match=f"{next(iter(wrong))} must be"):
            NextClick.fit("gru", log, log, shop, settings=Settings(**wrong))
    with pytest.raises(DataError, match="there are no validation users"):
        NextClick.fit("gru", log, tw.Interactions.of_table(log.table.head(0)), shop)
    model = NextClick.fit("linear", log, log, shop, 4, settings=Settings(passes=1))
    for history in ([ITEMS], [-1]):
        with pytest.raises(InvalidArgument, match="histories must be rows from 0 to 39"):
            model.user_vector(history)
    with pytest.raises(InvalidArgument, match="count must be"):
        model.top([np.array([1])], ITEMS + 1)
