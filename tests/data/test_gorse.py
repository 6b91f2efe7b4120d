"""What gorse exports, written here as it writes it, with what is wrong with real files."""

import json
import struct

import pytest

import treeward as tw
from tests.commands import run
from treeward.core.errors import DataError, InvalidArgument
from treeward.data.loaders import kind_of, load_dataset
from treeward.data.protobuf import message_fields

ITEMS = """\
{"ItemId":"tea","IsHidden":false,"Categories":["drink","hot"],"Timestamp":"2024-05-01T08:00:00.5Z","Labels":{"origin":"jp","text":{"embedding":[0.5,1]}},"Comment":"Green tea"}
{"ItemId":"pot","IsHidden":true,"Categories":null,"Timestamp":"0001-01-01T00:00:00Z","Labels":null,"Comment":""}
{"ItemId":"10086","IsHidden":false,"Categories":["book"],"Timestamp":"2024-05-01T10:00:00+02:00","Labels":{"text":{"embedding":[1,-2]}},"Comment":"A \\"book\\""}
"""  # noqa: E501
FEEDBACK = """\
{"FeedbackType":"read","UserId":"ada","ItemId":"tea","Value":1,"Timestamp":"2024-05-02T00:00:00Z","Updated":"2024-05-02T00:00:00Z","Labels":null,"Comment":""}
{"FeedbackType":"like","UserId":"ada","ItemId":"tea","Value":1,"Timestamp":"2024-05-02T00:00:10.123456789+02:00","Updated":"0001-01-01T00:00:00Z","Labels":null,"Comment":""}
{"FeedbackType":"read","UserId":"ada","ItemId":"pot","Value":5,"Timestamp":"2024-05-02T00:00:20Z","Updated":"0001-01-01T00:00:00Z","Labels":null,"Comment":""}
{"FeedbackType":"read","UserId":"bob","ItemId":"10086","Value":2,"Timestamp":"0001-01-01T00:00:00Z","Updated":"0001-01-01T00:00:00Z","Labels":null,"Comment":""}
{"FeedbackType":"hide","UserId":"bob","ItemId":"tea","Value":0,"Timestamp":"2024-05-02T00:00:40Z","Updated":"0001-01-01T00:00:00Z","Labels":null,"Comment":""}
{"FeedbackType":"like","UserId":"007","ItemId":"gone","Value":0,"Timestamp":"2024-05-02T00:00:50-01:30","Updated":"0001-01-01T00:00:00Z","Labels":null,"Comment":""}
"""
ITEMS_CSV = (
    "item_id,is_hidden,categories,time_stamp,labels,description\r\n"
    'tea,false,drink|hot,2024-05-01 08:00:00.5 +0000 UTC,"{""origin"":""jp"",""text"":{""embedding"":[0.5,1]}}",'
    "Green tea\r\n"
    "pot,true,,0001-01-01 00:00:00 +0000 UTC,null,\r\n"
    '10086,false,book,2024-05-01 10:00:00 +0200 CEST,"{""text"":{""embedding"":[1,-2]}}","A ""book"""\r\n'
)
FEEDBACK_CSV = (
    "feedback_type,user_id,item_id,time_stamp\r\n"
    "read,ada,tea,2024-05-02 00:00:00 +0000 UTC\r\n"
    "like,ada,tea,2024-05-02 00:00:10.123456789 +0200 CEST\r\n"
    "read,ada,pot,2024-05-02 00:00:20 +0000 UTC\r\n"
    "read,bob,10086,0001-01-01 00:00:00 +0000 UTC\r\n"
    "hide,bob,tea,2024-05-02 00:00:40 +0000 UTC\r\n"
    "like,007,gone,2024-05-02 00:00:50 -0130 -0130\r\n"
)
START = 1714608000
"""2024-05-02T00:00:00Z."""
EVENTS = [
    ("ada", "tea", 1.0, "read", START), ("ada", "tea", 1.0, "like", START + 10 - 7200),
    ("ada", "pot", 1.0, "read", START + 20), ("bob", "10086", 1.0, "read", None),
    ("bob", "tea", 1.0, "hide", START + 40), ("007", "gone", 1.0, "like", START + 50 + 5400),
]  # fmt: skip


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(**fields):
    return b"".join(field(int(name[1:]), one) for name, held in fields.items() for one in
                    (held if isinstance(held, list) else [held]))  # fmt: skip


