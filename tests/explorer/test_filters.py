"""Filters of a call, and a condition for every call, such as stock."""

import httpx
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treeward as tw
from tests.commands import run as cli
from tests.explorer.small_shop import explorer
from tests.serving import serving
from treeward.client import Client, ServiceError
from treeward.core.errors import InvalidArgument, NothingLeft

COUNT, DIM = 200, 4


def shop_of(stock):
    vectors = np.random.default_rng(0).standard_normal((COUNT, DIM)).astype(np.float32)
    table = pl.DataFrame(
        {
            "id": [f"sku-{i}" for i in range(COUNT)],
            "stock": stock,
            "country": ["SE", "NO"] * (COUNT // 2),
            "price": [float(i) for i in range(COUNT)],
        }
    )
    return tw.Catalogue.of_table(table, vectors)


FEW = [5 if i % 10 < 2 else 0 for i in range(COUNT)]  # 40 items: 0, 1, 10, 11, ...
THERE = {f"sku-{i}" for i in range(COUNT) if FEW[i]}


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "items"
    shop_of(FEW).save(path)
    return path


@pytest.fixture(scope="module")
def service(items, tmp_path_factory):
    options = ("--set", "where=stock > 0 and price between 5 and 1000", "--set", "holdout=0.5", "--set", "repeats=true")
    with serving(tmp_path_factory.mktemp("service"), items, *options) as running:
        yield running


SHOWN = THERE - {"sku-0", "sku-1"}


def test_an_explorer_shows_what_its_condition_lets_through():
    explorer = tw.Explorer(shop_of(FEW), where=pl.col("stock") > 0, seed=0)
    made = explorer.recommend(["ada", "bob"], 40)
    assert {one.item for one in made} == THERE
    norwegian = explorer.recommend(["ada"], 20, where={"country": "NO"})
    assert {one.item for one in norwegian} == {item for item in THERE if int(item[4:]) % 2}
    assert [one.item for one in explorer.recommend(["ada"], allow=["sku-2", "sku-10"])] == ["sku-10"]
    with pytest.raises(NothingLeft):
        explorer.recommend(["ada"], 41)
    assert explorer.explain(made[0]).reproduced
    explorer.add(tw.Catalogue.of_table(shop_of(FEW).table[2:3].with_columns(stock=1), np.ones((1, DIM))))
    assert "sku-2" in {one.item for one in explorer.recommend(["ada"], 41)}
    explorer.rebuild()
    assert {one.item for one in explorer.recommend(["ada"], 41)} == THERE | {"sku-2"}


@pytest.mark.parametrize("where", [pl.col("stok") > 0, pl.col("stock") > "many", pl.col("stock"), {"stok": 1}], ids=str)
def test_an_explorer_refuses_a_condition_that_fits_no_column(where):
    with pytest.raises(InvalidArgument, match="where must be a condition on catalogue columns"):
        tw.Explorer(shop_of(FEW), where=where)


def test_every_way_to_an_item_obeys_the_setting(service, tmp_path):
    with Client(service.url) as client:
        kinds = set()
        for i in range(12):
            made = client.recommend(f"u{i}", 38, fallback=["sku-2", "sku-0", "sku-10"])
            assert {one["item"] for one in made} == SHOWN
            kinds |= {one["policy"] for one in made}
            assert {one["item"] for one in client.recommend(f"u{i}", 19, where={"country": "SE"})} == {
                item for item in SHOWN if int(item[4:]) % 2 == 0
            }
            with pytest.raises(ServiceError, match="409 nothing_left"):
                client.recommend(f"u{i}", 1, allow=["sku-2", "sku-1"])
            if made[0]["policy"] == "explore":
                told = httpx.get(f"{service.url}/v1/decisions/{made[0]['decision_id']}").json()
                assert told["reproduced"]
        assert kinds == {"explore", "fallback", "popular"}
    shop_of([0] * COUNT).save(tmp_path / "sold out")
    told = cli("swap", service.admin, tmp_path / "sold out", code=2, width=400)
    assert "where must be fulfilled by at least one of its items" in told
    assert httpx.get(f"{service.admin}/admin/snapshot").json()["now"]["items"].endswith("items")


def test_stock_is_changed_alone_and_at_once(service, tmp_path):
    (tmp_path / "stock.csv").write_text("sku,stock\nsku-20,0\nsku-22,3\n")
    with Client(service.url) as client:
        before = httpx.get(f"{service.url}/v1/items/sku-20").json()["columns"]
        assert "2 item(s) are in." in cli("items", "put", service.url, tmp_path / "stock.csv", "--column", "id=sku")
        for user in ("u1", "u2", "u3", "u4"):
            assert {one["item"] for one in client.recommend(user, 38)} == SHOWN - {"sku-20"} | {"sku-22"}
        assert httpx.get(f"{service.url}/v1/items/sku-20").json()["columns"] == {**before, "stock": 0}
        client.put_items([{"item": "sku-20", "columns": {"stock": 5}}, {"item": "sku-22", "columns": {"stock": 0}}])
        for user in ("u1", "u2", "u3", "u4"):
            assert {one["item"] for one in client.recommend(user, 38)} == SHOWN
        (tmp_path / "stock.csv").write_text("sku,stock\nsku-20,\nsku-21,5\n")  # an empty cell: not in stock
        cli("items", "put", service.url, tmp_path / "stock.csv", "--column", "id=sku")
        assert httpx.get(f"{service.url}/v1/items/sku-20").json()["columns"] == {**before, "stock": None}
        assert "sku-20" not in {one["item"] for one in client.recommend("u1", 37)}
        client.put_items([{"item": "sku-20", "columns": {"stock": 5}}])
    (tmp_path / "new.csv").write_text("id,stock\nsku-new,1\n")
    assert "as the item is new" in cli("items", "put", service.url, tmp_path / "new.csv", code=2)
    (tmp_path / "wrong.csv").write_text("id,colour\nsku-1,red\n")
    assert '(stock, country, price), got "colour of the item' in cli(
        "items", "put", service.url, tmp_path / "wrong.csv", code=2
    )
    assert "--column" in cli("items", "put", service.url, tmp_path / "wrong.csv", "--column", "di=sku", code=2)


def test_ids_of_digits_may_be_texts(tmp_path):
    table = pl.DataFrame({"id": [str(i) for i in range(COUNT)], "stock": [1] * COUNT})
    vectors = np.random.default_rng(0).standard_normal((COUNT, DIM))
    tw.Catalogue.of_table(table, vectors).save(tmp_path / "items")
    (tmp_path / "stock.csv").write_text("id,stock\n7,0\n")
    with serving(tmp_path, tmp_path / "items") as running:
        assert "1 item(s) are in." in cli("items", "put", running.url, tmp_path / "stock.csv")
        assert httpx.get(f"{running.url}/v1/items/7").json()["columns"]["stock"] == 0


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("stok > 0", "where must be a condition on the columns id, stock, country, price"),
        ("stock > 'many'", "where must be a condition on the columns"),
        ("stock + 1", "where must be a condition on the columns"),
        ("stock >", "where must be a condition in SQL"),
    ],
)
def test_a_bad_condition_is_told_at_the_check_and_at_the_start(items, tmp_path, where, why):
    told = cli("serve", items, "--check", "--set", f"where={where}", cwd=tmp_path, code=2, width=400)
    assert why in told
    start = "serve", items, "--port", 0, "--admin-port", 0, "--store", "memory"
    assert why in cli(*start, "--set", f"where={where}", cwd=tmp_path, code=2, width=400)


