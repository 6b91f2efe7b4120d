"""Users held out, the caller's own items, and the lift."""

import asyncio
import time
from threading import Event
from types import SimpleNamespace

import httpx
import pytest

from tests.serving import serving
from treeward.client import AsyncClient, Client, ServiceError
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve import wire
from treeward.serve.batch import Full
from treeward.serve.parts import open_explorer
from treeward.serve.routes import Routes
from treeward.serve.service import Service
from treeward.serve.settings import Settings


def test_an_apprentice_serves_the_callers_items(items, tmp_path):
    with serving(tmp_path, items, "--mode", "apprentice") as running, Client(running.url, tries=1) as client:
        with pytest.raises(ServiceError, match="caller's own items"):
            client.recommend("ada")
        for i in range(3):
            [made] = client.recommend("ada", fallback=[i])
            assert (made["item"], made["policy"], made["propensity"]) == (i, "fallback", None)
            client.feedback(made["decision_id"], 1.0)
        assert sum(one["visits"] for one in client.user("ada")["interests"]) == 3
        lift = httpx.get(f"{running.url}/v1/lift").json()
        assert (lift["compared"], 0 <= lift["matched"] <= 3) == (3, True)
        assert lift["explored"]["decisions"] == 3, "only what was served was shown"
        [made] = client.recommend("ada", fallback=[9], allow=[])
        assert made["item"] == 9


def metrics_of(running):
    """Return the samples of a service's metrics by name."""
    lines = httpx.get(f"{running.admin}/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_lift_compares_explored_and_held_out_users(items, tmp_path):
    with serving(tmp_path, items, "--set", "holdout=0.5") as running, Client(running.url) as client:
        out = {}
        for i in range(40):
            [made] = client.recommend(f"u{i}", fallback=[3] if i % 2 else [])
            out[i] = made["policy"]
            client.feedback(made["decision_id"], 1.0 if made["policy"] == "explore" else 0.25)
            assert client.user(f"u{i}")["held_out"] == (made["policy"] != "explore")
        assert {"explore", "fallback", "popular"} == set(out.values())
        assert all(kind != "popular" for i, kind in out.items() if i % 2)
        lift = client.lift()

        async def asked():
            async with AsyncClient(running.url) as other:
                return await other.lift()

        assert asyncio.run(asked()) == lift
        assert 0 <= time.time() - lift["as_of"] < 60
        assert lift["difference"] == pytest.approx(0.75)
        counted = metrics_of(running)
        for group in ("explored", "held_out"):
            mine = lift[group]
            assert counted[f'treeward_decisions_total{{group="{group}"}}'] == mine["decisions"]
            assert counted[f'treeward_rewards_total{{group="{group}"}}'] == mine["users"]
            assert counted[f'treeward_earned{{group="{group}"}}'] == pytest.approx(mine["reward"] * mine["decisions"])
        assert lift["low"] <= 0.75 <= lift["high"]
        assert lift["explored"]["users"] + lift["held_out"]["users"] == 40
        shop = synthetic_catalogue(1_000, dim=8, seed=0)
        for i in range(40):
            [choice] = client.recommend(f"u{i}", where={"category": shop.categories[7]})
            assert shop.categories[choice["item"]] == shop.categories[7]
        [again] = client.recommend("u0", fallback=[3])
        assert (again["policy"] == "explore") == (out[0] == "explore"), "for ever"


def test_held_out_users_see_no_item_twice(items, tmp_path):
    options = ("--set", "holdout=0.9", "--set", "repeats=false")
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        shown = [client.recommend(f"u{i % 5}", 2) for i in range(25)]
        for i in range(5):
            mine = [one["item"] for made in shown[i::5] for one in made]
            assert len(set(mine)) == len(mine)


def test_held_out_users_are_shown_nothing_that_the_request_excludes(items, tmp_path):
    settings = Settings(items=str(items), store=str(tmp_path / "events.db"), holdout=0.5, repeats=False)
    with open_explorer(settings) as explorer:
        service = Service(explorer, settings)
        user = next(name for name in map(str, range(50)) if service.groups.held_out(name))
        first, *others = explorer.catalogue.ids.to_list()[:6]

        def shown(**options):
            ask = wire.RecommendRequest(user=user, n=2, fallback=(first, 10**6, *others), **options)
            [answer] = service.recommend([ask])
            assert not isinstance(answer, Exception), answer
            return [one.item for one in answer.items], answer.items[0].policy

        assert shown(exclude=(first,)) == (others[:2], "fallback")
        assert shown(allow=(first, others[3], others[2]))[0] == [first, others[2]]
        assert shown() == ([others[3], others[4]], "fallback")  # all others were shown
        assert shown()[1] == "popular"


def test_a_fallback_shows_each_item_once_and_is_filled_up(items, tmp_path):
    options = ("--set", "holdout=0.9", "--set", "repeats=false")
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        first, second = 3, 5
        for user in map(str, range(60)):
            made = client.recommend(user, 3, fallback=[first, first, first, second])
            if made[0]["policy"] != "explore":
                break
        kinds = [one["policy"] for one in made]
        assert [one["item"] for one in made[:2]] == [first, second]
        assert kinds == ["fallback", "fallback", "popular"]
        assert made[2]["item"] not in (first, second)
        assert {one["propensity"] for one in made} == {None}
        again = client.recommend(user, 3, fallback=[first, first, first])  # it was shown: nothing of it is left
        assert [one["policy"] for one in again] == ["popular"] * 3
        assert len({one["item"] for one in made + again}) == 6


def test_requests_that_wait_for_the_lift_do_not_close_other_views():
    routes = Routes(SimpleNamespace(settings=SimpleNamespace(reports="")), *[None] * 5)
    gate = Event()

    async def asked():
        waiting = [asyncio.create_task(routes._in(routes._comparer, gate.wait)) for _ in range(64)]
        await asyncio.sleep(0)  # each has taken its place
        try:
            with pytest.raises(Full):
                await routes._in(routes._comparer, gate.wait)
            assert await routes._look(str, 7) == "7"
        finally:
            gate.set()
        assert await asyncio.gather(*waiting) == [True] * 64
        assert await routes._in(routes._comparer, gate.wait), "there is room again"

    asyncio.run(asked())
    routes.close()
