"""gorse's data: what its dashboard exports (`items.jsonl`, `feedback.jsonl`, or CSV before 0.5), and its backups."""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import polars as pl
from msgspec import Struct

from treeward.core import checks
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.delimited import Piece, Reading
from treeward.data.interactions import Interactions, checked_weights
from treeward.data.loaders.base import Loaded, loader
from treeward.data.loaders.tabular import weighed
from treeward.data.protobuf import Value, message_fields

SIGNS = ("feedback.jsonl",)
"""`feedback.csv` is too common a name to be taken for gorse's."""

Row = TypeVar("Row", bound=Struct)

_ITEMS, _FEEDBACK = "items", "feedback"
_ITEM_COLUMNS = ("item_id", "is_hidden", "categories", "time_stamp", "labels", "description")
_FEEDBACK_COLUMNS = ("feedback_type", "user_id", "item_id", "time_stamp")
_RULE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?:(<=|>=|<|>)([0-9]*\.?[0-9]+))?")
_TIME = r"^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.\d+)?(?:Z| ?([+-])(\d{2}):?(\d{2})(?: .*)?)?$"
"""RFC 3339, or as Go prints a time: 2021-10-24 06:42:20.207 +0000 UTC."""
_NO_TIME = "0001-01-01"
"""The day that Go writes where there is no time."""
_FIELDS = range(2, 8)
"""Of an item or a feedback."""
_LARGEST = float(np.finfo(np.float32).max)
_END, _USER_MARK, _ITEM_MARK, _FEEDBACK_MARK = 0, -1, -2, -3
_BACKUP_BEGINS = _USER_MARK.to_bytes(8, "little", signed=True)


class _Item(Struct):
    """An item; the names are those of the export."""

    ItemId: str
    IsHidden: bool = False
    Categories: list[str] | None = None
    Timestamp: str = ""
    Labels: Any = None
    Comment: str = ""


class _Feedback(Struct):
    """A feedback."""

    FeedbackType: str
    UserId: str
    ItemId: str
    Value: float = 0.0
    Timestamp: str = ""


class _Rule(NamedTuple):
    """A type of feedback, and perhaps a bound of its value, as in gorse's configuration: ``like``, ``read>=3``."""

    kind: str
    sign: str
    bound: float

    def holds(self) -> pl.Expr:
        """Return which rows are of this type."""
        kind, value = pl.col("action") == self.kind, pl.col("value")
        compared = {
            "<=": value <= self.bound, ">=": value >= self.bound, "<": value < self.bound, ">": value > self.bound,
        }  # fmt: skip
        return kind & compared[self.sign] if self.sign else kind


@loader("gorse")
def load(
    path: Path,
    reading: Reading,
    *,
    positive: Sequence[str] | None = None,
    read: Sequence[str] = (),
    negative: Sequence[str] = (),
    actions: Mapping[str, float] | None = None,
    vector: str | None = None,
) -> Loaded:
    """Read what gorse exports: a folder with `feedback.jsonl`, and `items.jsonl` if it is next to it, or a backup.

    Before version 0.5, gorse exported `feedback.csv` and `items.csv`; those are read as well. Users are not read. The
    column `action` is the type of the feedback. By default every feedback has the reward 1.

    Parameters
    ----------
    path
        A folder; a file `feedback.jsonl` or `feedback.csv`; or a backup, which `gorse-cli dump` writes.
    positive
        Types of feedback whose reward is 1, as in gorse's configuration: ``["like", "read>=3"]``.
    read
        Types that say that an item was seen. Their reward is 0, and they are left out where the same user also gave the
        same item a positive or a negative feedback, as gorse does.
    negative
        Types whose reward is 0 in any case. Feedback of no named type is left out, and counted in `Dataset.dropped`.
    actions
        What each type is worth, such as ``{"read": 0, "like": 1}``, instead of the three lists.
    vector
        Where an item's labels have its vector: ``"embedding"``, or ``"text.embedding"`` within another label. By
        default items have no vectors.
    """
    kinds = ("positive", positive or []), ("read", read), ("negative", negative)
    rules = {name: _rules(name, given) for name, given in kinds}
    weights = None if actions is None else checked_weights("gorse", actions)
    if weights is not None and (positive is not None or read or negative):
        raise InvalidArgument("gorse", "actions", "left out where positive, read or negative is given", dict(weights))
    if positive is None and (read or negative):
        raise InvalidArgument("gorse", "positive", "given where read or negative is", positive)
    checks.kinds("gorse", ("vector", vector or "", str))
    found = _found(path, reading)
    events = _events(found)
    if not events.height:
        raise DataError(f"{path}: holds no feedback; wrong with its lines was: {', '.join(reading.found) or 'nothing'}")
    source: dict[str, Any] = {"file": found.log.name, "read": {"events": events.height}, "rewards": "every event"}
    if positive is not None:
        events = _judged(events, rules, found)
        named = {name: [*given] for name, given in kinds}
        source |= {"rewards": "types of feedback", **named}
    rewards = events["reward"] if "reward" in events.columns else None
    log = Interactions(events["user"], events["item"], rewards=rewards, actions=events["action"], times=events["time"])
    if weights is not None:
        log, other = weighed(log, weights, reading)
        source |= {"rewards": "actions", "actions": weights, "other_actions": other}
    catalogue = _catalogue(found, log, vector)
    name = path.stem if path.is_file() and path.name == found.log.name else path.resolve().name
    return Loaded(name, catalogue, log, source | {"vector": vector})