def test_the_check_says_how_many_items_are_left(items, tmp_path):
    told = cli("serve", items, "--check", "--set", "where=stock > 0", cwd=tmp_path, width=400)
    assert "40 of 200 items fulfil stock > 0" in told


def test_a_service_starts_with_nothing_in_stock(items, tmp_path):
    with serving(tmp_path, items, "--set", "where=stock > 7") as running, Client(running.url) as client:
        with pytest.raises(ServiceError, match="409 nothing_left"):
            client.recommend("ada")
        client.put_items([{"item": "sku-3", "columns": {"stock": 8}}])
        assert [one["item"] for one in client.recommend("ada")] == ["sku-3"]


@given(
    allow=st.none() | st.sets(st.integers(0, 620), max_size=30),
    exclude=st.none() | st.sets(st.integers(0, 620), max_size=60),
    where=st.none() | st.sampled_from([
        {"country": "SE"}, {"country": ["SE", "NO"], "price": {"min": 30}}, {"price": {"min": 1, "max": 2}},
        {"stock": [1, 2]}, {}, pl.col("price") < 50,
    ]),
    repeats=st.booleans(),
)  # fmt: skip
@settings(max_examples=60)
def test_filters_allow_exactly_what_they_say(shop, tree, allow, exclude, where, repeats):
    made = explorer(shop, tree, repeats=repeats)
    before = {d.item for d in made.recommend(["ada"], n=20)} if not repeats else set()
    country, price, stock = (shop.table[name].to_list() for name in ("country", "price", "stock"))

    def fulfils(row):
        if isinstance(where, pl.Expr):
            return price[row] < 50
        found = where or {}
        bounds = found.get("price", {})
        return (
            country[row]
            in (found["country"] if isinstance(found.get("country"), list) else [found.get("country", country[row])])
            and bounds.get("min", 0) <= price[row] <= bounds.get("max", 100)
            and ("stock" not in found or stock[row] in (1, 2))
        )

    opened = {
        f"i{row}" for row in range(600)
        if (allow is None or row in allow) and row not in (exclude or ()) and fulfils(row) and f"i{row}" not in before
    }  # fmt: skip
    filters = {
        "allow": None if allow is None else [f"i{row}" for row in allow],
        "exclude": None if exclude is None else [f"i{row}" for row in exclude],
        "where": where,
    }
    if opened:
        decisions = made.recommend(["ada"], n=len(opened), **filters)
        assert {d.item for d in decisions} == opened
        first = made.explain(decisions[len(opened) // 2], **filters)
        assert first.reproduced
    left = 0 if not repeats else len(opened)
    with pytest.raises(NothingLeft, match=f"only {left}( may be shown to 'ada')?"):
        made.recommend(["ada"], n=len(opened) + 1, **filters)


def test_exclude_can_be_given_per_user(shop, tree):
    made = explorer(shop, tree)
    keep = {"i3", "i5"}
    rest = [id for id in shop.ids if id not in keep]
    decisions = made.recommend(["ada", "bob"], n=2, exclude={"ada": rest}, allow=["i3", "i5", "i7", "i9"])
    assert {d.item for d in decisions if d.user == "ada"} == keep
    assert {d.item for d in decisions if d.user == "bob"} <= {"i3", "i5", "i7", "i9"}


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"exclude": "i3"}, "Explorer.recommend: exclude must be a list of item ids, got 'i3'"),
        ({"exclude": [3]}, "exclude must be item ids, which are strings here, got 3"),
        ({"allow": 5}, "allow must be a list"),
        ({"where": {"colour": "red"}}, "where must be a condition on catalogue columns.*'colour', which is none of"),
        ({"where": {"price": {"above": 3}}}, "where must be"),
        ({"where": {"price": {}}}, "where must be"),
        ({"where": {"country": {"min": 3}}}, "where must be"),
        ({"where": pl.col("nothing") > 3}, "where must be"),
        ({"where": pl.col("price") + 1}, "where must be"),
        ({"where": pl.col("price").max() > 1}, "where must be"),
        ({"where": "price < 3"}, "where must be"),
    ],
)
def test_bad_filters_are_refused(shop, tree, filters, why):
    made = explorer(shop, tree)
    with pytest.raises(InvalidArgument, match=why):
        made.recommend(["ada"], **filters)


