"""RecBole's atomic files: small ones written here, with what is wrong with real ones."""

import pytest

import treeward as tw
from tests.commands import run
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.loaders import kind_of, load_dataset

INTER = """user_id:token\titem_id:token\trating:float\ttimestamp:float
1\t10\t5\t100
1\t11\t3\t200
2\t10\t4.5\t300
3\t12\t1\t400
"""
ITEM = """item_id:token\tmovie_title:token_seq\tyear:float\tgenre:token_seq\temb:float_seq
10\tToy Story\t1995\tAnimation Comedy\t1 0.5
11\t"Heat"\tnan\t\t-0.5 2
12\tFargo\t1996\tCrime\t0 1e-1
13\tBabe\t1995\tDrama\t3 4
"""
USER = """user_id:token\tage:float\tsex:token\tzip:token_seq
1\t20\tF\t1 2
2\t\tM\t3
4\t60\tF\t
"""


def shop(folder, inter=INTER, **others):
    folder.mkdir(parents=True, exist_ok=True)
    for end, text in {"inter": inter, **others}.items():
        (folder / f"ml.{end}").write_text(text)
    return folder


def load(folder, **options):
    return load_dataset(folder, test=1, validation=0, **options)


def dropped(data):
    return {reason: (problem.times, problem.where) for reason, problem in data.dropped.items()}


def test_items_users_ratings_and_times_are_read(tmp_path):
    folder = shop(tmp_path / "ml", item=ITEM, user=USER)
    assert kind_of(folder) == kind_of(folder / "ml.inter") == "recbole"
    data = load(folder)
    assert data.name == "ml"
    rows = [(1, 10, 1.0, 100), (1, 11, 0.0, 200), (2, 10, 1.0, 300), (3, 12, 0.0, 400)]
    assert data.interactions.table.rows() == rows
    assert data.catalogue.table.rows() == [
        (10, "Toy Story", "Animation", 1995.0, "Animation Comedy"), (11, '"Heat"', None, None, None),
        (12, "Fargo", "Crime", 1996.0, "Crime"), (13, "Babe", "Drama", 1995.0, "Drama"),
    ]  # fmt: skip
    assert data.catalogue.table.columns == ["id", "title", "category", "year", "genre"]
    assert data.catalogue.vectors.round(2).tolist() == [[1, 0.5], [-0.5, 2], [0, pytest.approx(0.1)], [3, 4]]
    assert data.user_features.columns == ["user", "age", "sex=F", "sex=M"]
    assert data.user_features.rows() == [(1, 20.0, 1.0, 0.0), (2, 20.0, 0.0, 1.0), (3, 20.0, 0.0, 0.0)]
    assert dropped(data) == {"user not in the file of users": (1, "ml.user")}
    told = {name: data.source[name] for name in ("rewards", "positive", "not_used", "not_used_of_users")}
    assert told == {"rewards": "rating", "positive": 4, "not_used": [], "not_used_of_users": ["zip"]}


def test_a_log_alone_is_enough(tmp_path):
    text = "user_id:token\titem_id:token\nann\t007\nbob\t8\nann\t9\n"
    data = load(shop(tmp_path, inter=text))
    assert data.interactions.table.rows() == [("ann", "007", 1.0), ("bob", "8", 1.0), ("ann", "9", 1.0)]
    assert data.catalogue.ids.to_list() == ["007", "8", "9"]
    assert data.user_features is None
    assert data.source["rewards"] == "every event"


def test_ids_are_of_one_type_in_log_and_items(tmp_path):
    item = "item_id:token\n10\n011\n"
    data = load(shop(tmp_path, item=item))
    assert data.interactions.items.to_list() == ["10", "11", "10", "12"]
    assert data.catalogue.ids.to_list() == ["10", "011", "11", "12"]


def with_ratings(*ratings):
    return "user_id:token\titem_id:token\trating:float\n" + "".join(f"{at}\t1\t{r}\n" for at, r in enumerate(ratings))


