"""Data sets in their original files: tiny ones written here, with all that is wrong with real ones, and the slices."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.dataset_summary import describe
from treeward.data.delimited import Reading
from treeward.data.loaders import LOADERS, kind_of, load_dataset
from treeward.explorer.records import Ingested

SLICES = Path(__file__).parents[3] / "shared" / "data"


def dropped(data):
    return {reason: problem.times for reason, problem in data.dropped.items()}


# --- taobao ----------------------------------------------------------------------------------------------------------


def taobao(folder, rows, raw=b""):
    text = "".join(f"{','.join(map(str, row))}\n" for row in rows)
    (folder / "UserBehavior.csv").write_bytes(text.encode() + raw)
    return folder


def busy(users=6, items=4, events=12):
    return [
        (user, 100 + (user + turn) % items, 7 + (user + turn) % items % 2, "pv", 1511544070 + turn)
        for user in range(users) for turn in range(events)
    ]  # fmt: skip


def test_taobao_leaves_out_rare_users_and_items(tmp_path):
    path = taobao(tmp_path, [*busy(), (99, 100, 7, "buy", 1511544070), (0, 555, 9, "fav", 1511544071)])
    data = load_dataset(path)
    assert data.name == "taobao"
    assert len(data.interactions) == 72  # user 99 and item 555 have one event each
    assert dropped(data) == {"event of a user or item with fewer than 10": 2}
    assert data.catalogue.ids.to_list() == [100, 101, 102, 103]
    assert data.catalogue.categories.to_list() == ["7", "8", "7", "8"]
    assert data.catalogue.dim == 0
    assert sorted(data.splits["split"].to_list()) == ["test"] + ["train"] * 5
    assert len(load_dataset(path, least=0, actions={"pv": 1, "fav": 1, "buy": 1}).interactions) == 74
    assert load_dataset(path).source["sha256"] == load_dataset(path / "UserBehavior.csv").source["sha256"]
    for split in ("train", "validation", "test"):
        assert set(data.part(split).users) == set(data.users(split))


def behaving():
    """Page views of six users, and: user 0 also buys, user 6 only buys, item 104 is only put into carts."""
    rows = [*busy(), *[(0, 100, 7, "buy", 1511544080)] * 3]
    return (
        rows + [(6, 100 + at % 2, 7, "buy", 5) for at in range(10)] + [(at, 104, 9, "cart", 6) for at in range(6)] * 2
    )


def test_taobao_counts_only_page_views_as_clicks(tmp_path):
    data = load_dataset(taobao(tmp_path, behaving()))
    assert data.interactions.table["action"].unique().to_list() == ["pv"]
    assert data.interactions.rewards.to_list() == [1.0] * 72
    assert dropped(data) == {
        "event of the action cart, which has no weight": 12,
        "event of the action buy, which has no weight": 13,
        "user without an event that has a weight": 1,
    }
    assert data.source["read"] == {
        "events": 97, "users": 7, "items": 5, "categories": 3, "clicks": 72, "pv": 72, "cart": 12, "fav": 0, "buy": 13,
    }  # fmt: skip
    assert data.source["actions"] == {"pv": 1}
    assert set(data.splits["user"]) == set(range(6))
    assert data.catalogue.ids.to_list() == [100, 101, 102, 103, 104]  # what the filter keeps is in the catalogue


def test_taobao_weighs_other_actions(tmp_path):
    path = taobao(tmp_path, behaving())
    data = load_dataset(path, actions={"pv": 0.1, "buy": 1})
    assert len(data.interactions) == 85
    assert set(data.interactions.rewards) == {0.1, 1.0}
    assert dropped(data) == {"event of the action cart, which has no weight": 12}
    assert len(load_dataset(path, actions={"cart": 1}, test=1).interactions) == 12
    assert dropped(load_dataset(path, actions={"pv": 1, "cart": 1, "buy": 1})) == {}


def test_taobao_filter_counts_events_of_all_actions(tmp_path):
    rows = [(user, 100, 7, "pv" if turn < 2 else "cart", turn) for user in range(4) for turn in range(10)]
    assert len(load_dataset(taobao(tmp_path, rows), test=1, validation=0).interactions) == 8


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"view": 1}, "taobao: actions must be one of pv, cart, fav, buy"),
        ({"PV": 1}, "did you mean 'pv'"),
        ({}, "taobao: actions must be a weight for each action"),
        ("pv,buy", "a weight for each action"),
        ({3: 1}, "a weight for each action"),
        ({"pv": -1}, "at least 0"),
        ({"pv": "much"}, "number"),
    ],
)
def test_bad_weights_of_actions_are_refused(tmp_path, given, why):
    with pytest.raises(InvalidArgument, match=why):
        load_dataset(tmp_path / "UserBehavior.csv", "taobao", actions=given)  # before the file is looked for


def test_an_action_without_events_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no event of the log has the action 'fav'; it has pv \(72 times\)"):
        load_dataset(taobao(tmp_path, busy()), actions={"pv": 1, "fav": 1})


def test_taobao_filters_once_or_until_stable(tmp_path):
    # User 1 is busy only through items that are rare: one pass keeps the rest of the events, the next takes them.
    rows = busy() + [(1, 100, 7, "pv", 5)] * 3 + [(50, 200 + i, 7, "pv", 5) for i in range(9)] + [(50, 100, 7, "pv", 5)]
    path = taobao(tmp_path, rows)
    once, stable = load_dataset(path), load_dataset(path, until_stable=True)
    assert 50 in once.interactions.users
    assert 50 not in stable.interactions.users
    with pytest.raises(DataError, match="nothing is left of 85 events; least=1000 is too high for it"):
        load_dataset(path, least=1000)


BAD_LINES = [
    (b"1,2\n", "missing columns"),
    (b"1,2,3,pv,5,6\n", "too many columns"),
    (b"1,x,3,pv,5\n", "bad number"),
    (b"1,2,3,pv,yesterday\n", "bad time"),
    (b"1,2,3,stare,5\n", "unknown action"),
    (b"1,2,3,p\xff,5\n", "not UTF-8"),
    (b"\n", "empty line"),
    (b"1,2,3,pv,1511", None),  # truncated, but whole
    (b"1,2,3,pv", "missing columns"),  # truncated
    (b" 1,2 , 3,pv ,5\r\n", None),  # spaces and CRLF are harmless
]


@pytest.mark.parametrize(("raw", "reason"), BAD_LINES)
def test_malformed_lines_are_counted_or_refused(tmp_path, raw, reason):
    data = load_dataset(taobao(tmp_path, busy(), raw), least=0)
    if reason is None:
        assert dropped(data) == {}
        assert len(data.interactions) == 73
        load_dataset(tmp_path, least=0, strict=True)
        return
    assert dropped(data) == {reason: 1}
    assert data.dropped[reason].where == "UserBehavior.csv, line 73"
    assert len(data.interactions) == 72
    with pytest.raises(DataError, match=f"UserBehavior.csv, line 73: {reason}"):
        load_dataset(tmp_path, least=0, strict=True)


def test_pieces_meet_where_lines_end(tmp_path, monkeypatch):
    monkeypatch.setattr("treeward.data.delimited._PIECE", 100)
    data = load_dataset(taobao(tmp_path, busy(), b"1,2,3,stare,5\n"), least=0)
    assert len(data.interactions) == 72
    assert data.interactions.table["time"].to_list() == [row[4] for row in busy()]
    assert data.dropped["unknown action"].where == "UserBehavior.csv, line 73"


# --- mind ------------------------------------------------------------------------------------------------------------

NEWS = "N1\tnews\tpolitics\tA vote\tAbout it\turl\t[]\t[]\nN2\tsports\tgolf\tA hole in one\t\turl\t[]\t[]\n"
BEHAVIORS = (
    "1\tU1\t11/12/2019 2:14:46 PM\tN1 N2 N9\tN2-1 N3-0\n"
    "2\tU1\t11/13/2019 2:14:46 AM\tN1 N2\tN1-0\n"
    "3\tU2\t11/14/2019 9:00:00 AM\t\tN1-1\n"
    "4\tU3\t11/14/2019 9:00:00 AM\tN2\tN1-0 N2-1\n"
)


def mind(folder, behaviors=BEHAVIORS, news=NEWS):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "news.tsv").write_bytes(news if isinstance(news, bytes) else news.encode())
    (folder / "behaviors.tsv").write_bytes(behaviors if isinstance(behaviors, bytes) else behaviors.encode())
    return folder


def test_mind_reads_histories_clicks_and_skips(tmp_path):
    data = load_dataset(mind(tmp_path), test=1, validation=0)
    assert dropped(data) == {"empty history": 1, "user without history or impressions": 1}
    rows = data.interactions.table.select(pl.col("user", "item", "action").cast(pl.String), "reward").rows()
    assert rows == [
        ("U1", "N1", "history", 1.0), ("U1", "N2", "history", 1.0), ("U1", "N9", "history", 1.0),
        ("U3", "N2", "history", 1.0),
        ("U1", "N2", "click", 1.0), ("U1", "N3", "skip", 0.0), ("U1", "N1", "skip", 0.0),
        ("U3", "N1", "skip", 0.0), ("U3", "N2", "click", 1.0),
    ]  # fmt: skip
    assert data.catalogue.ids.to_list() == ["N1", "N2", "N3", "N9"]
    assert data.catalogue.titles.to_list() == ["A vote", "A hole in one", None, None]
    assert data.interactions.table["time"].drop_nulls()[0] == 1573568086
    assert data.source["read"] == {"impressions": 4, "shown": 6, "clicks": 3, "history clicks": 6}
    assert sorted(data.splits["split"].to_list()) == ["test", "train"]
    everybody = load_dataset(tmp_path, complete_only=False)
    assert everybody.interactions.users.n_unique() == 3


def test_mind_categories_are_subcategories_unless_asked(tmp_path):
    fine, coarse = load_dataset(mind(tmp_path)).catalogue, load_dataset(tmp_path, category="category").catalogue
    assert fine.categories.to_list() == ["politics", "golf", None, None]
    assert coarse.categories.to_list() == ["news", "sports", None, None]
    for catalogue in (fine, coarse):
        assert catalogue.table["topic"].to_list() == ["news", "sports", None, None]
        assert catalogue.table["subcategory"].to_list() == ["politics", "golf", None, None]
    assert load_dataset(tmp_path, category="category").source["category"] == "category"


@pytest.mark.parametrize("given", ["topic", "title", "Subcategory", "", None, 3])
def test_unknown_category_column_is_refused(tmp_path, given):
    with pytest.raises(InvalidArgument, match="mind: category must be one of subcategory, category"):
        load_dataset(tmp_path, "mind", category=given)  # before the folder is looked at


def test_mind_has_impressions(tmp_path):
    log = load_dataset(mind(tmp_path), test=1, validation=0).interactions
    assert log.has_impressions
    parts = log.impressions()
    pairs = [list(zip(part.users.cast(pl.String), part.items.cast(pl.String), strict=True)) for part in parts]
    assert pairs == [
        [("U1", "N1"), ("U1", "N2"), ("U1", "N9"), ("U3", "N2")],
        [("U1", "N2"), ("U3", "N2")],
        [("U1", "N3"), ("U1", "N1"), ("U3", "N1")],
    ]
    assert [set(part.rewards) for part in parts] == [{1.0}, {1.0}, {0.0}]
    assert not load_dataset(taobao(tmp_path, busy()), "taobao").interactions.has_impressions


def test_mind_users_of_dev_are_for_test(tmp_path):
    mind(tmp_path / "MINDsmall_train")
    mind(tmp_path / "MINDsmall_dev", "9\tU1\t11/15/2019 2:14:46 PM\tN1\tN2-1\n9\tU7\t11/15/2019 2:14:46 PM\tN1\tN2-1\n")
    data = load_dataset(tmp_path, validation=0)
    assert dict(data.splits.cast(pl.String).rows()) == {"U1": "train", "U3": "train", "U7": "test"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"5\tU4\t13/45/2019 9:00:00 AM\tN1\tN1-1\n", "bad time"),
        (b"5\tU4\t11/14/2019 9:00:00 AM\tN1\tN1-2\n", "bad impression"),
        (b"5\tU4\t11/14/2019 9:00:00 AM\tN1\n", "missing columns"),
        (b"5\tU4\t11/14/2019 9:00:00 AM\tN1\tN1-1\textra\n", "too many columns"),
        (b"5\tU\xff\t11/14/2019 9:00:00 AM\tN1\tN1-1\n", "not UTF-8"),
        (b"5\tU4\t11/14/20", "missing columns"),
    ],
)
def test_malformed_lines_of_mind_are_counted_or_refused(tmp_path, line, reason):
    data = load_dataset(mind(tmp_path, BEHAVIORS.encode() + line))
    assert dropped(data)[reason] == 1
    with pytest.raises(DataError, match=f"behaviors.tsv, line 5: {reason}"):
        load_dataset(tmp_path, strict=True)


def test_mind_without_complete_users_is_refused(tmp_path):
    lonely = "1\tU1\t11/12/2019 2:14:46 PM\t\tN2-1\n"
    with pytest.raises(DataError, match="no user has both a history and impressions"):
        load_dataset(mind(tmp_path, lonely))
    (tmp_path / "behaviors.tsv").rename(tmp_path / "gone.tsv")
    with pytest.raises(DataError, match="holds neither behaviors.tsv nor folders with one"):
        load_dataset(tmp_path, "mind")


def test_an_article_in_latin_1_is_kept(tmp_path):
    data = load_dataset(mind(tmp_path, news=NEWS.encode() + b"N4\tnews\tworld\tCaf\xe9\t\turl\t[]\t[]\n"))
    assert data.catalogue.titles[2] == "Café"


# --- movielens -------------------------------------------------------------------------------------------------------


def test_movielens_csv_is_read_with_its_faults_counted(tmp_path):
    (tmp_path / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\r\n1,10,4.0,964982703\r\n1,20,3.5,964982703 \r\n"
        "userId,movieId,rating,timestamp\r\n2,10,5.0,9\r\n2,30,eleven,9\r\n3,10,2,9\r\n"
    )
    (tmp_path / "movies.csv").write_text(
        'movieId,title,genres\n10,"Story, A (1995)",Drama|War\n20,Café,(no genres listed)\n', encoding="utf-8"
    )
    data = load_dataset(tmp_path, test=1, validation=0)
    assert data.interactions.rewards.to_list() == [1, 0, 1, 0]
    assert dropped(data) == {"repeated header": 1, "bad rating": 1}
    assert data.catalogue.table.rows() == [(10, "Story, A (1995)", "Drama", "Drama|War"), (20, "Café", None, None)]
    assert load_dataset(tmp_path, positive=3, test=1).interactions.rewards.to_list() == [1, 1, 1, 0]


def test_older_forms_of_movielens_are_read(tmp_path):
    old, older = tmp_path / "1m", tmp_path / "100k"
    old.mkdir()
    older.mkdir()
    (old / "ratings.dat").write_text("1::0010::7::1365029107\n2::10::6::1365029107\n3::11::10::5\n")
    (old / "movies.dat").write_text("0010::A: B (1913)::Crime|Drama\n0012::Only:: a title\n")
    data = load_dataset(old, test=1, validation=0)
    assert data.interactions.rewards.to_list() == [1, 0, 1]
    assert data.catalogue.ids.to_list() == [10, 12, 11]
    assert data.catalogue.titles.to_list() == ["A: B (1913)", "Only", None]
    (older / "u.data").write_text("1\t5\t4\t881250949\n2\t5\t3\t881250949\n3\t5\t5\t8\n")
    flags = "|".join("1" if genre in (3, 5) else "0" for genre in range(19))
    (older / "u.item").write_bytes(f"5|Copycat (1995)|01-Jan-1995||http://x|{flags}\n".encode("latin-1"))
    data = load_dataset(older, test=1, validation=0)
    assert data.catalogue.table.rows() == [(5, "Copycat (1995)", "Animation", "Animation|Comedy")]
    assert data.interactions.rewards.to_list() == [1, 0, 1]


def test_a_folder_without_ratings_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds none of ratings.csv, ratings.dat, u.data"):
        load_dataset(tmp_path, "movielens")
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n")
    with pytest.raises(DataError, match="holds no ratings"):
        load_dataset(tmp_path)


# --- sequences and tables --------------------------------------------------------------------------------------------


def test_sequences_are_read_with_attributes(tmp_path):
    (tmp_path / "sequences.txt").write_text("1 5 6 7\n2 6 5\n3\n4 x 5\n5 7  6\n")
    (tmp_path / "item2attributes.json").write_text('{"5": [1, 2], "6": [2], "7": []}')
    data = load_dataset(tmp_path, test=1, validation=0)
    assert data.interactions.table.select("user", "item").rows() == [
        (1, 5), (1, 6), (1, 7), (2, 6), (2, 5), (4, 5), (5, 7), (5, 6),
    ]  # fmt: skip
    assert dropped(data) == {"no items after the user": 1, "bad number": 1}
    assert data.catalogue.categories.to_list() == [None, None, None]  # of three items, none is in under a tenth
    assert data.catalogue.table["attributes"].to_list() == ["1|2", "2", None]
    (tmp_path / "item2attributes.json").write_text('["wrong"]')
    with pytest.raises(DataError, match="must hold a list of attributes for each item number"):
        load_dataset(tmp_path)
    (tmp_path / "sequences.txt").write_text("\n")
    with pytest.raises(DataError, match="holds no sequences"):
        load_dataset(tmp_path)


def test_a_table_is_read_by_its_column_mapping(tmp_path):
    pl.DataFrame({"who": ["a", "b", None, "c"], "what": [1, 2, 3, 1], "did": ["buy", "look", "buy", "look"]}).write_csv(
        tmp_path / "log.csv"
    )
    options = {"columns": {"user": "who", "item": "what", "action": "did"}, "test": 1, "validation": 0}
    data = load_dataset(tmp_path / "log.csv", actions={"buy": 1, "look": 0}, **options)
    assert data.interactions.rewards.to_list() == [1, 0, 0]
    assert dropped(data) == {"no user or item": 1}
    assert data.catalogue.ids.to_list() == [1, 2]
    assert load_dataset(tmp_path / "log.csv", **options).interactions.rewards.to_list() == [1, 1, 1]
    with pytest.raises(DataError, match="log.csv, line 4: no user or item"):
        load_dataset(tmp_path / "log.csv", strict=True, **options)
    with pytest.raises(DataError, match="no column of actions to find buy in"):
        load_dataset(tmp_path / "log.csv", actions={"buy": 1}, columns={"user": "who", "item": "what"})


# --- what they share -------------------------------------------------------------------------------------------------


def test_loaders_are_inferred_from_file_names(tmp_path):
    known = {"coat", "gorse", "mind", "movielens", "open-bandit", "recbole", "sequences", "tabular", "taobao"}
    assert set(LOADERS) == known
    with pytest.raises(DataError, match="of no form that treeward knows"):
        kind_of(tmp_path)
    with pytest.raises(DataError, match="there is no such file or folder"):
        kind_of(tmp_path / "nothing")
    with pytest.raises(InvalidArgument, match="loader must be one of coat, gorse, mind"):
        load_dataset(tmp_path, "netflix")
    with pytest.raises(DataError, match="there is no such file"):
        list(Reading().pieces(tmp_path / "x", ("a",)))


@pytest.mark.skipif(not SLICES.is_dir(), reason="the slices of real data are not here")
@pytest.mark.parametrize(
    ("name", "options", "users", "items", "events"),
    [
        ("mind", {"complete_only": False}, 4_637, 22_592, None),
        ("taobao", {"least": 0}, 813, 52_063, 75_872),
        ("taobao", {"least": 0, "actions": {"pv": 1, "cart": 1, "fav": 1, "buy": 1}}, 815, 55_368, 84_475),
        ("taobao", {}, 395, 262, 3_154),
        ("taobao", {"least": 4}, 732, 3_014, 15_470),
        ("taobao", {"until_stable": True, "actions": {"pv": 1, "cart": 1, "fav": 1, "buy": 1}}, 88, 148, None),
        ("sports", {}, 35_598, 18_357, 296_337),
        ("beauty", {}, 22_363, 12_101, 198_502),
        ("movielens-small", {}, 610, 9_724, 100_836),
        ("movietweetings", {}, 16_554, 10_506, 100_000),
    ],
)
def test_counts_of_real_data_are_as_published(name, options, users, items, events):
    data = load_dataset(SLICES / name, **options)
    counts = describe(data).counts
    assert (counts.users, counts.items) == (users, items)
    if events:
        assert counts.interactions == events
    if name == "mind":
        assert data.source["read"] == {
            "impressions": 5_000, "shown": 189_359, "clicks": 7_542, "history clicks": 159_802,
        }  # fmt: skip
        assert data.catalogue.titles.drop_nulls().len() == 2_000
        assert counts.categories == 143
        assert data.catalogue.table["topic"].n_unique() == 15 + 1  # and nothing, where there is no text


# --- once broken, never again ----------------------------------------------------------------------------------------


def test_empty_files_are_refused(tmp_path):
    (tmp_path / "UserBehavior.csv").write_bytes(b"")
    with pytest.raises(DataError, match="UserBehavior.csv: is empty"):
        load_dataset(tmp_path)
    (tmp_path / "UserBehavior.csv").write_bytes(b"\x1f\x8b rubbish\n")
    with pytest.raises(DataError, match="holds no events; wrong with its lines was: missing columns"):
        load_dataset(tmp_path)


def test_a_byte_order_mark_is_ignored(tmp_path):
    (tmp_path / "sequences.txt").write_bytes(b"\xef\xbb\xbf1 5 6\n2 5 6\n3 5\n")
    assert load_dataset(tmp_path, test=1, validation=0).interactions.users.n_unique() == 3


def test_mind_rows_without_an_id_are_counted(tmp_path):
    behaviors = BEHAVIORS + "5\t\t11/14/2019 9:00:00 AM\tN1\tN1-1\n6\tU9\t11/14/2019 9:00:00 AM\tN1  N2\tN1-1 \n"
    data = load_dataset(mind(tmp_path, behaviors, NEWS + "\tnews\tworld\tNo id\t\turl\t[]\t[]\n"), complete_only=False)
    assert dropped(data) == {"no id": 1, "empty history": 1, "no user": 1}
    assert "" not in data.catalogue.ids
    assert len(data.interactions.of_users(pl.Series(["U9"]))) == 3


def test_numbers_too_large_for_taobao_are_counted(tmp_path):
    data = load_dataset(taobao(tmp_path, busy(), f"1,2,{2**40},pv,5\n{2**40},2,3,pv,5\n".encode()), least=0)
    assert dropped(data) == {"bad number": 2}
    assert data.catalogue.categories.null_count() == 0


def test_a_missing_header_is_refused(tmp_path):
    (tmp_path / "ratings.csv").write_text("1,10,4.0,9\n1,20,3.5,9\n2,10,4,9\n")
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n10,A,Drama\n")
    with pytest.raises(DataError, match="ratings.csv, line 1: '1' where the header should be"):
        load_dataset(tmp_path)
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,10,4.0,9\n2,10,4,9\n3,10,1,9\n")
    assert len(load_dataset(tmp_path / "ratings.csv", test=1, validation=0).interactions) == 3


def test_unknown_options_are_refused(tmp_path):
    path = taobao(tmp_path, busy())
    with pytest.raises(
        InvalidArgument, match="options must be one of actions, least, progress, .* for taobao, got 'bogus'"
    ):
        load_dataset(path, bogus=1)
    with pytest.raises(InvalidArgument, match="taobao: until_stable must be True or False"):
        load_dataset(path, until_stable="x")
    load_dataset(path).save(tmp_path / "saved")
    with pytest.raises(InvalidArgument, match="options must be none for saved data"):
        load_dataset(tmp_path / "saved", test=0.9)


def test_an_explorer_ingests_mind(tmp_path):
    data = load_dataset(mind(tmp_path))
    vectors = np.random.default_rng(0).standard_normal((len(data.catalogue), 4))
    explorer = tw.Explorer(data.catalogue.with_vectors(vectors), policy=tw.Flat())
    assert explorer.ingest(data.interactions) == Ingested(9, 2, 0)
    assert explorer.store.counts(["U1"])[0] == 6


def test_titles_in_latin_1_are_read(tmp_path):
    (tmp_path / "u.data").write_text("1\t5\t4\t881250949\n2\t5\t3\t881250949\n3\t5\t5\t8\n")
    flags = "|".join(["1"] + ["0"] * 18)
    (tmp_path / "u.item").write_bytes(f"5|Misérables, Les (1995)|x||y|{flags}\n".encode("latin-1"))
    assert load_dataset(tmp_path).catalogue.titles[0] == "Misérables, Les (1995)"


def test_sequences_may_be_separated_by_tabs(tmp_path):
    (tmp_path / "sequences.txt").write_text("1\t5\t6\n2\t6\t7\n3 5 7\n")
    assert load_dataset(tmp_path / "sequences.txt").interactions.table.height == 6


def test_a_table_of_events_takes_a_table_of_items(tmp_path):
    tw.Interactions([1, 1, 2, 3, 4], [7, 8, 7, 9, 8]).table.write_csv(tmp_path / "log.csv")
    pl.DataFrame({"id": [7, 8], "title": ["x", "y"], "category": ["a", "b"]}).write_csv(tmp_path / "items.csv")
    data = load_dataset(tmp_path / "log.csv", items=str(tmp_path / "items.csv"))
    assert data.catalogue.categories.to_list() == ["a", "b"]
    assert data.dropped["item not in the catalogue"].times == 1
    pl.DataFrame({"id": ["7", "x"]}).write_csv(tmp_path / "named.csv")
    with pytest.raises(DataError, match="its ids are String, and those of the log's items Int64"):
        load_dataset(tmp_path / "log.csv", items=str(tmp_path / "named.csv"))
