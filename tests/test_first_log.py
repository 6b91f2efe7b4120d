"""A shop's first evening: a product table without vectors, and a log of views, carts and purchases."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run
from treeward.core.errors import DataError
from treeward.experiment import Spec

KINDS = ("kettle", "scarf", "spade", "lamp", "novel", "puzzle", "racket", "mug", "tent", "drill")
LOG = ("--column", "user=visitor", "--column", "item=product", "--column", "time=at")
ITEMS = ("--column", "id=sku", "--column", "title=name")
ACTIONS = ("--action", "view=0.1", "--action", "cart=0.5", "--action", "buy=1")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Products in ten categories; visitors who like two of them each, and popular products everybody looks at."""
    folder = tmp_path_factory.mktemp("shop")
    draw = np.random.default_rng(0)
    kind = draw.integers(0, len(KINDS), 400)
    words = draw.integers(0, 30, 400)
    products = {
        "sku": [f"SKU-{row}" for row in range(400)],
        "name": [f"{KINDS[k]} style{w}" for k, w in zip(kind, words, strict=True)],
        "description": [f"a {KINDS[k]} of make{w % 7}" for k, w in zip(kind, words, strict=True)],
        "category": [KINDS[k] for k in kind],
        "price": draw.uniform(1, 99, 400).round(2),
        "stock": draw.integers(0, 50, 400),
    }
    pl.DataFrame(products).write_csv(folder / "products.csv")
    rows = []
    for visitor in range(300):
        likes = draw.choice(len(KINDS), 2, replace=False)
        mine = np.flatnonzero(np.isin(kind, likes) & (np.arange(400) < 380))  # the last 20 are new: nobody met them
        weight = 1 / (1 + mine % 25)
        for number, product in enumerate(draw.choice(mine, 12, replace=False, p=weight / weight.sum())):
            action = "view" if number < 8 else "cart" if number < 10 else "buy" if number < 11 else "wishlist"
            rows.append((f"v{visitor}", f"SKU-{product}", action, 1_700_000_000 + visitor * 60 + number))
    pl.DataFrame(rows, ("visitor", "product", "action", "at"), orient="row").write_csv(folder / "events.csv")
    return folder


def test_ids_that_are_row_numbers_are_said_to_be(tmp_path):
    pl.DataFrame({"sku": ["a", "b", "c"], "vector": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]}).write_parquet(
        tmp_path / "items.parquet"
    )
    told = run("tree", "build", tmp_path / "items.parquet", "-o", tmp_path / "tree")
    assert "no column is called id, so items go by their row numbers, 0 to 2" in told
    assert "--column id=NAME (it has sku)" in told
    told = run("tree", "build", tmp_path / "items.parquet", "-o", tmp_path / "tree", "--force", "--column", "id=sku")
    assert "row numbers" not in told
    assert tw.Catalogue.load(tmp_path / "items.parquet").numbered
    assert not tw.Catalogue.load(tmp_path / "items.parquet", columns={"id": "sku"}).numbered


def test_a_table_without_vectors_is_told_what_makes_them(shop):
    with pytest.raises(DataError, match=r"treeward embed text \S*products.csv -o items makes them of what items say"):
        tw.Catalogue.load(shop / "products.csv")
    bare = tw.Catalogue.load(shop / "products.csv", columns={"id": "sku"}, need_vectors=False)
    assert (len(bare), bare.dim, bare.ids[3]) == (400, 0, "SKU-3")


def test_actions_are_weighed_and_others_left_out(shop):
    told = run("data", "inspect", shop / "events.csv", *LOG, *ACTIONS, "--items", shop / "products.csv", *ITEMS)
    assert "event of the action wishlist, which has no weight" in told
    assert "300" in next(line for line in told.splitlines() if "action wishlist, left out" in line)
    assert "0" in next(line for line in told.splitlines() if line.strip().startswith("skips"))
    data = tw.load_dataset(
        shop / "events.csv",
        columns={"user": "visitor", "item": "product", "time": "at", "id": "sku"},
        actions={"view": 0.1, "cart": 0.5, "buy": 1},
        items=str(shop / "products.csv"),
    )
    assert sorted(data.interactions.rewards.unique()) == [0.1, 0.5, 1.0]
    assert len(data.interactions) == 300 * 11
    assert data.dropped["event of the action wishlist, which has no weight"].times == 300
    log = tw.Interactions.load(
        shop / "events.csv", columns={"user": "visitor", "item": "product", "time": "at"}, actions={"buy": 1, "view": 0}
    )
    assert log.table.group_by("reward").len().sort("reward").rows() == [(0.0, 2400), (1.0, 300)]


def test_an_action_that_no_event_has_is_an_error_that_lists_those_found(shop):
    told = run("data", "inspect", shop / "events.csv", *LOG, "--action", "purchase=1", code=1)
    assert "no event of the log has the action 'purchase'; it has view (2,400 times), cart (600 times)" in told
    assert "--action must be of the form NAME=WEIGHT" in run(
        "data", "inspect", shop / "events.csv", *LOG, "--action", "buy=much", code=1
    )


def test_a_log_of_actions_without_weights_is_said_to_count_each_the_same(shop):
    told = run("data", "inspect", shop / "events.csv", *LOG)
    assert "Every event counts 1, whatever its action (view 2,400, cart 600" in told


def test_wrong_columns_are_named_with_those_there_are(shop):
    told = run("data", "inspect", shop / "events.csv", code=1)
    assert "no column 'user' for the user; it has visitor, product, action, at. Name one: --column user=NAME" in told
    assert "--column must be a role of user, item, reward, action, time, id" in run(
        "data", "inspect", shop / "events.csv", "--column", "who=visitor", code=1
    )
    told = run("data", "inspect", shop / "events.csv", *LOG, "--items", shop / "products.csv", code=1)
    assert "no column is called id, so they are row numbers: --column id=NAME" in told


def test_experiments_take_columns_and_actions(shop, tmp_path):
    """The command of the guide, in small: a spec with mapped columns is run, written down and read again."""
    told = run(
        "experiment", "rewards", shop / "events.csv", "-o", tmp_path / "run", *LOG, *ACTIONS, "--users", 3,
        "--rounds", 3, "--repeats", 1, "--dim", 4, "--processes", 1, "--items", shop / "products.csv", *ITEMS,
    )  # fmt: skip
    assert "HUCB" in told
    assert Spec.from_toml((tmp_path / "run" / "spec.toml").read_text()).loader_options["actions"]["buy"] == 1