@pytest.mark.parametrize(
    ("ratings", "rewards", "positive"),
    [((1, 0, 1), [1, 0, 1], 1), ((3.5, 4, 5), [0, 1, 1], 4), ((6, 7, 10), [0, 1, 1], 7)],
)
def test_threshold_follows_the_highest_rating(tmp_path, ratings, rewards, positive):
    data = load(shop(tmp_path, inter=with_ratings(*ratings)))
    assert (data.interactions.rewards.to_list(), data.source["positive"]) == (rewards, positive)


@pytest.mark.parametrize("ratings", [(0, 2, 3), (1, 5, 6), (3, 50, 100)])
def test_a_scale_that_is_not_known_needs_a_threshold(tmp_path, ratings):
    """One stray rating of 6 among ratings up to 5 must not move the threshold to 7."""
    with pytest.raises(DataError, match="say from which on the reward is 1"):
        load(shop(tmp_path, inter=with_ratings(*ratings)))


@pytest.mark.parametrize("field", ["label:token", "rating:token", "timestamp:token"])
def test_usual_fields_of_a_wrong_type_are_refused(tmp_path, field):
    name = field.split(":")[0]
    text = f"user_id:token\titem_id:token\t{field}\n1\t10\t0\n"
    with pytest.raises(DataError, match=f"line 1: '{name}', the (reward|time), must be of type float, not token"):
        load(shop(tmp_path, inter=text))


def test_ratings_beyond_ten_need_a_threshold(tmp_path):
    folder = shop(tmp_path, inter=with_ratings(3, 50, 100))
    with pytest.raises(DataError, match=r"ml.inter: 'rating' goes from 3 to 100; say from which on the reward is 1"):
        load(folder)
    assert load(folder, positive=50).interactions.rewards.to_list() == [0, 1, 1]


def test_ratings_outside_the_declared_range_are_left_out_or_refused(tmp_path):
    folder = shop(tmp_path, inter=with_ratings(-1, 5, 4, 6, 1))
    data = load(folder, ratings=(1, 5))
    assert data.interactions.rewards.to_list() == [1, 1, 0]
    assert dropped(data) == {"rating outside 1 to 5": (2, "ml.inter, line 2")}
    with pytest.raises(DataError, match="ml.inter, line 2: rating outside 1 to 5"):
        load(folder, ratings=(1, 5), strict=True)


def test_labels_are_rewards_unless_ratings_are_asked_for(tmp_path):
    text = "user_id:token\titem_id:token\trating:float\tlabel:float\n" + "1\t1\t5\t0\n2\t1\t1\t1\n3\t1\t4\t0.5\n"
    folder = shop(tmp_path, inter=text)
    data = load(folder)
    assert (data.interactions.rewards.to_list(), data.source["rewards"]) == ([0, 1], "label")
    assert dropped(data) == {"label is neither 0 nor 1": (1, "ml.inter, line 4")}
    assert data.source["not_used"] == ["rating"]
    by_rating = load(folder, positive=4)
    assert (by_rating.interactions.rewards.to_list(), by_rating.source["rewards"]) == ([1, 0, 1], "rating")


def test_other_names_of_fields_are_mapped(tmp_path):
    text = "uid:token\tiid:token\tstars:float\twhen:float\n1\t10\t2\t5\n2\t11\t5\t6\n"
    item = "iid:token\tlabel:token\tkind:token\ta:float_seq\tb:float_seq\n10\tTea\tDrinks\t1 2\t3\n"
    item += "11\tPot\tTools\t0 1\t4\n"
    folder = shop(tmp_path, inter=text, item=item)
    columns = {"user": "uid", "item": "iid", "reward": "stars", "time": "when", "title": "label", "category": "kind"}
    data = load(folder, columns={**columns, "vector": "b"}, positive=3)
    assert data.interactions.table.rows() == [(1, 10, 0.0, 5), (2, 11, 1.0, 6)]
    assert data.catalogue.table.rows() == [(10, "Tea", "Drinks"), (11, "Pot", "Tools")]
    assert data.catalogue.vectors.tolist() == [[3], [4]]
    with pytest.raises(DataError, match=r"ml.item, line 1: a, b are of type float_seq; say which is the vector"):
        load(folder, columns=columns)
    words = [word for role, name in {**columns, "vector": "a"}.items() for word in ("--column", f"{role}={name}")]
    assert "ml" in run(
        "data", "inspect", folder, *words, "--loader-option", "test=1", "--loader-option", "validation=0"
    )


