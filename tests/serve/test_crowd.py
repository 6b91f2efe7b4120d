"""The crowd in a service: editions in the background, what is reported of them, and what survives kill -9."""

import asyncio
import os
import time

import httpx
import pytest

import treeward as tw
from tests.serving import serving
from tests.torture import crowd_campaign
from tests.waiting import wait_until
from treeward.client import AsyncClient, Client
from treeward.core.errors import InvalidArgument, StoreError
from treeward.data.synthetic import synthetic_catalogue
from treeward.explorer.crowd_edition import CrowdEdition
from treeward.explorer.crowd_keeper import NOTE
from treeward.serve.crowd import Publisher, crowd_view
from treeward.serve.parts import explorer_over, open_explorer
from treeward.serve.service import Service
from treeward.serve.settings import Settings
from treeward.store.memory import MemoryStore


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "items"
    synthetic_catalogue(400, dim=6, seed=0).save(path)
    return path


@pytest.fixture
def explorer(items):
    with open_explorer(Settings(items=str(items), store="memory", spare=0.0)) as made:
        yield made


def rewarded(explorer, users, liked=()):
    """Have users decide once each; those in `liked` like it."""
    shown = explorer.recommend(users)
    explorer.feedback({one.id: float(one.user in liked) for one in shown})
    return shown


def test_rewards_of_some_users_change_what_others_are_shown(items, tmp_path):
    with serving(tmp_path, items, "--set", "publish_every=0.2") as running, Client(running.url) as client:
        begun = client.crowd()
        assert begun["learns"]
        assert (begun["edition"], begun["rewards"], begun["risen"]) == (1, 0, [])
        liked = None
        for n in range(120):
            [one] = client.recommend(f"u{n}")
            liked = one["item"] if liked is None else liked
            client.feedback(one["decision_id"], float(one["item"] == liked))
        wait_until(lambda: client.crowd()["rewards"] == 120, "an edition knows all")
        told = client.crowd()
        assert told["waiting"] == 0
        assert told["edition"] > 2
        assert told["risen"][0]["item"] == liked
        assert told["risen"][0]["mean"] == 1.0
        assert told["risen"][0]["effect"] > 0
        assert 0 < told["mean_reward"] < 1
        assert told["users"] == 120
        assert told["problem"] == ""
        assert 0 <= told["age"] < 60
        best, worst = told["strongest"], told["weakest"]
        assert [one["mean"] for one in best] == sorted([one["mean"] for one in best], reverse=True)
        assert worst[0]["mean"] <= worst[-1]["mean"] <= best[-1]["mean"]
        newcomers = [client.recommend(f"newcomer {n}")[0] for n in range(5)]  # one in a hundred gets any item
        assert {one["edition"] for one in newcomers} == {told["edition"]}
        assert sum(one["item"] == liked for one in newcomers) >= 4, "what the others liked is what a newcomer gets"
        metrics = dict(line.rsplit(" ", 1) for line in httpx.get(running.admin + "/metrics").text.splitlines())
        assert float(metrics["treeward_crowd_edition"]) == told["edition"]
        assert float(metrics["treeward_crowd_rewards"]) == 120
        assert float(metrics["treeward_crowd_waiting"]) == 0
        assert float(metrics["treeward_crowd_publish_seconds"]) > 0
        assert float(metrics["treeward_crowd_age_seconds"]) >= 0
        assert httpx.get(running.url + "/readyz").json() == {"ok": True, "reason": "", "crowd": ""}


def test_without_a_crowd_there_is_no_edition(items, tmp_path):
    async def asked(url):
        async with AsyncClient(url) as client:
            return await client.crowd()

    with serving(tmp_path, items, "--set", "crowd=false") as running:
        told = asyncio.run(asked(running.url))
        answer = httpx.post(running.url + "/v1/recommend", json={"user": "ada"}).json()
        assert not told["learns"]
        assert told["edition"] == answer["items"][0]["edition"] == 0
        assert "treeward_crowd_edition 0.0" in httpx.get(running.admin + "/metrics").text


def test_an_edition_is_published_when_rewards_came_and_it_is_time(explorer):
    publisher = Publisher(explorer, 0.05)
    number, publisher._next = publisher.number, 0.0
    assert not publisher.tend(), "there are no rewards"
    rewarded(explorer, ["ada"])
    assert publisher.tend()
    assert publisher.number == number + 1
    rewarded(explorer, ["bob"])
    publisher._next = time.monotonic() + 60
    assert not publisher.tend(), "it is not time"
    publisher._next = 0.0
    publisher.close()
    assert not publisher.tend(), "the service is about to end"
    assert explorer.crowd_keeper.waiting == 1