def _rules(name: str, given: Sequence[str]) -> list[_Rule]:
    rule = "types of feedback, each as in like or read>=3"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidArgument("gorse", name, rule, given)
    made = []
    for one in given:
        parts = _RULE.fullmatch(one) if isinstance(one, str) else None
        if parts is None:
            raise InvalidArgument("gorse", name, rule, one)
        made.append(_Rule(parts[1], parts[2] or "", float(parts[3] or 0)))
    return made


# --- files -----------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """What is read: items and feedback, each with its place."""

    items: Iterable[tuple[int, _Item]]
    feedback: Iterable[tuple[int, _Feedback]]
    log: Path
    items_file: Path
    unit: str
    """What a place counts: lines, or records."""
    reading: Reading

    def piece(self, rows: pl.DataFrame, path: Path) -> "_Piece":
        return _Piece(rows, path, self.reading, self.unit)


class _Piece(NamedTuple):
    """Rows with their places, as `Piece`, whose places may be records."""

    rows: pl.DataFrame
    path: Path
    reading: Reading
    unit: str

    def keep(self, good: pl.Expr, reason: str) -> "_Piece":
        """Return the rows for which `good` holds, and count the others."""
        if self.unit == "line":
            return self._replace(rows=Piece(self.rows, self.path, self.reading).keep(good, reason).rows)
        told = self.rows.select(good.fill_null(False).alias("good"))["good"]
        wrong = self.rows.filter(~told)["line"]
        if len(wrong):
            self.reading.note(reason, len(wrong), f"{self.path.name}, {self.unit} {wrong[0]}")
        return self._replace(rows=self.rows.filter(told))


def _found(path: Path, reading: Reading) -> _Found:
    """Return the rows of a folder, of a file and the one next to it, or of a backup."""
    if path.is_dir():
        logs = [path / f"{_FEEDBACK}{end}" for end in (".jsonl", ".csv")]
        log = next((one for one in logs if one.is_file()), None)
        if log is None:
            raise DataError(f"{path}: cannot be read: it holds neither {logs[0].name} nor {logs[1].name}")
    else:
        log = path
    listed = log.with_name(f"{_ITEMS}{log.suffix}")
    items: Iterable[tuple[int, _Item]] = ()
    if log.suffix == ".jsonl":
        items = _json_rows(listed, _Item, reading) if listed.is_file() else items
        return _Found(items, _json_rows(log, _Feedback, reading), log, listed, "line", reading)
    if log.suffix == ".csv":
        items = _csv_rows(listed, _ITEM_COLUMNS, _csv_item, reading) if listed.is_file() else items
        feedback = _csv_rows(log, _FEEDBACK_COLUMNS, _csv_feedback, reading)
        return _Found(items, feedback, log, listed, "line", reading)
    return _Found(*_backup(log, reading), log, log, "record", reading)


