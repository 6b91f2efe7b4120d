"""Inspecting an explorer while its items change and its tree is rebuilt: every answer is of one snapshot."""

import asyncio
import sys
import threading
from typing import NamedTuple

import httpx
import numpy as np
import polars as pl
import pytest

import treeward as tw
from treeward.core.errors import TreewardError, UnknownId
from treeward.data.synthetic import synthetic_catalogue
from treeward.explorer import estimates
from treeward.explorer.health import Health
from treeward.explorer.inspection import Inspection
from treeward.explorer.records import Counts
from treeward.serve.app import App
from treeward.serve.parts import explorer_over
from treeward.serve.service import Service
from treeward.serve.settings import Settings

DIM = 4


class Interrupted(tw.MemoryStore):
    """A store in which something happens just as events are read."""

    then = None

    def read(self, users, after=None, nonces=None):
        work, self.then = self.then, None
        if work is not None:
            work()
        return super().read(users, after, nonces)


class Shrinking(NamedTuple):
    """An explorer with many nodes, most of whose items are gone: the next tree has few."""

    explorer: tw.Explorer
    node: int
    """The last node: the next tree does not have it."""
    item: int
    removed: int
    decision: str
    events: np.ndarray


@pytest.fixture
def shrinking():
    explorer = tw.Explorer(
        synthetic_catalogue(2_000, dim=DIM, seed=0), store=Interrupted(), counts=True, spare=0.1, exposures="all"
    )  # fmt: skip
    [made] = explorer.recommend(["ada"])
    explorer.feedback({made.id: 1.0})
    explorer.remove([id for id in explorer.catalogue.ids[:1_900].to_list() if id != made.item])
    last, [events] = len(explorer.tree.parent) - 1, explorer.store.read(["ada"])
    return Shrinking(explorer, last, made.item, int(made.item != 5) * 5, made.id, events)


def plain(answer):
    """Return an answer as something that can be compared."""
    if isinstance(answer, np.ndarray | pl.Series):
        return answer.tolist() if isinstance(answer, np.ndarray) else answer.to_list()
    if isinstance(answer, pl.DataFrame):
        return answer.to_dicts()
    if isinstance(answer, tuple | list):
        return [plain(one) for one in answer]
    if isinstance(answer, Counts):
        return plain((answer.shown, answer.earned))
    return repr(answer) if isinstance(answer, float | Health) else answer  # nan is not equal to itself


CALLS = {
    "catalogue": lambda inspect, _: inspect.catalogue.ids,
    "tree": lambda inspect, _: inspect.tree.parent,
    "page": lambda inspect, _: inspect.page,
    "number": lambda inspect, _: inspect.number,
    "__len__": lambda inspect, _: len(inspect),
    "__contains__": lambda inspect, at: [at.item in inspect, at.removed in inspect],
    "may_show": lambda inspect, _: inspect.may_show(np.arange(len(inspect.catalogue))),
    "may_show_to": lambda inspect, _: inspect.may_show_to("ada", where={"category": "c1"}),
    "was_removed": lambda inspect, at: [inspect.was_removed(at.item), inspect.was_removed(at.removed)],
    "sizes": lambda inspect, _: inspect.sizes(),
    "items_of": lambda inspect, at: inspect.items_of(at.node),
    "rows_of": lambda inspect, _: inspect.rows_of(np.arange(2_500)),
    "path_of": lambda inspect, at: inspect.path_of(inspect.catalogue.row(at.item)),
    "log": lambda inspect, _: inspect.log(),
    "explain": lambda inspect, at: inspect.explain(at.decision),
    "interests": lambda inspect, _: inspect.interests("ada"),
    "field": lambda inspect, at: inspect.field("ada", node=at.node),
    "events": lambda inspect, at: inspect.events(at.events),
    "recent_users": lambda inspect, _: inspect.recent_users(5),
    "find_users": lambda inspect, _: inspect.find_users("a", 5),
    "node": lambda inspect, at: inspect.node(at.node),
    "map": lambda inspect, at: inspect.map(at.node),
    "children": lambda inspect, at: inspect.children(int(inspect.tree.parent[at.node])),
    "items": lambda inspect, at: inspect.items(at.node),
    "item": lambda inspect, at: inspect.item(at.item),
    "find": lambda inspect, at: inspect.find(str(at.item), 5),
    "nodes": lambda inspect, at: inspect.nodes(np.array([0, at.node])),
    "path_to": lambda inspect, at: inspect.path_to(at.node),
    "item_counts": lambda inspect, _: inspect.item_counts(),
    "node_counts": lambda inspect, at: inspect.node_counts(np.array([0, at.node])),
    "totals": lambda inspect, _: inspect.totals(),
    "items_earning": lambda inspect, _: inspect.items_earning(1.0),
    "has_crowd": lambda inspect, _: inspect.has_crowd,
    "crowd_means": lambda inspect, _: inspect.crowd_means(),
    "fitness": lambda inspect, _: inspect.fitness(),
    "health": lambda inspect, _: inspect.health(users=2, compare=False),
    "check_states": lambda inspect, _: inspect.check_states(2),
}