def stamp(seconds):
    return field(1, seconds) + field(2, 500_000_000)


def record(body):
    return struct.pack("<q", len(body)) + body


YEAR_ONE = -62135596800
ITEM_RECORDS = [
    message(f2="tea", f4=["drink", "hot"], f5=stamp(START - 86400 + 8 * 3600), f7="Green tea",
            f6=b'{"origin":"jp","text":{"embedding":[0.5,1]}}'),
    message(f2="pot", f3=1, f5=stamp(YEAR_ONE), f6=b"null"),
    message(f2="10086", f4=["book"], f5=stamp(START - 86400 + 8 * 3600), f6=b'{"text":{"embedding":[1,-2]}}',
            f7='A "book"'),
]  # fmt: skip
FEEDBACK_RECORDS = [
    message(f2=kind, f3=user, f4=item, f5=value, f6=stamp(YEAR_ONE if when is None else when), f9=b"null")
    for (user, item, _, kind, when), value in zip(EVENTS, (1.0, 1.0, 5.0, 2.0, 0.0, 0.0), strict=True)
]


def backup(items=ITEM_RECORDS, feedback=FEEDBACK_RECORDS, end=b"\0" * 8 + b'{"Users":1}'):
    parts = [(-1, [message(f1="ada", f2=b"null")]), (-2, items), (-3, feedback)]
    return b"".join(struct.pack("<q", mark) + b"".join(map(record, bodies)) for mark, bodies in parts) + end


def export(folder, kind="jsonl", items=None, feedback=None):
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "backup":
        (folder / "backup.bin").write_bytes(backup())
        return folder / "backup.bin"
    items = {"jsonl": ITEMS, "csv": ITEMS_CSV}[kind] if items is None else items
    feedback = {"jsonl": FEEDBACK, "csv": FEEDBACK_CSV}[kind] if feedback is None else feedback
    for name, text in (("items", items), ("feedback", feedback)):
        if text:
            (folder / f"{name}.{kind}").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def load(path, **options):
    return load_dataset(path, "gorse", test=1, validation=0, **options)


def dropped(data):
    return {reason: (problem.times, problem.where) for reason, problem in data.dropped.items()}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "backup"])
def test_items_and_feedback_are_read_from_every_form(kind, tmp_path):
    data = load(export(tmp_path / "shop", kind))
    assert data.interactions.table.columns == ["user", "item", "reward", "action", "time"]
    assert data.interactions.table.rows() == EVENTS
    when = START - 86400 + 8 * 3600
    labels = ['{"origin":"jp","text":{"embedding":[0.5,1]}}', None, '{"text":{"embedding":[1,-2]}}']
    assert data.catalogue.table.columns == ["id", "title", "category", "categories", "hidden", "timestamp", "labels"]
    assert data.catalogue.table.rows() == [
        ("tea", "Green tea", "drink", "drink|hot", False, when, labels[0]),
        ("pot", None, None, None, True, None, labels[1]),
        ("10086", 'A "book"', "book", "book", False, when, labels[2]),
        ("gone", None, None, None, False, None, None),
    ]
    assert dropped(data) == {}
    assert data.source["rewards"] == "every event"


def test_the_export_is_recognised_by_its_name(tmp_path):
    folder = export(tmp_path / "shop")
    assert kind_of(folder) == kind_of(folder / "feedback.jsonl") == "gorse"
    assert load_dataset(folder).name == "shop"
    assert load_dataset(folder / "feedback.jsonl").name == "feedback"
    (folder / "items.jsonl").unlink()
    assert load(folder).catalogue.ids.to_list() == ["10086", "gone", "pot", "tea"]


