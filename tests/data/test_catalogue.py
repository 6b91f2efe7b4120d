import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treeward as tw
from treeward.core.errors import ArtefactVersion, DataError, InvalidArgument, UnknownId

VECTORS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


@pytest.fixture
def shop():
    return tw.Catalogue(
        ["a", "b", "ü"],
        VECTORS,
        titles=["Ash", None, "Cup"],
        categories=["x > y", "x", None],
        columns={"stock": [1, 0, 7], "country": ["de", "fr", None]},
    )


def same(one, other):
    assert one.table.equals(other.table)
    assert np.array_equal(one.vectors, other.vectors)


# --- Catalogue -------------------------------------------------------------------------------------------------------


def test_rows_are_found_by_id(shop):
    assert len(shop) == 3
    assert shop.rows(["ü", "a"]).tolist() == [2, 0]
    assert [shop.row(id) for id in shop.ids] == [0, 1, 2]
    assert shop.table.columns == ["id", "title", "category", "stock", "country"]
    assert shop.table.filter(pl.col("stock") > 0)["id"].to_list() == ["a", "ü"]


@pytest.mark.parametrize("id", ["A", "", 0, None, True, 1.5])
def test_unknown_string_ids_raise(shop, id):
    with pytest.raises(UnknownId, match="no item has the id"):
        shop.rows(["a", id])


@pytest.mark.parametrize("id", [3, -1, "1", True, 1.0, 2**70])
def test_unknown_integer_ids_raise(id):
    with pytest.raises(UnknownId, match=f"no item has the id {id!r}"):
        tw.Catalogue([1, 2], VECTORS[:2]).row(id)


@given(
    st.lists(st.text(max_size=5), unique=True, min_size=1)
    | st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1)
)
def test_any_ids_round_trip(ids):
    made = tw.Catalogue(ids, np.ones((len(ids), 1)))
    assert made.rows(ids).tolist() == list(range(len(ids)))
    assert made.ids.to_list() == ids


def test_ids_with_equal_hashes_keep_their_rows(shop):
    shop._sorted = np.zeros(3, dtype=np.int64)  # as if every id had the hash of the one looked up
    shop._order = np.arange(3)
    shop._key = lambda id: np.int64(0)
    assert [shop.row(id) for id in ("a", "b", "ü")] == [0, 1, 2]
    with pytest.raises(UnknownId):
        shop.row("c")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ids": ["a", "b", "a"]}, r"ids must be unique, got \"repeated \['a'\]\""),
        ({"ids": ["a", "b"]}, "ids must be 3 values, one for each row, got '2 values'"),
        ({"ids": ["a", None, "c"]}, "ids must be without nulls"),
        ({"ids": ["a", 1, "c"]}, "ids must be values of one type"),
        ({"ids": [1.0, 2.0, 3.0]}, "ids must be all strings or all integers"),
        ({"ids": [2**63, 1, 2]}, "ids must be"),
        ({"ids": [2**64, 1, 2]}, "ids must be"),
        ({"titles": ["x"]}, "title must be 3 values"),
        ({"ids": 3}, "ids must be a list of values, got 3"),
        ({"ids": "abc"}, "ids must be a list of values"),
        ({"columns": {"thing": [object(), object(), object()]}}, "thing must be values of one type"),
        ({"categories": ["x"] * 4}, "category must be 3 values"),
        ({"columns": {"stock": [1]}}, "stock must be 3 values"),
        ({"columns": {"title": [1, 2, 3]}}, "columns must be named other than id, title, category"),
        ({"vectors": [[np.nan, 1]] * 3}, "vectors must be finite"),
        ({"vectors": np.zeros((0, 2)), "ids": []}, "at least one row"),
    ],
)
def test_bad_catalogues_are_refused(change, why):
    with pytest.raises(InvalidArgument, match=why):
        tw.Catalogue(**{"ids": ["a", "b", "c"], "vectors": VECTORS} | change)


def test_saved_is_loaded(shop, tmp_path):
    shop.save(tmp_path / "items")
    loaded = tw.Catalogue.load(tmp_path / "items")
    same(loaded, shop)
    assert isinstance(loaded.vectors.base, np.memmap)
    with pytest.raises(ArtefactVersion):
        tw.ItemTree.load(tmp_path / "items")


def test_npy_is_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.array(VECTORS, dtype=np.float32))
    made = tw.Catalogue.load(tmp_path / "x.npy")
    assert made.ids.to_list() == [0, 1, 2]
    assert isinstance(made.vectors.base, np.memmap)


def test_tables_in_every_form_give_the_same_catalogue(shop, tmp_path):
    rows = shop.table
    lists = pl.Series("emb", VECTORS)
    wide = pl.DataFrame({"emb_1": [0.0, 1.0, 1.0], "emb_0": [1.0, 0.0, 1.0]})
    text = pl.Series("emb", ["[1, 0]", "0.0 1.0", "(1;1)"])
    renamed = rows.rename({"id": "sku", "title": "label"})
    columns = {"id": "sku", "title": "label", "vector": "emb"}
    renamed.with_columns(lists).write_parquet(tmp_path / "list.parquet")
    renamed.with_columns(lists.cast(pl.Array(pl.Float64, 2))).write_parquet(tmp_path / "array.parquet")
    renamed.hstack(wide).write_csv(tmp_path / "wide.csv")
    renamed.with_columns(text).write_csv(tmp_path / "text.tsv", separator="\t")
    for name in ("list.parquet", "array.parquet", "wide.csv", "text.tsv"):
        same(tw.Catalogue.load(tmp_path / name, columns=columns), shop)
    np.save(tmp_path / "v.npy", VECTORS)
    rows.write_csv(tmp_path / "plain.csv")
    same(tw.Catalogue.load(tmp_path / "plain.csv", vectors=tmp_path / "v.npy"), shop)