def test_every_member_of_an_inspection_is_tested():
    members = {name for name in vars(Inspection) if not name.startswith("_")} | {"__len__", "__contains__"}
    assert members == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_an_inspection_answers_from_one_snapshot_though_the_tree_is_rebuilt(shrinking, name):
    explorer, call = shrinking.explorer, CALLS[name]
    inspect = explorer.inspect
    before = plain(call(inspect, shrinking))
    explorer.store.then = explorer.rebuild  # in the middle of a call that reads events
    assert plain(call(inspect, shrinking)) == before
    explorer.rebuild()
    assert len(explorer.tree.parent) <= shrinking.node, "the next tree is smaller"
    assert plain(call(inspect, shrinking)) == before


@pytest.mark.parametrize("policy", [tw.Beam(), tw.PHCB()], ids=lambda policy: policy.name)
def test_a_field_refers_to_one_tree_though_another_is_built_meanwhile(policy):
    explorer = tw.Explorer(
        synthetic_catalogue(2_000, dim=DIM, seed=0), policy=policy, store=Interrupted(), spare=0.1
    )  # fmt: skip
    explorer.remove(explorer.catalogue.ids[:1_900].to_list())
    before = explorer.tree
    last = len(before.parent) - 1
    explorer.store.then = explorer.rebuild
    told = explorer.inspect.field("ada", node=last)
    assert len(explorer.tree.parent) <= last, "the next tree is smaller"
    assert told.nodes.node[0] == last
    with pytest.raises(UnknownId, match="the tree has no node"):
        explorer.inspect.field("ada", node=last)


def test_a_field_refers_to_one_edition_of_the_crowd_though_another_is_published_meanwhile(monkeypatch):
    explorer = tw.Explorer(synthetic_catalogue(500, dim=DIM, seed=0), publishes=False, seed=0)
    explorer.feedback({made.id: 1.0 for made in explorer.recommend([f"user {i}" for i in range(30)])})
    inspect, decider = explorer.inspect, explorer._snapshot.decider
    before, state_after = inspect.field("ada"), decider.state_after

    def interrupted(*given):
        explorer.publish()
        return state_after(*given)

    monkeypatch.setattr(decider, "state_after", interrupted)
    assert inspect.field("ada").mean == before.mean
    assert inspect.field("ada").mean != before.mean, "the next call uses the new edition"


def test_an_inspection_keeps_its_tree_and_items(shrinking):
    explorer = shrinking.explorer
    inspect = explorer.inspect
    tree, ids = inspect.tree, inspect.catalogue.ids[inspect.items_of(0)].to_list()
    explorer.rebuild()
    assert len(explorer.tree.parent) < len(tree.parent)
    assert inspect.tree is tree
    assert sorted(explorer.catalogue.ids[explorer.inspect.items_of(0)].to_list()) == sorted(ids)
    row = inspect.catalogue.row(ids[0])
    assert inspect.path_of(row)
    assert inspect.may_show(np.array([row])).tolist() == [True]