def test_types_of_feedback_become_rewards_as_in_gorses_configuration(tmp_path):
    folder = export(tmp_path)
    data = load(folder, positive=["like", "read>=3"], read=["read"])
    assert [row[:4] for row in data.interactions.table.rows()] == [
        ("ada", "tea", 1.0, "like"), ("ada", "pot", 1.0, "read"), ("bob", "10086", 0.0, "read"),
        ("007", "gone", 1.0, "like"),
    ]  # fmt: skip
    assert dropped(data) == {
        "feedback of the type hide, or with a value, that was not named": (1, "filter"),
        "read, and then judged by the same user": (1, "filter"),
    }
    data = load(folder, positive=["like"], negative=["hide"], read=["read<5"])
    assert [row[2:4] for row in data.interactions.table.rows()] == [
        (1.0, "like"), (0.0, "read"), (0.0, "hide"), (1.0, "like"),
    ]  # fmt: skip
    assert (data.source["positive"], data.source["read"]) == (["like"], ["read<5"])
    weighed = load(folder, actions={"like": 1, "read": 0.25})
    assert weighed.interactions.rewards.to_list() == [0.25, 1.0, 0.25, 0.25, 1.0]
    assert data.source["sha256"] == weighed.source["sha256"]
    with pytest.raises(DataError, match="holds no feedback of the types star, read>9"):
        load(folder, positive=["star", "read>9"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"positive": "like"}, "positive must be types of feedback"),
        ({"positive": ["like=3"]}, "got 'like=3'"),
        ({"positive": [3]}, "got 3"),
        ({"read": ["read"]}, "positive must be given where read or negative is"),
        ({"positive": ["like"], "actions": {"like": 1}}, "actions must be left out"),
        ({"vector": 3}, "vector must be"),
    ],
)
def test_bad_options_are_refused(options, told, tmp_path):
    with pytest.raises(InvalidArgument, match=told):
        load(export(tmp_path), **options)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "backup"])
def test_labels_give_vectors_when_asked(kind, tmp_path):
    path = export(tmp_path / "shop", kind)
    data = load(path, vector="text.embedding")
    assert data.catalogue.ids.to_list() == ["tea", "10086"]
    assert data.catalogue.vectors.tolist() == [[0.5, 1.0], [1.0, -2.0]]
    assert data.catalogue.table["labels"].to_list() == ['{"origin":"jp"}', None], "the vector is not kept twice"
    unit = "record 3" if kind == "backup" else f"line {3 if kind == 'csv' else 2}"
    name = "backup.bin" if kind == "backup" else f"items.{kind}"
    assert dropped(data) == {
        "no vector": (1, f"{name}, {unit}"),
        "item not in the catalogue": (2, name),
    }
    with pytest.raises(DataError, match="no item has a vector in its label color"):
        load(path, vector="color")
    with pytest.raises(DataError, match="no vector"):
        load(path, vector="text.embedding", strict=True)


def test_vectors_of_another_length_are_left_out(tmp_path):
    lines = [{"ItemId": str(at), "Labels": {"e": vector}} for at, vector in
             enumerate([[1, 2], [1], [1, "x"], [3, 4], [True, 1], []])]  # fmt: skip
    data = load(export(tmp_path, items="\n".join(map(json.dumps, lines))), vector="e")
    assert data.catalogue.ids.to_list() == ["0", "3"]
    assert dropped(data)["no vector"] == (3, "items.jsonl, line 3")
    assert dropped(data)["vector of another length than the first"] == (1, "items.jsonl, line 2")