def _json_rows(path: Path, kind: type[Row], reading: Reading) -> Iterator[tuple[int, Row]]:
    """Yield the objects of a file with one per line."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in reading.lines(path):
        place = f"{path.name}, line {number}"
        if not line.strip():
            reading.note("empty line", 1, place)
            continue
        try:
            yield number, decoder.decode(line)
        except msgspec.ValidationError as error:
            reading.note(f"not as expected: {error}", 1, place)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            reading.note("not JSON", 1, place)


def _csv_rows(path: Path, names: Sequence[str], made: Any, reading: Reading) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a CSV file whose first line names its columns; a quoted field may have several lines."""
    lines = (line.decode("utf-8", "surrogateescape") + "\n" for _, line in reading.lines(path))
    rows = csv.reader(lines)
    before, header = 0, None
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:  # a field beyond the parser's limit
            raise DataError(f"{path.name}, line {rows.line_num}: {error}") from error
        first, before = before + 1, rows.line_num
        place = f"{path.name}, line {first}"
        if header is None:
            header = row
            if sorted(header) != sorted(names) or len(set(header)) != len(names):
                raise DataError(f"{place}: its columns must be {', '.join(names)}; it has {', '.join(header)}")
        elif fault := _fault(row, header):
            reading.note(fault, 1, place)
        else:
            try:
                yield first, made(dict(zip(header, row, strict=True)))
            except ValueError as error:
                reading.note(str(error), 1, place)


def _fault(row: list[str], header: list[str]) -> str:
    """Return what is wrong with a row, if it is not what its columns contain."""
    if len(row) != len(header):
        return "empty line" if not row else "missing columns" if len(row) < len(header) else "too many columns"
    if row == header:
        return "repeated header"
    return "not UTF-8" if any("\udc80" <= char <= "\udcff" for char in "".join(row)) else ""


def _csv_item(row: dict[str, str]) -> _Item:
    hidden = {"": False, "false": False, "0": False, "true": True, "1": True}.get(row["is_hidden"].lower())
    if hidden is None:
        raise ValueError("is_hidden is neither true nor false")
    categories = row["categories"].split("|") if row["categories"] else []
    try:
        labels = msgspec.json.decode(row["labels"]) if row["labels"] else None
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("labels that are not JSON") from None
    return _Item(row["item_id"], hidden, categories, row["time_stamp"], labels, row["description"])


def _csv_feedback(row: dict[str, str]) -> _Feedback:
    return _Feedback(row["feedback_type"], row["user_id"], row["item_id"], 0.0, row["time_stamp"])


def _backup(path: Path, reading: Reading) -> tuple[list[tuple[int, _Item]], list[tuple[int, _Feedback]]]:
    """Return the items and the feedback of a backup; refuse one that is cut short."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not whole.startswith(_BACKUP_BEGINS):
        raise DataError(f"{path}: is no backup of gorse, nor named feedback.jsonl or feedback.csv")
    reading.digest.update(whole)
    items, feedback, mark, record = list[tuple[int, _Item]](), list[tuple[int, _Feedback]](), _END, 0
    for size, message in _messages(path, whole):
        if size < 0:
            mark = size
            continue
        record += 1
        if mark == _USER_MARK:
            continue
        try:
            fields = message_fields(message, _FIELDS)
            if mark == _ITEM_MARK:
                items.append((record, _item_of(fields)))
            else:
                feedback.append((record, _feedback_of(fields)))
        except (ValueError, OverflowError, RecursionError, msgspec.DecodeError):
            reading.note("not a record of gorse", 1, f"{path.name}, record {record}")
    reading.progress(f"reading {path.name}", len(whole), len(whole))
    return items, feedback


def _messages(path: Path, whole: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the sizes and the messages of a backup; a size below 0 says what follows."""
    at = 0
    while True:
        if at + 8 > len(whole):
            raise DataError(f"{path}: the backup is cut short after {at} bytes")
        size = int.from_bytes(whole[at : at + 8], "little", signed=True)
        at += 8
        if size == _END:  # the server's summary may follow
            return
        if size < _FEEDBACK_MARK or at + size > len(whole):
            raise DataError(f"{path}: the backup is damaged or cut short at byte {at - 8}")
        yield size, whole[at : at + max(size, 0)]
        at += max(size, 0)