def test_actions_are_weighed(tmp_path):
    text = "user_id:token\titem_id:token\taction:token\n1\t1\tview\n2\t1\tbuy\n3\t1\tshare\n"
    data = load(shop(tmp_path, inter=text), actions={"view": 0.1, "buy": 1})
    assert data.interactions.rewards.to_list() == [0.1, 1.0]
    assert data.dropped["event of the action share, which has no weight"].times == 1


def test_sequences_may_be_separated_otherwise(tmp_path):
    item = "item_id:token\tgenres:token_seq\te:float_seq\n10\tScience fiction, Drama\t1,2\n"
    data = load(shop(tmp_path, item=item), separator=",")
    assert data.catalogue.categories.to_list() == ["Science fiction"]
    assert data.catalogue.vectors.tolist() == [[1, 2]]
    assert dropped(data) == {"item not in the catalogue": (2, "ml.item")}


def test_times_with_fractions_keep_their_order(tmp_path):
    text = "user_id:token\titem_id:token\ttimestamp:float\n1\t1\t100.75\n1\t2\t100.25\n2\t1\t7\n3\t1\t-1e300\n"
    data = load(shop(tmp_path, inter=text))
    times = data.interactions.table["time"]
    assert times.dt.epoch("us").to_list() == [100_750_000, 100_250_000, 7_000_000]
    assert dropped(data) == {"bad time": (1, "ml.inter, line 5")}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1\t10\t5", "missing columns"),
        ("1\t10\t5\t100\t1", "too many columns"),
        ("1\t10\tfive\t100", "bad number"),
        ("1\t10\tinf\t100", "bad number"),
        ("1\t10\t5\tnoon", "bad number"),
        ("1\t10\t5\t", "bad time"),
        ("1\t10\tnan\t100", "no rating"),
        ("\t10\t5\t100", "no user or item"),
        ("", "empty line"),
        ("user_id:token\titem_id:token\trating:float\ttimestamp:float", "repeated header"),
    ],
)
def test_bad_lines_are_counted_or_refused(tmp_path, line, reason):
    folder = shop(tmp_path, inter=f"{INTER}{line}\n9\t10\t5\t100\r\n")
    data = load(folder)
    assert dropped(data) == {reason: (1, "ml.inter, line 6")}
    assert data.interactions.table.rows()[-1] == (9, 10, 1.0, 100)
    with pytest.raises(DataError, match=f"ml.inter, line 6: {reason}"):
        load(folder, strict=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("14\tUp\t2009\tDrama\t1 2 3", "vector of another length than the first"),
        ("14\tUp\t2009\tDrama\t1 x", "bad number"),
        ("14\tUp\t2009\tDrama\t1 nan", "bad number"),
        ("14\tUp\t2009\tDrama\t", "no vector"),
        ("14\tUp\tlate\tDrama\t1 2", "bad number"),
        ("\tUp\t2009\tDrama\t1 2", "no id"),
        ("10\tUp\t2009\tDrama\t1 2", "item listed before"),
        ("14\tUp", "missing columns"),
    ],
)
def test_bad_lines_of_items_are_counted_or_refused(tmp_path, line, reason):
    folder = shop(tmp_path, item=f"{ITEM}{line}\n")
    data = load(folder)
    assert dropped(data) == {reason: (1, "ml.item, line 6")}
    assert data.catalogue.ids.to_list() == [10, 11, 12, 13]
    with pytest.raises(DataError, match=f"ml.item, line 6: {reason}"):
        load(folder, strict=True)


HEAD = "user_id:token\titem_id:token\t"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("user_id\titem_id:token\n1\t2\n", "ml.inter, line 1: 'user_id' has no type: it must be field:type, the type"),
        (":token\titem_id:token\n1\t2\n", "ml.inter, line 1: ':token' has no type"),
        (HEAD + "rating:int\n1\t2\t3\n", "ml.inter, line 1: 'rating:int' has an unknown type: .* token, token_seq, fl"),
        (HEAD + "user_id:token\n1\t2\t3\n", "ml.inter, line 1: repeats the field 'user_id'"),
        ("uid:token\titem_id:token\n1\t2\n", "ml.inter, line 1: no field 'user_id' for the user; it has uid, item_id"),
        ("user_id:float\titem_id:token\n1\t2\n", "'user_id', the user, must be of type token, not float"),
        (HEAD.strip() + "\n", "holds no events$"),
        (HEAD.strip() + "\n1\n", "holds no events; its lines have: missing columns"),
        ("\n1\t2\n", "is empty, or begins with an empty line"),
        ("", "is empty"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, why):
    with pytest.raises(DataError, match=why):
        load(shop(tmp_path, inter=text))