def test_filters_that_leave_too_few_items_raise(shop, tree):
    made = explorer(shop, tree)
    for filters in ({"exclude": shop.ids}, {"allow": []}, {"allow": ["nothing"]}, {"where": {"price": {"max": -1}}}):
        with pytest.raises(NothingLeft, match="only 0 may be shown"):
            made.recommend(["ada"], **filters)


def test_long_conditions_are_distinguished(shop, tree):
    made = explorer(shop, tree)
    one, other = np.full(2000, -1.0), np.full(2000, -1.0)
    one[1000], other[1000] = 0.7, 0.8
    assert made.recommend(["ada"], where={"price": one})[0].item == "i7"
    assert made.recommend(["ada"], where={"price": other})[0].item == "i8"
    assert made.recommend(["ada"], where={"price": pl.Series([0.9])})[0].item == "i9"
    assert shop.table["stock"][shop.row(made.recommend(["ada"], where={"stock": None})[0].item)] is None
    for wrong in ({"price": object()}, {"country": ["SE", 2]}, {"price": {"min": object()}}):
        with pytest.raises(InvalidArgument, match="where must be"):
            made.recommend(["ada"], where=wrong)


def test_filters_take_lists_of_any_kind(shop, tree):
    made = explorer(shop, tree)
    for allow in (np.array(["i1", "i2"]), pl.Series(["i1", "i2"]), {"i1", "i2"}, ("i1", "i2")):
        assert made.recommend(["ada"], allow=allow)[0].item in ("i1", "i2")
    for allow in ("", 0):
        with pytest.raises(InvalidArgument, match="allow must be a list of item ids"):
            made.recommend(["ada"], allow=allow)