def test_a_slow_edition_makes_the_next_one_wait(explorer, monkeypatch):
    publisher = Publisher(explorer, 0.01)
    monkeypatch.setattr(explorer, "publish", lambda: time.sleep(0.2))
    explorer.crowd_keeper.keep_waiting()
    publisher._next = 0.0
    assert publisher.tend()
    assert publisher._next - time.monotonic() > 1.9


def test_a_failed_edition_leaves_the_last_one_in_place(explorer, monkeypatch):
    publisher = Publisher(explorer, 0.01)
    rewarded(explorer, ["ada"])
    number = publisher.number

    def failing(*given, **more):
        raise StoreError("the disk is full")

    monkeypatch.setattr(type(explorer.store.metadata), "put", failing)
    publisher._next = 0.0
    assert not publisher.tend()
    assert publisher.warning == f"edition {number} stays: StoreError: the disk is full"
    assert explorer.recommend(["bob"])[0].edition == number
    assert explorer.crowd_keeper.waiting, "what came is not forgotten"
    monkeypatch.undo()
    publisher._next = 0.0
    assert publisher.tend()
    assert publisher.warning == ""
    assert explorer.crowd_keeper.latest.rewards == 1


def test_a_damaged_edition_is_reported_and_made_again(items, tmp_path):
    """The service starts, learns again from the log, and says what was wrong."""
    store = tw.SQLiteStore(tmp_path / "events.db")
    store.metadata.put({NOTE: b"nothing of ours"})
    store.close()
    with serving(tmp_path, items) as running, Client(running.url) as client:
        told = httpx.get(running.url + "/readyz")
        assert told.status_code == 200
        assert "not what was written" in told.json()["crowd"]
        assert "not what was written" in client.crowd()["problem"]
        assert client.recommend("ada")


def test_a_swap_loses_no_rewards_and_edition_numbers_grow(items, explorer):
    """Rewards count that arrive while another explorer is loaded, or that are still given to the former."""
    settings = Settings(items=str(items), store="memory", spare=0.0)
    rewarded(explorer, ["u1", "u2"])
    explorer.publish()
    other = explorer_over(explorer.store, settings)
    rewarded(explorer, ["u3", "u4"], liked=["u3"])
    explorer.publish()
    explorer.publish()
    late = explorer.recommend(["u5"])
    number = explorer.crowd_keeper.latest.number
    other.crowd_keeper.take_over(explorer.crowd_keeper)
    assert other.crowd_keeper.latest.number > number
    assert other.crowd_keeper.latest.rewards == 4
    explorer.feedback({late[0].id: 1.0})  # it was asked before the swap, and answered by the former
    assert other.crowd_keeper.waiting == 1
    other.publish()
    assert other.crowd_keeper.latest.rewards == 5
    before = other.crowd_keeper.sums
    other.crowd_keeper.recount()
    assert other.crowd_keeper.sums.equals(before)


