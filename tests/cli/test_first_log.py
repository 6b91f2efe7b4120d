"""A shop's first evening: a product table without vectors, and a log of views, carts and purchases."""

import re
import shlex

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


COUNTS = {"view": 12_732, "cart": 2_223, "buy": 982, "wishlist": 641}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Products in ten categories; visitors who like two of them, and look at what is popular; a few carts and buys."""
    folder = tmp_path_factory.mktemp("shop")
    draw = np.random.default_rng(0)
    kind, words, count = draw.integers(0, len(KINDS), 600), draw.integers(0, 30, 600), 600
    products = {
        "sku": [f"SKU-{row}" for row in range(count)],
        "name": [f"{KINDS[k]} style{w}" for k, w in zip(kind, words, strict=True)],
        "description": [f"a {KINDS[k]} of make{w % 7}" for k, w in zip(kind, words, strict=True)],
        "category": [KINDS[k] for k in kind],
        "price": draw.uniform(1, 99, count).round(2),
        "stock": draw.integers(0, 50, count),
    }
    pl.DataFrame(products).write_csv(folder / "products.csv")
    popular = 1 / (1 + draw.permutation(count)) ** 0.7
    popular[-20:] = 0  # the last 20 are new: nobody met them
    rows = []
    for visitor in range(1_500):
        weight = popular * np.where(np.isin(kind, draw.choice(len(KINDS), 2, replace=False)), 15, 1)
        met = draw.choice(count, draw.integers(4, 14), replace=False, p=weight / weight.sum())
        for product, luck in zip(met, draw.random(len(met)).tolist(), strict=True):
            did = ["view"] + ["cart"] * (luck < 0.18) + ["buy"] * (luck < 0.08) + ["wishlist"] * (luck > 0.95)
            rows += [(f"v{visitor}", f"SKU-{product}", one, 1_700_000_000 + visitor * 60) for one in did]
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
    assert tw.Catalogue.load(tmp_path / "items.parquet").ids_are_row_numbers
    assert not tw.Catalogue.load(tmp_path / "items.parquet", columns={"id": "sku"}).ids_are_row_numbers


def test_a_table_without_vectors_is_told_what_makes_them(shop):
    with pytest.raises(DataError, match=r"treeward embed text \S*products.csv -o items makes them from texts"):
        tw.Catalogue.load(shop / "products.csv")
    bare = tw.Catalogue.load(shop / "products.csv", columns={"id": "sku"}, need_vectors=False)
    assert (len(bare), bare.dim, bare.ids[3]) == (600, 0, "SKU-3")


def test_actions_are_weighed_and_others_left_out(shop):
    told = run("data", "inspect", shop / "events.csv", *LOG, *ACTIONS, "--items", shop / "products.csv", *ITEMS)
    assert "event of the action wishlist, which has no weight" in told
    assert "641" in next(line for line in told.splitlines() if "action wishlist, left out" in line)
    assert "0" in next(line for line in told.splitlines() if line.strip().startswith("skips"))
    data = tw.load_dataset(
        shop / "events.csv",
        columns={"user": "visitor", "item": "product", "time": "at", "id": "sku"},
        actions={"view": 0.1, "cart": 0.5, "buy": 1},
        items=str(shop / "products.csv"),
    )
    assert sorted(data.interactions.rewards.unique()) == [0.1, 0.5, 1.0]
    assert len(data.interactions) == sum(COUNTS.values()) - COUNTS["wishlist"]
    assert data.dropped["event of the action wishlist, which has no weight"].times == COUNTS["wishlist"]
    log = tw.Interactions.load(
        shop / "events.csv", columns={"user": "visitor", "item": "product", "time": "at"}, actions={"buy": 1, "view": 0}
    )
    assert log.table.group_by("reward").len().sort("reward").rows() == [(0.0, COUNTS["view"]), (1.0, COUNTS["buy"])]


def test_an_action_that_no_event_has_is_an_error_that_lists_those_found(shop):
    told = run("data", "inspect", shop / "events.csv", *LOG, "--action", "purchase=1", code=2)
    assert "no event of the log has the action 'purchase'; it has view (12,732 times), cart (2,223 times)" in told
    assert "--action must be of the form NAME=WEIGHT" in run(
        "data", "inspect", shop / "events.csv", *LOG, "--action", "buy=much", code=2
    )


def test_a_log_of_actions_without_weights_is_said_to_count_each_the_same(shop):
    told = run("data", "inspect", shop / "events.csv", *LOG)
    assert "Every event counts 1, whatever its action (view 12,732, cart 2,223" in told


def test_wrong_columns_are_named_with_those_there_are(shop):
    told = run("data", "inspect", shop / "events.csv", code=2)
    assert "no column 'user' for the user, no column 'item' for the item; it has visitor, product, action, at." in told
    assert "Name them: --column user=NAME --column item=NAME" in told
    assert "--column must be a role of user, item, reward, action, time, id" in run(
        "data", "inspect", shop / "events.csv", "--column", "who=visitor", code=2
    )
    told = run("data", "inspect", shop / "events.csv", *LOG, "--items", shop / "products.csv", code=2)
    assert "no column is called id, so they are row numbers: --column id=NAME (it has category, sku, name," in told
    vectors = pl.DataFrame({"sku": ["SKU-1", "SKU-2"], "vector": [[1.0, 0.0], [0.0, 1.0]]})
    vectors.write_parquet(shop / "vectors.parquet")
    told = run(
        "prior", "fit", shop / "events.csv", *LOG, "--items", shop / "vectors.parquet", "-o", shop / "no", code=2
    )
    assert "no column is called id, so they are row numbers: --column id=NAME (it has sku)" in told


def test_columns_of_a_log_that_are_not_used_are_named(shop):
    pl.read_csv(shop / "events.csv").head(500).rename({"action": "what"}).write_csv(shop / "what.csv")
    told = run("data", "inspect", shop / "what.csv", *LOG)
    assert "Columns not used: what. Every event counts 1." in told
    assert "--column action=NAME, and --action NAME=WEIGHT" in told
    assert "Columns not used" not in run("data", "inspect", shop / "what.csv", *LOG, "--column", "action=what")


def test_experiments_take_columns_and_actions(shop, tmp_path):
    """The command of the guide, in small: a spec with mapped columns is run, written down and read again."""
    told = run(
        "experiment", "rewards", shop / "events.csv", "-o", tmp_path / "run", *LOG, *ACTIONS, "--users", 3,
        "--rounds", 3, "--repeats", 1, "--dim", 4, "--processes", 1, "--items", shop / "products.csv", *ITEMS,
    )  # fmt: skip
    assert "HUCB" in told
    assert Spec.from_toml((tmp_path / "run" / "spec.toml").read_text()).loader_options["actions"]["buy"] == 1


@pytest.fixture(scope="module")
def fitted(shop):
    """Vectors, a prior, and one that takes views for skips, with the output of each command."""
    told = {}
    for name, weights, dim in (("items", ACTIONS, 8), ("items0", SKIPS, 24)):
        told[name] = run(
            "embed", "svd", "events.csv", "-o", name, "--items", shop / "products.csv", *LOG, *ITEMS, *weights,
            "--dim", dim, cwd=shop,
        )  # fmt: skip
    hint = re.search(r"Next: treeward (prior fit .*)", told["items"])[1]
    told["prior"] = run(*shlex.split(hint), cwd=shop)  # as it is printed
    told["prior0"] = run("prior", "fit", "events.csv", "--items", "items0", "-o", "prior0", *LOG, *SKIPS, cwd=shop)
    return told


SKIPS = ("--action", "view=0", "--action", "buy=1")


def test_prior_fit_says_what_the_prior_is_expected_to_earn(fitted):
    told = fitted["prior"]
    assert re.search(r"This prior is expected to earn 0\.\d+ per recommendation", told)
    assert re.search(r"(more than|about as much as) a list of the most popular items \(0\.\d+; difference", told)
    assert "more than no prior (0." in told
    assert "warning" not in told
    assert "Next: treeward tree build items --prior prior -o tree" in told


def test_a_prior_that_takes_views_for_skips_is_warned_about(fitted):
    told = fitted["prior0"]
    assert "warning: This prior may do harm: it earns 0." in told
    assert "less than a list of the most popular items" in told
    assert "view counted as skips (weight 0): give them a small weight, or leave them out." in told
    assert "Next:" not in told


def test_a_prior_can_be_tried_in_python(shop, fitted):
    data = tw.load_dataset(
        shop / "events.csv",
        columns={"user": "visitor", "item": "product"},
        actions={"view": 0.1, "cart": 0.5, "buy": 1},
    )
    items, prior = tw.Catalogue.load(shop / "items"), tw.Crowd.load(shop / "prior")
    tried = tw.try_prior(prior, data.part("test"), items)
    assert tried.users == 300
    assert not tried.worse
    assert tried.prior > tried.nothing.earned
    assert prior.provenance["trial"]["prior"] == pytest.approx(tried.prior)
    with pytest.raises(DataError, match="5 users of the log reward an item of the catalogue; 20 are needed"):
        tw.try_prior(prior, data.part("test").of_users(data.users("test").head(5)), items)


def test_the_tree_of_a_prior_is_built_with_it(shop, fitted):
    """Hints are commands that work as they are printed; without the prior, `serve --check` says what was forgotten."""
    hint = re.search(r"Next: treeward (tree build .*)", fitted["prior"])[1]
    told = run(*shlex.split(hint), cwd=shop)
    assert "Then: treeward serve items --tree tree --prior prior" in told
    assert "warning" not in run("serve", "items", "--tree", "tree", "--prior", "prior", "--check", cwd=shop)
    hint = re.search(r"Or, without a prior: treeward (tree build .*)", fitted["items"])[1]
    run(*shlex.split(hint), "--force", cwd=shop)
    told = run("serve", "items", "--tree", "tree", "--prior", "prior", "--check", cwd=shop)
    fix = "treeward tree build items --prior prior -o tree --force"
    assert f"warning: the tree tree was built with no prior; one that fits prior: {fix}" in told
    run(*shlex.split(fix)[1:], cwd=shop)
    assert "warning" not in run("serve", "items", "--tree", "tree", "--prior", "prior", "--check", cwd=shop)
    told = run("serve", "items0", "--tree", "tree", "--prior", "prior0", "--check", cwd=shop)
    assert "warning: the tree tree was built with another prior" in told
    assert "warning: the prior prior0 may do harm" in told


def test_health_looks_for_items_as_the_policy_does(shop, fitted):
    """A search that looks at every item loses nothing, whichever tree it goes through."""
    items, prior = tw.Catalogue.load(shop / "items"), tw.Crowd.load(shop / "prior")
    plain = tw.ItemTree.build(items.vectors, seed=0)
    found = tw.Explorer(items, plain, tw.Beam(prior=prior, means=100_000), seed=0).inspect.health(users=50)
    assert found.lost == pytest.approx(0, abs=1e-6)
    assert not found.pays
    blind = tw.Explorer(items, plain, tw.Beam(prior=prior, means=1), seed=0).inspect.health(users=50)
    assert blind.lost > 0.001 > found.lost


def test_products_without_vectors_get_them_of_what_they_say(shop, tmp_path):
    told = run(
        "embed", "text", shop / "products.csv", "-o", "items", *ITEMS, "--model", "static", "--dim", 16, cwd=tmp_path
    )
    assert "Saved 600 items x 16 to items." in told
    run(*shlex.split(re.search(r"Next: treeward (tree build .*)", told)[1]), cwd=tmp_path)
    made = tw.Catalogue.load(tmp_path / "items")
    assert (made.ids[3], made.table.columns[:2]) == ("SKU-3", ["id", "title"])
    assert {"price", "stock", "description"} <= set(made.table.columns)
    told = run("tree", "build", shop / "products.csv", "-o", "no", *ITEMS, code=2, cwd=tmp_path)
    assert "treeward embed text" in told
    told = run("embed", "text", shop / "products.csv", "-o", "no", *ITEMS, *ACTIONS, code=2, cwd=tmp_path)
    assert "used with a log" in told
    assert not (tmp_path / "no").exists()


def test_new_products_are_put_into_an_existing_space(shop, fitted, tmp_path):
    """By vectors of clicks, a new kettle comes to lie near the kettles; what was there stays where it was."""
    rows = ["sku,name,description,category", "SKU-3,x,y,z"]
    rows += [f"NEW-{kind},{kind} style3,a {kind} of make3,{kind}" for kind in KINDS]
    (tmp_path / "new.csv").write_text("\n".join(rows))
    told = run(
        "embed", "text", "new.csv", "--like", shop / "items", "-o", "new", *ITEMS, "--model", "static", cwd=tmp_path
    )
    assert "Saved 11 items to new: 1 keep their vectors, 10 new." in told
    likeness, of_mean = map(float, re.search(r"of them (0\.\d+) \(the mean of all: (0\.\d+)", told).groups())
    assert likeness > of_mean + 0.1
    old, new = tw.Catalogue.load(shop / "items"), tw.Catalogue.load(tmp_path / "new")
    assert (new.vectors[0] == old.vectors[3]).all()
    near = new.vectors @ (old.vectors / np.linalg.norm(old.vectors, axis=1, keepdims=True)).T
    labels = old.categories.to_numpy()
    best = [max(KINDS, key=lambda kind, row=row: near[row, labels == kind].mean()) for row in range(1, 11)]
    assert sum(one == kind for one, kind in zip(best, KINDS, strict=True)) >= 8
    (tmp_path / "bare.csv").write_text("sku,colour\na,red\n")
    told = run(
        "embed", "text", "bare.csv", "--like", shop / "items", "-o", "no", "--column", "id=sku", code=2, cwd=tmp_path
    )
    assert "columns of text that both have" in told
    rows = ["sku,name,department", "NEW-1,kettle style3,kettle"]
    (tmp_path / "other.csv").write_text("\n".join(rows))
    like = ("embed", "text", "other.csv", "--like", shop / "items", "-o", "other", *ITEMS, "--model", "static")
    told = run(*like, cwd=tmp_path, width=400)
    assert f"warning: {shop / 'items'} has no column department: a service of those items refuses" in told
    assert "If one is the category: --column category=department." in told
    told = run(*like, "--force", "--column", "category=department", cwd=tmp_path, width=400)
    assert "warning" not in told


def test_svd_says_which_items_had_no_event_and_judges_without_them(fitted):
    told = fitted["items"]
    assert re.search(r"\d+ of 600 items had no event of a training user: they get the mean of their category", told)
    assert "Items with an event of a leaf's main category" in told


def test_a_service_and_health_take_columns_of_a_table(tmp_path):
    draw = np.random.default_rng(0)
    table = {"sku": [f"s{row}" for row in range(40)], "emb": draw.normal(size=(40, 4)).tolist()}
    pl.DataFrame(table).write_parquet(tmp_path / "items.parquet")
    columns = ("--column", "id=sku", "--column", "vector=emb")
    told = run("tree", "build", "items.parquet", "-o", "tree", *columns, cwd=tmp_path)
    hint = re.search(r"Then: treeward (serve .*)", told)[1]
    assert "sound" in run(*shlex.split(hint), "--check", cwd=tmp_path)
    assert "lost by the search" in run("tree", "health", "items.parquet", "--tree", "tree", *columns, cwd=tmp_path)
    told = run("serve", "items.parquet", "--column", "vector=emb", "--check", cwd=tmp_path)
    assert "warning: items.parquet: no column is called id, so items go by their row numbers, 0 to 39" in told
    told = run("serve", "items.parquet", "--column", "user=sku", "--check", cwd=tmp_path, code=2)
    assert "columns must be each role once, as ROLE=NAME, of id, vector, title, category" in told
    assert "must be each role once" in run("serve", "items.parquet", "--column", "sku", "--check", cwd=tmp_path, code=2)