def test_a_table_without_ids_gets_row_numbers(tmp_path):
    pl.DataFrame({"vector": VECTORS, "title": ["x", "y", "z"]}).write_parquet(tmp_path / "t.parquet")
    assert tw.Catalogue.load(tmp_path / "t.parquet").ids.to_list() == [0, 1, 2]


def test_a_mapped_column_wins_over_one_of_that_name(tmp_path):
    pl.DataFrame({"id": [9, 9], "sku": ["p", "q"], "vector": VECTORS[:2]}).write_parquet(tmp_path / "t.parquet")
    made = tw.Catalogue.load(tmp_path / "t.parquet", columns={"id": "sku"})
    assert made.table.to_dict(as_series=False) == {"id": ["p", "q"]}


@pytest.mark.parametrize(
    ("table", "columns", "why"),
    [
        ({"id": [1]}, {}, "no column 'vector' for the vector, nor numbered ones"),
        (
            {"id": [1], "vector": [[1.0]]},
            {"id": "sku"},
            "no column 'sku' for the id; it has id. Name them: --column id=NAME",
        ),
        ({"id": [1], "vector": [[1.0]]}, {"colour": "id"}, "cannot map a column to 'colour'"),
        ({"id": [1, 2], "vector": [[1.0], [1.0, 2.0]]}, {}, "must all have one length, not 1 to 2"),
        ({"id": [1, 2], "vector": [[1.0], None]}, {}, "1 missing"),
        ({"id": [1], "vector": ["one two"]}, {}, "not a list of numbers"),
        ({"id": [1], "vector": [3.5]}, {}, "must hold a list of numbers in each row, not Float64"),
        ({"id": [1], "vector0": ["x"]}, {}, "are not all numbers"),
        ({"id": [1], "vector": [["a", "b"]]}, {}, "must hold lists of numbers, not of String"),
        ({"id": [1], "vector": [[[1.0]]]}, {}, "must hold lists of numbers"),
        ({"id": [1], "vector": [[1.0]]}, {"id": "id", "title": "id"}, "a column may have one role only"),
    ],
)
def test_bad_tables_are_refused(tmp_path, table, columns, why):
    pl.DataFrame(table).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=why):
        tw.Catalogue.load(tmp_path / "t.parquet", columns=columns)


def test_columns_may_be_swapped(tmp_path):
    pl.DataFrame({"id": ["x", "y"], "title": [1, 2], "vector": VECTORS[:2]}).write_parquet(tmp_path / "t.parquet")
    made = tw.Catalogue.load(tmp_path / "t.parquet", columns={"id": "title", "title": "id"})
    assert made.table.to_dict(as_series=False) == {"id": [1, 2], "title": ["x", "y"]}


def test_csv_types_are_those_of_the_whole_file(tmp_path):
    rows = "\n".join(f"{row},{row},[1 0]" for row in range(200))
    (tmp_path / "u[1].csv").write_text(f"id,price,vector\n{rows}\nx7,0.5,[0 1]\n")
    made = tw.Catalogue.load(tmp_path / "u[1].csv")
    assert made.ids[-1] == "x7"
    assert made.table["price"].dtype == pl.Float64
    (tmp_path / "zeros.csv").write_text("id,vector\n007,1 0\n7,0 1\n")
    assert tw.Catalogue.load(tmp_path / "zeros.csv").ids.to_list() == ["007", "7"]
    for name in ("g1.csv", "g2.csv"):
        (tmp_path / name).write_text("id,vector\n1,1 0\n")
    with pytest.raises(DataError, match="no such file"):
        tw.Catalogue.load(tmp_path / "g*.csv")


def test_a_catalogue_survives_another_process(shop):
    import pickle

    code = "import pickle, sys; print(*pickle.load(sys.stdin.buffer).rows(['ü', 'a']))"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(shop), capture_output=True, check=True)
    assert done.stdout == b"2 0\n"


def test_bad_files_are_refused(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"rubbish")
    (tmp_path / "x.parquet").write_bytes(b"rubbish")
    (tmp_path / "x.csv").write_bytes(b"")
    np.savez(tmp_path / "z.npz", a=np.ones(3))
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    np.save(tmp_path / "two.npy", VECTORS[:2])
    np.save(tmp_path / "zero.npy", np.array(1.0))
    (tmp_path / "x.xlsx").write_bytes(b"")
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    pl.DataFrame({"id": [1, 2, 3]}).write_csv(tmp_path / "three.csv")
    for name, why in (
        ("x.npy", "cannot be read as a .npy matrix"),
        ("z.npy", "cannot be read as a .npy matrix"),
        ("zero.npy", "does not hold one matrix"),
        ("folder", "there is no such file"),
        ("pickle.npy", "cannot be read"),
        ("absent.npy", "cannot be read"),
        ("x.parquet", "cannot be read"),
        ("x.csv", "cannot be read"),
        ("absent.csv", "cannot be read"),
        ("x.xlsx", "unknown ending"),
        ("absent/items", "there is no such file"),
    ):
        with pytest.raises(DataError, match=why):
            tw.Catalogue.load(tmp_path / name)
    with pytest.raises(DataError, match="has 2 rows, .* has 3"):
        tw.Catalogue.load(tmp_path / "three.csv", vectors=tmp_path / "two.npy")


# --- Interactions ----------------------------------------------------------------------------------------------------


# --- the made-up catalogue -------------------------------------------------------------------------------------------