def test_a_user_erased_during_publishing_is_subtracted_once(explorer):
    """Also if an edition is made at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    users = [f"u{n}" for n in range(60)]
    for _ in range(3):
        rewarded(explorer, users)
    with ThreadPoolExecutor(2) as pool:
        publishing = pool.submit(lambda: [explorer.publish() for _ in range(60)])
        for user in users[:40]:
            explorer.forget(user)
        explorer.merge("u50", "u51")
        publishing.result()
    explorer.publish()
    assert explorer.crowd_keeper.latest.rewards == 60
    held = explorer.crowd_keeper.sums
    explorer.crowd_keeper.recount()
    assert explorer.crowd_keeper.sums.equals(held)


def test_removed_items_are_not_listed_as_risen(items):
    with open_explorer(Settings(items=str(items), store="memory")) as explorer:
        [one] = rewarded(explorer, ["ada"], liked=["ada"])
        explorer.publish()
        publisher = Publisher(explorer, 1.0)
        assert crowd_view(explorer, publisher).risen[0].item == one.item
        explorer.remove([one.item])
        assert all(risen.item != one.item for risen in crowd_view(explorer, publisher).risen)


def test_settings_reach_the_explorer(items, tmp_path):
    settings = Settings(items=str(items), store="memory", half_life=2.0, publish_every=0.3)
    with open_explorer(settings) as explorer:
        rewarded(explorer, ["ada"])
        explorer.publish()
        assert explorer.crowd_keeper.latest.half_life == 2.0
        service = Service(explorer, settings)
        assert service.publisher.pause == 0.15
    with open_explorer(Settings(items=str(items), store="memory", crowd=False)) as alone:
        assert alone.crowd_keeper is None
        assert not Publisher(alone, 1.0).tend()
    for name, value in (("publish_every", 0.0), ("half_life", -1.0)):
        with pytest.raises(InvalidArgument, match=name):
            Settings(items=str(items), store="memory", **{name: value}).check()


class Shared(MemoryStore):
    """A store in memory that behaves like a database that several replicas share."""

    shared = True


def shared(items, store):
    return explorer_over(store, Settings(items=str(items), store="memory", spare=0.0))


def same_decisions(one, two, users):
    """Return whether two explorers decide the same for the same users, given the same draws."""
    for each in (one, two):
        each._snapshot.decider._begun, each._snapshot.decider._call_stream = 0, 7
    made = [[(d.item, d.mean, d.width, d.edition) for u in users for d in each.preview(u, 5)] for each in (one, two)]
    return made[0] == made[1]


def test_replicas_follow_each_others_editions(items):
    store = Shared()
    one, two = shared(items, store), shared(items, store)
    assert one.crowd_keeper.latest.number == two.crowd_keeper.latest.number == 1, (
        "the second begins with the first one's edition"
    )
    assert not two.crowd_keeper.follow()
    rewarded(one, ["ada", "bob"], liked=["ada"])
    assert one.publish() == 2
    assert two.crowd_keeper.follow()
    assert not two.crowd_keeper.follow()
    assert two.crowd_keeper.latest.same_as(one.crowd_keeper.latest)
    assert same_decisions(one, two, ["ada", *(f"new{n}" for n in range(20))])


def test_a_replica_discards_its_edition_if_another_was_faster(items, monkeypatch):
    store = Shared()
    one, two = shared(items, store), shared(items, store)
    rewarded(one, ["ada"])
    made = two.crowd_keeper._next_edition

    def slowly(*given):
        mine = made(*given)
        one.publish()  # in the meantime
        return mine

    monkeypatch.setattr(two.crowd_keeper, "_next_edition", slowly)
    assert two.publish() == one.crowd_keeper.latest.number == 2
    assert two.crowd_keeper.latest.time == one.crowd_keeper.latest.time
    assert CrowdEdition.unpacked(store.metadata.get(NOTE)).time == one.crowd_keeper.latest.time
    assert two.crowd_keeper.waiting, "its own may have known more: it tries again"


def test_damaged_and_foreign_editions_are_ignored(items, tmp_path):
    store = Shared()
    one, two = shared(items, store), shared(items, store)
    store.metadata.put({NOTE: b"damaged"})
    assert not two.crowd_keeper.follow()
    assert "not what was written" in two.crowd_keeper.problem
    rewarded(one, ["ada"])
    one.publish()
    assert two.crowd_keeper.follow()
    assert two.crowd_keeper.problem == ""
    wider = tmp_path / "wider"
    synthetic_catalogue(400, dim=9, seed=0).save(wider)
    shared(wider, store).publish()
    assert not two.crowd_keeper.follow()
    assert "dimensions" in two.crowd_keeper.problem
    assert two.recommend(["bob"])[0].edition == 2


def test_of_two_replicas_one_publishes_and_the_other_follows(items):
    store = Shared()
    one, two = shared(items, store), shared(items, store)
    first, second = Publisher(one, 60.0), Publisher(two, 60.0)
    rewarded(one, ["ada"])
    rewarded(two, ["bob"])
    first._next = second._next = 0.0
    assert first.tend()
    assert one.crowd_keeper.latest.rewards == 2, "it reads what the other wrote"
    assert second.tend()
    assert two.crowd_keeper.latest.number == one.crowd_keeper.latest.number == 2, "followed"
    assert not second.tend(), "it is not its turn"


def test_kills_lose_no_acknowledged_reward_and_no_edition_number(items, tmp_path):
    """50 kills with TORTURE=1."""
    kills = 50 if os.environ.get("TORTURE") else 3
    found = crowd_campaign(tmp_path, items, kills)
    assert found.acknowledged > 20 * kills
    assert found.lost == 0
    assert found.problems == ()
    assert found.editions > kills