EXPECTED = "not as expected"
LINE = '{"FeedbackType":"like","UserId":"ada","ItemId":"tea","Timestamp":"2024-05-02T00:00:00Z"}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{]", "not JSON"),
        (b'{"FeedbackType":"\xff","UserId":"b","ItemId":"c"}', "not JSON"),
        (b'{"Deep":' + b"[" * 5000, "not JSON"),
        (b"", "empty line"),
        (b'{"FeedbackType":"like","UserId":"a"}', f"{EXPECTED}: Object missing required field `ItemId`"),
        (b'{"FeedbackType":"like","UserId":3,"ItemId":"b"}', f"{EXPECTED}: Expected `str`, got `int` - at `$.UserId`"),
        (b'{"FeedbackType":"like","UserId":" ","ItemId":"b"}', "no user or item"),
        (b'{"FeedbackType":"","UserId":"a","ItemId":"b"}', "no feedback type"),
        (b'{"FeedbackType":"x","UserId":"a","ItemId":"b","Timestamp":"yesterday"}', "bad time"),
        (b'{"FeedbackType":"x","UserId":"a","ItemId":"b","Timestamp":"2024-13-01T00:00:00Z"}', "bad time"),
        (LINE.strip().encode(), "feedback listed before"),
    ],
    ids=range(11),
)  # fmt: skip
def test_bad_lines_are_counted_or_refused(line, reason, tmp_path):
    other = LINE.replace("ada", "bob").encode()
    folder = export(tmp_path, items="", feedback=LINE.encode() + line + b"\n" + other)
    data = load(folder)
    assert dropped(data) == {reason: (1, "feedback.jsonl, line 2")}
    assert data.interactions.users.to_list() == ["ada", "bob"]
    with pytest.raises(DataError, match=r"feedback\.jsonl, line 2: "):
        load(folder, strict=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"like,ada", "missing columns"),
        (b"like,ada,tea,2024-05-02 00:00:00 +0000 UTC,more", "too many columns"),
        (b"like,\xff,tea,2024-05-02 00:00:00 +0000 UTC", "not UTF-8"),
        (b"feedback_type,user_id,item_id,time_stamp", "repeated header"),
        (b"", "empty line"),
        (b"like,ada,,2024-05-02 00:00:00 +0000 UTC", "no user or item"),
        (b"like,ada,pot,soon", "bad time"),
    ],
    ids=range(7),
)
def test_bad_rows_of_csv_are_counted_or_refused(line, reason, tmp_path):
    head, first, *rest = FEEDBACK_CSV.encode().splitlines(keepends=True)
    folder = export(tmp_path, "csv", feedback=head + first + line + b"\r\n" + b"".join(rest))
    data = load(folder)
    assert dropped(data) == {reason: (1, "feedback.csv, line 3")}
    assert data.interactions.table.rows() == EVENTS
    with pytest.raises(DataError, match=r"feedback\.csv, line 3: "):
        load(folder, strict=True)


def test_fields_of_csv_may_have_several_lines(tmp_path):
    lines = ITEMS_CSV.splitlines(keepends=True)
    lines.insert(1, 'cup,maybe,,,,"blue,\r\nand\n""round"""\r\nmug,,,,,"two\r\nlines"\r\nbad,,,,{,\r\n')
    data = load(export(tmp_path, "csv", items="".join(lines)))
    assert data.catalogue.titles.to_list()[:2] == ["two\r\nlines", "Green tea"]
    assert dropped(data) == {
        "is_hidden is neither true nor false": (1, "items.csv, line 2"),
        "labels that are not JSON": (1, "items.csv, line 7"),
    }
    with pytest.raises(DataError, match=r"feedback\.csv, line 1: its columns must be feedback_type, .*; it has a, b"):
        load(export(tmp_path, "csv", feedback="a,b\r\n"))


def test_backups_that_are_damaged_are_refused(tmp_path):
    path, whole = tmp_path / "b.bin", backup()
    end = whole.index(b'{"Users"')
    for cut in (9, 40, end // 2, end - 8, end - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match="the backup is (cut short|damaged)"):
            load(path)
    path.write_bytes(whole.replace(struct.pack("<q", -2), struct.pack("<q", -9)))
    with pytest.raises(DataError, match="damaged"):
        load(path)
    path.write_bytes(b"PK\x03\x04" + whole)
    with pytest.raises(DataError, match="is no backup of gorse"):
        load(path)
    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="cannot be read"):
            load(missing)