def test_columns_that_are_not_there_are_refused(tmp_path):
    folder = shop(tmp_path)
    with pytest.raises(DataError, match=r"ml.inter, line 1: no field 'stars' for the reward; it has user_id, .*NAME"):
        load(folder, columns={"reward": "stars"})
    with pytest.raises(DataError, match="must be of type float, not token"):
        load(folder, columns={"time": "user_id"})
    with pytest.raises(DataError, match="ml.item: cannot be read: there is no such file"):
        load(folder, columns={"title": "name"})
    with pytest.raises(DataError, match="ml.inter, line 1: no field for ratings"):
        load(shop(tmp_path / "bare", inter="user_id:token\titem_id:token\n1\t1\n"), positive=4)
    labelled = shop(tmp_path / "labelled", inter="user_id:token\titem_id:token\tlabel:float\n1\t1\t1\n")
    with pytest.raises(DataError, match="ml.inter, line 1: no field for ratings"):
        load(labelled, ratings=(1, 5))
    with pytest.raises(DataError, match="ml.item: holds no items; its lines have: no id"):
        load(shop(tmp_path / "none", item="item_id:token\ttitle:token\n\tA\n"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"positive": "4"}, "recbole: positive must be a finite number"),
        ({"ratings": [1]}, r"recbole: ratings must be the lowest and the highest rating, such as \[1, 5\]"),
        ({"ratings": (5, 1)}, "the lowest and the highest rating"),
        ({"ratings": "15"}, "the lowest and the highest rating"),
        ({"separator": ""}, "recbole: separator must be a text of at least one character"),
        ({"columns": "user"}, "recbole: columns must be"),
        ({"actions": {}}, "recbole: actions must be a weight for each action"),
        ({"threshold": 3}, "options must be one of"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, why):
    with pytest.raises(InvalidArgument, match=why):
        load(shop(tmp_path), **options)


def test_a_folder_with_several_logs_needs_a_name(tmp_path):
    folder = shop(tmp_path / "shop")
    (folder / "other.inter").write_text(INTER)
    with pytest.raises(DataError, match=r"holds several logs \(ml.inter, other.inter\): name one of the files"):
        load(folder)
    assert load(folder / "other.inter").name == "other"
    (folder / "shop.inter").write_text(INTER)
    assert load(folder).name == "shop"
    with pytest.raises(DataError, match="it holds no file NAME.inter"):
        load_dataset(tmp_path, "recbole")


def test_names_of_fields_are_free(tmp_path):
    item = "item_id:token\tline:float\tid:token\tvector:token\tfield user_id:token\n10\t1\tx\ty\tz\n"
    user = "user_id:token\tuser:float\tline:float\n1\t4\t5\n"
    data = load(shop(tmp_path, item=item, user=user))
    assert data.catalogue.table.columns == ["id", "line", "field user_id"]
    assert data.user_features.columns == ["user", "line"]


def test_features_of_users_do_not_change_how_a_world_is_fitted(tmp_path):
    """A log without skips stays one: its negatives are drawn."""
    rows = [f"{user}\t{(user * 7 + step) % 30}\n" for user in range(60) for step in range(10)]
    inter = "user_id:token\titem_id:token\n" + "".join(rows)
    user = "user_id:token\tsex:token\n" + "".join(f"{at}\t{'FM'[at % 2]}\n" for at in range(60))
    folder = shop(tmp_path / "log", inter=inter, user=user)
    assert load(folder).user_features.width == 3
    assert "Saved to" in run("world", "fit", folder, "-o", tmp_path / "world", "--dim", "4", "--no-twin")
    assert tw.World.load(tmp_path / "world").provenance["exposure"] == "popularity"
