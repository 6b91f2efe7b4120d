"""Numbers of items and trees, which several processes give at the same time."""

import numpy as np
import polars as pl
import pytest

from treeward.core.errors import InvalidArgument, StoreDamaged
from treeward.store import numbers
from treeward.store.memory import MemoryStore
from treeward.store.numbers import item_ids, number_items, number_snapshot, pack_ids, snapshot_digests


class Raced(MemoryStore):
    """A store in which another process writes its page just before ours, a few times."""

    pages = ()

    @property
    def metadata(self):
        values, others = super().metadata, list(self.pages)
        if not others:
            return values

        class Late(type(values)):
            def put(late, given, *, new=False):
                if new and self.pages:
                    super().put({next(iter(given)): self.pages.pop(0)}, new=True)
                return super().put(given, new=new)

        return Late(self)


def test_items_keep_their_numbers():
    store = MemoryStore()
    assert number_items(store, pl.Series([10, 20, 30])).tolist() == [0, 1, 2]
    assert number_items(store, pl.Series([10, 20, 30])).tolist() == [0, 1, 2]
    assert number_items(store, pl.Series([30, 40])).tolist() == [2, 3]
    assert number_items(store, pl.Series([10, 20, 30])).tolist() == [0, 1, 2]
    assert number_items(store, pl.Series([50, 50, 10])).tolist() == [4, 4, 0]
    assert item_ids(store).to_list() == [10, 20, 30, 40, 50]


def test_a_process_that_starts_later_reads_the_numbers(monkeypatch):
    store = MemoryStore()
    number_items(store, pl.Series(["a", "b"]))
    number_items(store, pl.Series(["c"]))
    number_snapshot(store, "one")
    numbers._of.pop(store)  # as another process, which has read nothing yet
    assert number_items(store, pl.Series(["c", "d", "a"])).tolist() == [2, 3, 0]
    assert [number_snapshot(store, digest) for digest in ("two", "one")] == [1, 0]


@pytest.mark.parametrize("before", [[], ["z"]])
def test_of_two_processes_that_number_items_at_once_both_are_right(before):
    store = Raced()
    if before:
        number_items(store, pl.Series(before))
    store.pages = [pack_ids(pl.Series("id", ["b", "x"])), pack_ids(pl.Series("id", ["y"]))]
    found = number_items(store, pl.Series(["a", "b", "c"]))
    ids = item_ids(store).to_list()
    assert ids == [*before, "b", "x", "y", "a", "c"]
    assert [ids[number] for number in found] == ["a", "b", "c"]
    assert number_items(store, pl.Series(ids)).tolist() == list(range(len(ids)))


def test_of_two_processes_that_number_trees_at_once_both_are_right():
    store = Raced()
    store.pages = [b"theirs", b"ours"]
    assert number_snapshot(store, "ours") == 1
    assert snapshot_digests(store) == ["theirs", "ours"]


def test_item_ids_of_another_kind_are_refused_and_change_nothing():
    store = MemoryStore()
    number_items(store, pl.Series([1, 2]))
    with pytest.raises(InvalidArgument, match="item ids that are integers, as in the store"):
        number_items(store, pl.Series(["a"]))
    assert number_items(store, pl.Series([2, 3])).tolist() == [1, 2]


def test_a_damaged_page_is_refused():
    store = MemoryStore()
    [(key, page)] = [number_items(store, pl.Series(["a", "b"])), *store.metadata.list("items/")][1:]
    store.metadata.put({key: page[:-1] + bytes([page[-1] ^ 1])})
    numbers._of.pop(store)
    with pytest.raises(StoreDamaged, match="the items from number 0 on: not what was written"):
        number_items(store, pl.Series(["a"]))


def test_a_million_items_take_no_dictionary_until_the_catalogue_changes():
    store, ids = MemoryStore(), pl.Series("id", np.arange(1_000_000))
    assert number_items(store, ids)[-1] == 999_999
    assert number_items(store, ids.clone())[-1] == 999_999
    assert isinstance(numbers._known(store)._items, pl.Series)
