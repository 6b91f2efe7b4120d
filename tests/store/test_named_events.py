"""Records of events under names that callers chose."""

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.memory import MemoryStore
from treeward.store.named_events import ERASED, NamedEvents
from treeward.store.sqlite import SQLiteStore


def test_the_first_record_of_a_name_stays(tmp_path):
    store = SQLiteStore(tmp_path / "events.db")
    events = NamedEvents(store)
    assert events.add("one", "ada", b"a")
    assert not events.add("one", "ada", b"b")
    events.replace("one", b"c")
    events.replace("two", b"never added")
    store.close()
    again = NamedEvents(SQLiteStore(tmp_path / "events.db"))
    assert (again.get("one"), again.get("two")) == (b"c", None)


def test_forgetting_erases_the_records_of_one_user():
    explorer = tw.Explorer(synthetic_catalogue(50, dim=4, seed=0), seed=0)
    events = NamedEvents(explorer.store)
    for name, user in (("one", "ada"), ("two", 7), ("three", "7"), ("four", "ada")):
        assert events.add(name, user, name.encode())
    explorer.forget("ada")
    explorer.forget("7")
    assert [events.get(name) for name in ("one", "two", "three", "four")] == [ERASED, b"two", ERASED, ERASED]
    events.replace("one", b"again")
    assert events.get("one") == ERASED


def test_records_of_a_merged_user_are_erased_with_the_other():
    explorer = tw.Explorer(synthetic_catalogue(50, dim=4, seed=0), seed=0)
    events = NamedEvents(explorer.store)
    events.add("one", "visitor", b"a")
    explorer.merge("visitor", "ada")
    assert events.get("one") == b"a"
    explorer.forget("ada")
    assert events.get("one") == ERASED


def test_a_record_that_comes_after_its_user_was_forgotten_is_erased():
    class Slow(MemoryStore):
        """Forgets a user between two steps of another caller."""

        @property
        def metadata(self):
            if self.late:
                self.late = False
                self.move("ada", None)
            return super().metadata

        late = False

    store = Slow()
    store.late = True
    assert NamedEvents(store).add("one", "ada", b"a")
    assert NamedEvents(store).get("one") == ERASED