def test_bad_records_of_a_backup_are_counted_or_refused(tmp_path):
    bad = [b"\x0a\xff", message(f2=3), message(f2="a", f3="b", f4="c", f5="d"), message(f2=b"\xff", f3="b", f4="c"),
           message(f2="a", f3="b", f4="c", f5=1.0, f6=stamp(1 << 60))]  # fmt: skip
    path = tmp_path / "b.bin"
    path.write_bytes(backup(items=[*ITEM_RECORDS, message(f2="x", f6=b"{")], feedback=[*bad, *FEEDBACK_RECORDS]))
    data = load(path)
    assert dropped(data) == {"not a record of gorse": (6, "b.bin, record 5")}
    assert data.interactions.table.rows() == EVENTS
    with pytest.raises(DataError, match=r"b\.bin, record 5: not a record"):
        load(path, strict=True)


def test_values_and_labels_that_are_beyond_numbers_or_depth_are_left_out(tmp_path):
    path = tmp_path / "b.bin"
    deep = message(f2="deep", f6=b"[" * 5_000 + b"]" * 5_000)
    bad = [message(f2="like", f3="eve", f4="tea", f5=value, f6=stamp(1)) for value in (float("nan"), float("inf"))]
    path.write_bytes(backup(items=[*ITEM_RECORDS, deep], feedback=[*bad, *FEEDBACK_RECORDS]))
    data = load(path, positive=["like>=1", "read"])
    assert dropped(data)["not a record of gorse"][0] == 3
    assert "eve" not in data.interactions.users.to_list()
    folder = export(tmp_path / "export", items=ITEMS + "".join(
        f'{{"ItemId":"{name}","Labels":{{"text":{{"embedding":[1,{number}]}}}}}}\n'
        for name, number in (("huge", "1" + "0" * 400), ("single", "1e300"))
    ))  # fmt: skip
    data = load(folder, vector="text.embedding")
    assert sorted(data.catalogue.ids.to_list()) == ["10086", "tea"]
    assert dropped(data)["no vector"][0] == 3


@pytest.mark.parametrize(
    "raw", [b"\x08", b"\x08" + b"\xff" * 11, b"\x09abc", b"\x0d1", b"\x0a\x05abc", b"\x0b", b"\x0f"], ids=repr
)
def test_bytes_that_are_no_message_are_refused(raw):
    with pytest.raises(ValueError, match=r"cut short|too long|unknown kind"):
        message_fields(raw, range(9))


def test_numbers_of_a_message_are_read():
    whole = b"\x0d" + struct.pack("<f", 0.5) + field(1, 2.5) + field(2, 7) + field(300, -1)
    assert message_fields(whole, (1, 300)) == {1: [0.5, 2.5], 300: [(1 << 64) - 1]}


def test_the_command_line_takes_its_options(tmp_path):
    folder = export(tmp_path / "shop")
    rewards = '{"positive": ["like"], "read": ["read"]}'
    options = [f"{name}={json.dumps(given)}" for name, given in json.loads(rewards).items()]
    words = [word for one in options for word in ("--loader-option", one)]
    told = run("data", "inspect", folder, *words, "--loader-option", "validation=0", "--loader-option", "test=1")
    assert "read, and then judged by the same user" in told
    told = run(
        "data", "inspect", folder, "--action", "like=1", "--loader-option", "test=0", "--loader-option", "validation=0"
    )
    assert "action hide, left out" in told


def test_an_explorer_starts_with_the_export(tmp_path):
    data = load(export(tmp_path), vector="text.embedding", positive=["like"], read=["read"])
    shop = tw.Catalogue.of_table(data.catalogue.table, data.catalogue.vectors)
    explorer = tw.Explorer(shop, seed=0, crowd=False)
    made = explorer.ingest(data.interactions, unknown="skip")
    assert (made.events, made.skipped) == (2, 2)