def _item_of(fields: dict[int, list[Value]]) -> _Item:
    categories = [_text(value) for value in fields.get(4, [])]
    labels = msgspec.json.decode(_bytes(fields, 6) or b"null")
    return _Item(
        _text(_bytes(fields, 2)), bool(fields.get(3, [0])[-1]), categories, _time(fields, 5), labels,
        _text(_bytes(fields, 7)),
    )  # fmt: skip


def _feedback_of(fields: dict[int, list[Value]]) -> _Feedback:
    value = fields.get(5, [0.0])[-1]
    if isinstance(value, bytes) or not math.isfinite(value):
        raise ValueError("a value that is no number")
    kind, user, item = (_text(_bytes(fields, number)) for number in (2, 3, 4))
    return _Feedback(kind, user, item, float(value), _time(fields, 6))


def _bytes(fields: dict[int, list[Value]], number: int) -> bytes:
    value = fields.get(number, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError("a number where a text should be")
    return value


def _text(value: Value) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a number where a text should be")
    return value.decode()


def _time(fields: dict[int, list[Value]], number: int) -> str:
    """Return a protobuf Timestamp as the text that the other formats have."""
    [seconds] = message_fields(_bytes(fields, number), (1,)).get(1, [0])[-1:]
    if not isinstance(seconds, int):
        raise ValueError("a time that is no number")
    seconds -= (seconds >> 63) << 64
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


# --- rows ------------------------------------------------------------------------------------------------------------


def _seconds() -> pl.Expr:
    """Return the column `time`, a text, as seconds since 1970; null where it has no such form."""
    parts = pl.col("time").str.extract_groups(_TIME).struct
    day, clock, sign, hours, minutes = (parts.field(str(number)) for number in range(1, 6))
    naive = pl.concat_str(day, pl.lit("T"), clock).str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False).dt.epoch("s")
    shift = (hours.cast(pl.Int64) * 3600 + minutes.cast(pl.Int64) * 60).fill_null(0)
    return naive - pl.when(sign == "-").then(-shift).otherwise(shift)


def _timed(piece: _Piece) -> _Piece:
    """Return rows with their times as integers; a row with a malformed time is left out."""
    none = (pl.col("time") == "") | pl.col("time").str.starts_with(_NO_TIME)
    piece = piece._replace(rows=piece.rows.with_columns(_seconds().alias("seconds"), none.alias("none")))
    piece = piece.keep(pl.col("seconds").is_not_null() | pl.col("none"), "bad time")
    time = pl.when(pl.col("none")).then(None).otherwise(pl.col("seconds")).alias("time")
    return piece._replace(rows=piece.rows.with_columns(time).drop("seconds", "none"))


def _events(found: _Found) -> pl.DataFrame:
    """Return the feedback, each once; the columns are line, action, user, item, value and time."""
    schema = {
        "line": pl.Int64, "action": pl.String, "user": pl.String, "item": pl.String, "value": pl.Float64,
        "time": pl.String,
    }  # fmt: skip
    rows = ((at, one.FeedbackType, one.UserId, one.ItemId, one.Value, one.Timestamp) for at, one in found.feedback)
    piece = found.piece(pl.DataFrame(list(rows), schema=schema, orient="row"), found.log)
    piece = piece.keep(
        (pl.col("user").str.strip_chars() != "") & (pl.col("item").str.strip_chars() != ""), "no user or item"
    )
    piece = _timed(piece.keep(pl.col("action") != "", "no feedback type"))
    return piece.keep(pl.struct("action", "user", "item").is_first_distinct(), "feedback listed before").rows