@pytest.fixture
def often():
    """Let threads take turns so often that whatever can come between two reads does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Lookers:
    """Look at an explorer in every way there is, until its changes have ended."""

    def __init__(self, explorer, decision):
        self.explorer, self.decision = explorer, decision
        self.ended, self.problems, self.looked = threading.Event(), [], set()

    def change(self, turns=6):
        """Make many nodes, few nodes, many nodes, ..."""
        try:
            random, explorer = np.random.default_rng(0), self.explorer
            for turn in range(turns):
                ids = list(range(1_000 + 40 * turn, 1_040 + 40 * turn)) + list(range(5_000, 5_600))
                count, titles = len(ids), [f"item {id}" for id in ids]
                vectors = random.standard_normal((count, DIM))
                explorer.add(tw.Catalogue(ids, vectors, titles=titles, categories=["new"] * count))
                explorer.update(ids[:10], random.standard_normal((10, DIM)))
                (explorer.refit if turn % 4 else explorer.rebuild)()
                explorer.remove(ids[5:])
                explorer.rebuild()
        except Exception as error:
            self.problems.append(f"changing: {error!r}")
        finally:
            self.ended.set()

    def in_the_library(self):
        explorer, some = self.explorer, range(1_000, 1_240)
        while not self.ended.is_set():
            last = len(explorer.tree.parent) - 1
            for name, work in (
                ("explain", lambda: explorer.explain(self.decision)),
                ("field", lambda last=last: explorer.inspect.field(1, node=last)),
                ("interests", lambda: explorer.inspect.interests(1)), ("log", explorer.log),
                ("check_states", lambda: explorer.inspect.check_states(2)),
                ("counts", lambda: explorer.inspect.item_counts()), ("totals", lambda: explorer.inspect.totals()),
                ("fitness", lambda: explorer.inspect.fitness()),
                ("health", lambda: explorer.inspect.health(users=5, compare=False)),
                ("sizes", lambda: explorer.inspect.sizes()),
                ("items_of", lambda last=last: explorer.inspect.items_of(last)), ("len", lambda: len(explorer)),
                ("contains", lambda: [id in explorer for id in some]),
                ("is_gone", lambda: [explorer.inspect.was_removed(id) for id in some]),
                ("recent", lambda: explorer.inspect.recent_users(5)), ("preview", lambda: explorer.preview(1, 3)),
            ):  # fmt: skip
                self.look(name, work)

    def look(self, name, work):
        self.looked.add(name)
        try:
            work()
        except TreewardError:
            pass  # a node of the former tree, an item that is gone
        except Exception as error:
            self.problems.append(f"{name}: {error!r}")

    async def over_http(self, app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://localhost") as http:
            while not self.ended.is_set():
                last = len(self.explorer.tree.parent) - 1
                for path in (
                    "/v1/users/int:1", "/v1/users", f"/v1/users/int:1/field?node={last}", "/v1/items/7",
                    "/v1/items/1001", "/v1/items/1020", "/v1/tree/0", f"/v1/tree/{last}", "/v1/tree/0/map",
                    f"/v1/tree/{last}/map", f"/v1/tree/{last}/items", "/v1/tree/0/items?n=100", "/v1/tree/0/children",
                    "/v1/search?q=item", "/v1/search?q=1", "/v1/about", "/v1/live", "/v1/lift", "/openapi.json",
                    f"/v1/decisions/{self.decision}",
                ):  # fmt: skip
                    self.looked.add(path)
                    answer = await http.get(path)
                    if answer.status_code not in (200, 404):
                        self.problems.append(f"{path}: {answer.status_code} {answer.text}")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app.admin), base_url="http://localhost") as http:
            for path in ("/metrics", "/admin/tree?users=5&compare=false"):
                assert (await http.get(path)).status_code == 200


def test_nothing_that_reads_fails_while_items_and_trees_change(often):
    explorer = tw.Explorer(synthetic_catalogue(300, dim=DIM, seed=0), counts=True, spare=0.125, exposures="all")
    app = App(Service(explorer, Settings(items="x", holdout=0.3, log="off")), explorer_over)
    decisions = [one.id for user in range(10) for one in explorer.recommend([user], 5)]
    explorer.feedback(dict.fromkeys(decisions[::2], 1.0))
    lookers = Lookers(explorer, decisions[0])
    threads = [threading.Thread(target=work) for work in (lookers.change, lookers.in_the_library)]
    for thread in threads:
        thread.start()
    asyncio.run(lookers.over_http(app))
    for thread in threads:
        thread.join()
    assert lookers.problems == []
    assert {"field", "health", "/v1/tree/0/map"} <= lookers.looked


def test_users_erased_through_another_explorer_are_not_found():
    shop, store = synthetic_catalogue(100, dim=DIM, seed=0), tw.MemoryStore()
    first, second = (tw.Explorer(shop, store=store, seed=0, crowd=False) for _ in range(2))
    for _ in range(2):  # the second time, the state of the user is in memory
        second.feedback({made.id: 1.0 for made in second.recommend(["ada", "bob"])})
    second.recommend(["ada", "bob"])
    first.forget("ada")
    assert second.inspect.recent_users(5) == ["bob"]
    assert second.inspect.find_users("ada", 5).users == []
    assert second.inspect.find_users("", 5).users == ["bob"]


def test_items_are_listed_with_zeros_where_nothing_is_counted():
    inspect = tw.Explorer(synthetic_catalogue(100, dim=DIM, seed=0), seed=0).inspect
    listed = inspect.items(0, n=3).items
    assert [(one.shown, one.earned) for one in listed] == [(0, 0.0)] * 3
    assert inspect.find(str(listed[0].item), 5).items[0] == listed[0]


def test_a_field_has_the_means_of_one_edition_though_another_is_published_meanwhile(monkeypatch):
    explorer = tw.Explorer(synthetic_catalogue(100, dim=DIM, seed=0), seed=0, publishes=False)
    field_of = estimates.field_of

    def publish_after(*args):
        made = field_of(*args)
        explorer.feedback({one.id: 1.0 for one in explorer.recommend(["bob"], n=20)})
        explorer.publish()
        return made

    monkeypatch.setattr(estimates, "field_of", publish_after)
    field = explorer.inspect.field("ada")
    assert field.nodes.crowd == pytest.approx(field.mean, abs=1e-5)
