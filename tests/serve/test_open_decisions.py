"""Windows of feedback, and default rewards."""

import time

import httpx
import polars as pl
import pytest

import treeward as tw
from tests.serving import serving
from tests.waiting import wait_until
from treeward.client import Client, ServiceError
from treeward.core.errors import UnknownDecision
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve import wire
from treeward.serve.service import Service
from treeward.serve.settings import Settings
from treeward.store.base import forget
from treeward.store.events import SHOWN, event
from treeward.store.numbers import number_items
from treeward.store.sqlite import SQLiteStore


def test_decisions_earn_the_default_reward_when_their_window_ends(items, tmp_path):
    options = ("--set", "window=4.0", "--set", "default_reward=0.25")
    with serving(tmp_path, items, *options) as running, Client(running.url, tries=1) as client:
        one, other = client.recommend("ada", 2)
        client.feedback(one["decision_id"], 1.0)
        wait_until(lambda: len(client.user("ada")["history"]) == 4, "the default reward is given")
        with pytest.raises(ServiceError, match="410 too_late"):
            client.feedback(other["decision_id"], 1.0)
        named = {"user": "ada", "item": other["item"], "reward": 1.0}
        # Events know only the second they are of: feedback by item finds out up to two seconds later.
        wait_until(
            lambda: httpx.post(running.url + "/v1/feedback", json=named).json()["error"] != "conflict",
            "the window is over for feedback by item",
        )
        late = httpx.post(running.url + "/v1/feedback", json=named)
        assert (late.status_code, late.json()["error"]) == (410, "too_late")
        history = client.user("ada")["history"]
        assert [(one["kind"], one["reward"]) for one in history[2:]] == [("reward", 1.0), ("reward", 0.25)]
        [shown] = client.recommend("bob")
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        wait_until(lambda: len(client.user("bob")["history"]) == 2, "it is given after a restart too")
        history = client.user("bob")["history"]
        assert [one["kind"] for one in history] == ["shown", "reward"]
        assert 0 <= time.time() - history[0]["time"] < 600
        assert history[0]["item"] == shown["item"]


def test_a_decision_dated_in_the_future_delays_no_other(items, tmp_path):
    options = ("--set", "window=1", "--set", "default_reward=0.25")
    store = SQLiteStore(tmp_path / "events.db")  # the machine's clock was a day ahead
    store.append(["eve"], event(number_items(store, pl.Series([7]))[0], 0.5, nonce=9, kind=SHOWN, time=2**32 - 1))
    store.close()
    with serving(tmp_path, items, *options) as running, Client(running.url) as client:
        client.recommend("ada", 2)
        wait_until(lambda: client.user("ada")["events"] == 4, "decisions made after the restart earn the default")
        wait_until(lambda: client.user("eve")["events"] == 2, "so does the one from the future")


def test_a_user_erased_meanwhile_stays_erased():
    shop = synthetic_catalogue(200, dim=4, seed=0)
    explorer = tw.Explorer(shop, exposures="all")
    service = Service(explorer, Settings(items="x", window=1e-9, default_reward=0.0))
    [made] = service.recommend([wire.RecommendRequest("ada")])[0].items
    append, store = explorer.store.append, explorer.store

    def late(*arguments, **options):
        store.append = append
        forget(store, "ada")
        return append(*arguments, **options)

    store.append = late
    [outcome] = service.feedback([wire.FeedbackRequest(1.0, decision_id=made.id)])
    assert isinstance(outcome, UnknownDecision)
    assert store.counts(["ada"])[0] == 0
    assert service.expire() == 0
    assert store.counts(["ada"])[0] == 0
    service.recommend([wire.RecommendRequest("anon")])
    explorer.merge("anon", "known")
    assert service.expire() == 1
    assert (store.counts(["anon"])[0], store.counts(["known"])[0]) == (0, 2)
