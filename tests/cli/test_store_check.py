"""`treeward store check`: what it compares, what it says, and what it finds."""

import re

import numpy as np
import pytest

import treeward as tw
from tests.commands import run as cli
from treeward.cli.store import _mismatches
from treeward.data.synthetic import synthetic_catalogue


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    place = tmp_path_factory.mktemp("shop") / "items"
    synthetic_catalogue(200, dim=6, seed=0).save(place)
    return place


@pytest.fixture(scope="module")
def settings(tmp_path_factory, items):
    file = tmp_path_factory.mktemp("settings") / "settings.toml"
    file.write_text(f'items = "{items}"\nspare = 0.0\ncrowd = false\nrepeats = true\n')
    return file


def filled(path, items, users, rounds, **more):
    """Have some users decide and learn, as a service does, and close the store."""
    shop = tw.Catalogue.load(items)
    luck = np.random.default_rng(0)
    with tw.Explorer(
        shop, tw.Beam().grow(shop), store=tw.SQLiteStore(path), exposures="all", memory=1 << 24, **more
    ) as made:
        for _ in range(rounds):
            shown = made.recommend(users)
            made.feedback({one.id: float(luck.uniform() < 0.3) for one in shown})
    return path


def test_store_check_rebuilds_users_with_short_histories_twice(items, settings, tmp_path):
    store = filled(tmp_path / "events.db", items, [f"u{n}" for n in range(12)], 5)
    told = cli("store", "check", store, "--items", items, "--config", settings)
    assert "12 of 12 users rebuilt twice" in told
    assert "120 events, largest difference 0\n" in told
    assert "clean" in told
    some = cli("store", "check", store, "--items", items, "--config", settings, "--sample", 5)
    assert "4 of 12 users rebuilt twice" in some  # every third
    assert "--sample" in cli("store", "check", store, "--items", items, "--sample", 0, code=2)


@pytest.mark.parametrize("policy", ["phcb", "hcb", "flat"])
def test_store_check_rebuilds_users_of_every_policy(policy, items, tmp_path):
    kind = {"phcb": tw.PHCB, "hcb": tw.HCB, "flat": tw.Flat}[policy]
    file = tmp_path / "settings.toml"
    file.write_text(f'items = "{items}"\npolicy = "{policy}"\nrepeats = false\n')
    store = filled(tmp_path / "events.db", items, ["ada", 7], 90, policy=kind(), repeats=False)
    told = cli("store", "check", store, "--items", items, "--config", file)
    assert "2 of 2 users rebuilt twice" in told
    assert "360 events, largest difference 0\n" in told


def test_store_check_reports_a_state_that_is_not_what_the_log_gives(items, tmp_path, monkeypatch):
    store = filled(tmp_path / "events.db", items, ["ada", "bob"], 20, crowd=False)
    with tw.Explorer(tw.Catalogue.load(items), store=tw.SQLiteStore(store), crowd=False) as made:
        assert made.inspect.check_states().mismatches == ()

        def meddle(user, state, at):
            state.posterior.theta[0] += 0.5 if user == "ada" else np.nan

        monkeypatch.setattr(made._snapshot.decider, "rehearse", meddle)  # deciding must not change what is known
        found = made.inspect.check_states()
    told = "\n".join(_mismatches(found))
    assert "the state of 'ada', step by step, is not what the log gives" in told
    assert 0 < float(re.search(r"'ada', .* differ by (\S+)", told)[1]) < np.inf
    assert "the state of 'bob', step by step, is not what the log gives: they differ by inf" in told


def test_store_check_counts_events_about_unknown_items(items, settings, tmp_path):
    store = filled(tmp_path / "events.db", items, ["ada"], 150, crowd=False)
    other = tmp_path / "other"
    synthetic_catalogue(100, dim=6, seed=0).save(other)  # the first half of the shop
    told = cli("store", "check", store, "--items", other)
    assert re.search(rf"\d+ of these events are about items that {other} does not have", told.replace("\n", ""))


def altered(path, change):
    """Put another edition of the crowd into a store."""
    from treeward.explorer.crowd_edition import CrowdEdition
    from treeward.explorer.crowd_keeper import NOTE

    held = tw.SQLiteStore(path)
    held.metadata.put({NOTE: change(CrowdEdition.unpacked(held.metadata.get(NOTE))).packed()})
    held.close()


def test_store_check_adds_up_what_the_crowd_was_taught(items, tmp_path):
    store = filled(tmp_path / "events.db", items, [f"u{n}" for n in range(12)], 20, on_repeat="last")
    told = cli("store", "check", store)
    assert "the crowd: edition" in told
    with tw.Explorer(tw.Catalogue.load(items), store=tw.SQLiteStore(store), publishes=False) as made:
        number = made.crowd_keeper.latest.number
    assert f"the crowd: edition {number}, of 240 rewards; nothing came since" in cli("store", "check", store)
    with tw.Explorer(tw.Catalogue.load(items), store=tw.SQLiteStore(store), publishes=False, on_repeat="last") as made:
        [shown] = made.recommend(["new"])
        made.feedback({shown.id: 0.0})
        made.feedback({shown.id: 1.0})
    assert "240 rewards; 2 rewards and changes came since" in cli("store", "check", store)
    with tw.Explorer(tw.Catalogue.load(items), store=tw.SQLiteStore(store), publishes=False, half_life=3.0):
        pass
    assert "241 rewards; nothing came since" in cli("store", "check", store)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: one._replace(times=one.times + 1), "item(s) have more rewards in it than in the store"),
        (lambda one: one._replace(rewards=9_999), "it knows 9,999 rewards, the store has 60"),
        (lambda one: one._replace(earned=one.earned + 0.25), "of its sums are not the sums of the events"),
        (lambda one: one._replace(squares=0.5), "1 of its squares are not the sums of the events"),
        (lambda one: one._replace(epoch=7), "it is of epoch 7, the store of 0"),
    ],
)
def test_store_check_reports_an_edition_that_is_not_what_the_events_say(change, why, items, tmp_path):
    store = filled(tmp_path / "events.db", items, ["ada", "bob"], 30)
    with tw.Explorer(tw.Catalogue.load(items), store=tw.SQLiteStore(store)):
        pass
    assert "clean" in cli("store", "check", store)
    altered(store, change)
    wrong = cli("store", "check", store, code=1)
    assert 'the metadata "crowd": ' in wrong
    assert why in wrong


def test_store_check_names_damaged_metadata(items, tmp_path):
    import sqlite3

    store = filled(tmp_path / "events.db", items, ["ada"], 5)
    held = tw.SQLiteStore(store)
    held.metadata.put({"crowd": held.metadata.get("crowd")[:-3] + b"abc"})
    held.close()
    assert 'the metadata "crowd": the crowd\'s edition in the store is not what was written' in cli(
        "store", "check", store, code=1
    )
    file = sqlite3.connect(store)
    file.execute("UPDATE metadata SET value = ? WHERE key = 'crowd'", (b"something else",))
    file.commit()
    file.close()
    assert 'the metadata "crowd" is not what was written' in cli("store", "check", store, code=1)