def _judged(events: pl.DataFrame, rules: Mapping[str, Sequence[_Rule]], found: _Found) -> pl.DataFrame:
    """Return the feedback with rewards, without that of other types and what was read and then judged."""
    which = {name: pl.any_horizontal(pl.lit(False), *(one.holds() for one in some)) for name, some in rules.items()}
    kind = pl.when(which["negative"]).then(pl.lit("negative")).when(which["positive"]).then(pl.lit("positive"))
    kind = kind.when(which["read"]).then(pl.lit("read"))
    told = events.with_columns(kind.alias("kind"))
    others = Counter(told.filter(pl.col("kind").is_null())["action"].to_list())
    for name, count in others.items():
        found.reading.left_out(f"feedback of the type {name}, or with a value, that was not named", count)
    told = told.drop_nulls("kind")
    judged = (pl.col("kind") != "read").any().over("user", "item")
    followed = told.select((judged & (pl.col("kind") == "read")).alias("followed"))["followed"]
    found.reading.left_out("read, and then judged by the same user", int(followed.sum()))
    told = told.filter(~followed)
    if not told.height:
        raise DataError(f"{found.log}: holds no feedback of the types {', '.join(_spelled(rules))}")
    return told.with_columns((pl.col("kind") == "positive").cast(pl.Float64).alias("reward"))


def _spelled(rules: Mapping[str, Sequence[_Rule]]) -> list[str]:
    return [f"{one.kind}{one.sign}{one.bound:g}" if one.sign else one.kind for some in rules.values() for one in some]


def _catalogue(found: _Found, log: Interactions, vector: str | None) -> Catalogue:
    """Return the items. Those that occur in the log only are added; where items have vectors, they are only counted."""
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        "line": pl.Int64, "id": pl.String, "title": pl.String, "category": pl.String, "categories": pl.String,
        "hidden": pl.Boolean, "time": pl.String, "labels": pl.String, "vector": pl.List(pl.Float32),
    }  # fmt: skip
    rows = []
    for at, one in found.items:
        categories = one.Categories or []
        held, labels = (None, one.Labels) if vector is None else _taken(one.Labels, vector.split("."))
        told = None if labels is None else msgspec.json.encode(labels).decode()
        rows.append((
            at, one.ItemId, one.Comment or None, categories[0] if categories else None, "|".join(categories) or None,
            one.IsHidden, one.Timestamp, told, held,
        ))  # fmt: skip
    piece = found.piece(pl.DataFrame(rows, schema=schema, orient="row"), found.items_file)
    piece = _timed(piece.keep(pl.col("id").str.strip_chars() != "", "no id"))
    if vector is not None:
        length = pl.col("vector").list.len()
        piece = piece.keep(length > 0, "no vector")
        piece = piece.keep(length == length.first(), "vector of another length than the first")
    listed = piece.keep(pl.col("id").is_first_distinct(), "item listed before").rows
    if vector is not None and not listed.height:
        raise DataError(f"{found.items_file}: no item has a vector in its label {vector}")
    shown = listed.drop("line", "vector").rename({"time": "timestamp"})
    missing = log.items.unique().sort()
    missing = missing.filter(~missing.is_in(shown["id"].implode()))
    if vector is not None:
        unlisted = int(log.items.is_in(missing.implode()).sum())
        found.reading.note("item not in the catalogue", unlisted, found.items_file.name, fatal=False)
        made: Floats = listed["vector"].list.to_array(len(listed["vector"][0])).to_numpy()
        return Catalogue.of_table(shown, made)
    added = pl.DataFrame({"id": missing}).with_columns(pl.lit(False).alias("hidden"))
    return Catalogue.of_table(pl.concat([shown, added], how="diagonal"))


def _taken(labels: Any, way: Sequence[str]) -> tuple[list[float] | None, Any]:
    """Return the vector that labels have at a place, and the labels without it."""
    if not isinstance(labels, dict) or way[0] not in labels:
        return None, labels
    rest = {name: held for name, held in labels.items() if name != way[0]}
    inner = labels[way[0]]
    if len(way) > 1:
        found, left = _taken(inner, way[1:])
        if found is None:
            return None, labels
        return found, (rest if left is None else rest | {way[0]: left}) or None
    sound = isinstance(inner, list) and all(type(one) in (int, float) and abs(one) <= _LARGEST for one in inner)
    return ([float(one) for one in inner], rest or None) if sound else (None, labels)
