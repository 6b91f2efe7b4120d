"""Looking at an explorer while its items come and go and its tree is rebuilt: every answer is of one layout."""

import asyncio
import sys
import threading

import httpx
import numpy as np
import pytest

import treeward as tw
from treeward.core.errors import TreewardError, UnknownId
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve.app import App
from treeward.serve.server import explorer_over
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


@pytest.fixture
def shrinking():
    """An explorer with many nodes, most of whose items are gone: the next tree has few."""
    explorer = tw.Explorer(synthetic_catalogue(2_000, dim=DIM, seed=0), store=Interrupted(), counts=True, spare=0.1)
    [made] = explorer.recommend(["ada"])
    explorer.feedback({made.id: 1.0})
    explorer.remove([id for id in explorer.catalogue.ids[:1_900].to_list() if id != made.item])
    return explorer


@pytest.mark.parametrize("policy", [tw.Beam(), tw.PHCB()], ids=lambda policy: policy.name)
def test_a_field_is_of_one_tree_though_another_comes_meanwhile(policy):
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


def test_a_view_stays_as_it_was_laid_out(shrinking):
    view = shrinking.inspect
    tree, sizes, ids = view.tree, view.sizes(), view.catalogue.ids[view.items_of(0)].to_list()
    leaf = int(tree.leaves[-1])
    shrinking.rebuild()
    assert len(shrinking.tree.parent) < len(tree.parent)
    assert view.tree is tree
    assert view.sizes().tolist() == sizes.tolist()
    assert view.catalogue.ids[view.items_of(0)].to_list() == ids
    assert view.node_counts(np.array([0, leaf])).shown.shape == (2,)
    assert sorted(shrinking.catalogue.ids[shrinking.inspect.items_of(0)].to_list()) == sorted(ids)
    row = view.catalogue.row(ids[0])
    assert view.path_of(row)
    assert view.may_show(np.array([row])).tolist() == [True]


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


def test_nothing_fails_that_looks_while_items_and_trees_change(often):
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
