"""`PostgresStore`: the same promises as any store, kept for many processes at once."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serving import kill, serving, start, stop
from tests.waiting import wait_until
from treeward.client import Client, ServiceError
from treeward.core.errors import InvalidArgument, StoreError, StoreVersion, UnknownDecision
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve.parts import open_explorer
from treeward.serve.settings import Settings
from treeward.store.base import everyone, forget, merge, read_all, read_chunks
from treeward.store.events import REWARD, SHOWN, event
from treeward.store.metadata import begin
from treeward.store.numbers import item_ids, number_items, number_snapshot, snapshot_digests
from treeward.store.opening import without_password
from treeward.testing import check_store

pytestmark = needs_postgres


@pytest.fixture
def url(cluster, request):  # noqa: F811
    return cluster.database(request.node.name[:60])


def opened(url, **options):
    from treeward.store.postgres import PostgresStore

    return PostgresStore(url, **options)


def test_the_store_keeps_its_contract(url):
    check_store(lambda: opened(url))


def test_other_processes_see_all_writes(url):
    one, other = opened(url), opened(url)
    one.append(["ada", 7], np.concatenate([event(1, 0.5, nonce=5), event(2, 1.0, nonce=6, time=99)]))
    assert other.read(["ada"])[0].tobytes() == one.read(["ada"])[0].tobytes()
    assert other.read([7])[0]["time"].tolist() == [99]
    assert number_items(one, pl.Series(["x", "y"])).tolist() == [0, 1]
    assert number_items(other, pl.Series(["y", "z"])).tolist() == [1, 2]
    assert [number_snapshot(one, "a"), number_snapshot(other, "b"), number_snapshot(one, "b")] == [0, 1, 1]
    assert one.identities.secret == other.identities.secret
    assert sorted([begin(one.metadata), begin(other.metadata), begin(one.metadata)]) == [0, 1, 2]
    forget(one, "ada")
    assert other.counts(["ada"])[0] == 0
    assert not other.append(["ada"], event(1, 1.0, nonce=5), epoch=0).any()
    assert other.identities.epoch == 1
    assert other.identities.resolve("ada", 0) is None
    merge(other, 7, "bob")
    assert one.read(["bob"])[0]["item"].tolist() == [2]
    one.read(["bob"], [0])
    assert one.identities.resolve(7, 1) == "bob"
    with pytest.raises(InvalidArgument, match="strings, as in the store"):
        number_items(one, pl.Series([1, 2]))
    one.close()
    other.close()


def test_concurrent_rewards_for_a_decision_count_once(url):
    stores = [opened(url, connections=4) for _ in range(4)]
    nonces = list(range(1, 301))
    wins = np.zeros(len(nonces) + 1, dtype=int)

    def tell(store, seed):
        order = np.random.default_rng(seed).permutation(nonces)
        for first in range(0, len(order), 20):
            some = order[first : first + 20]
            users = [f"user {nonce % 7}" for nonce in some]
            added = store.append(users, np.concatenate([event(1, seed / 10, nonce=int(nonce)) for nonce in some]))
            with lock:
                wins[some[added]] += 1

    lock = threading.Lock()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: tell(stores[i % 4], i), range(8)))
    assert wins[1:].tolist() == [1] * len(nonces)
    held = [events for _, events in read_all(stores[0])]
    assert sum(map(len, held)) == len(nonces)
    for store in stores:
        store.close()


def test_explorers_on_one_database_decide_alike(url):
    """Users hop between replicas at random; one explorer given the same events decides the same, without a crowd."""
    shop = synthetic_catalogue(800, dim=8, seed=0)
    tree = tw.ItemTree.build(shop.vectors, (8, 60), seed=0)
    replicas = [tw.Explorer(shop, tree, tw.PHCB(), opened(url), seed=1, crowd=False) for _ in range(3)]
    alone = tw.Explorer(shop, tree, tw.PHCB(), seed=1, crowd=False)
    random = np.random.default_rng(0)
    users = [f"user {i}" for i in range(12)]
    for _ in range(120):
        user = users[int(random.integers(len(users)))]
        [d] = replicas[int(random.integers(3))].recommend([user])
        reward = float(random.random() < 0.4)
        replicas[int(random.integers(3))].feedback({d.id: reward})
        row = shop.row(d.item)
        alone.store.append(
            [user],
            event(int(alone._snapshot.decider.positions.number_of_row[row]), reward, node=_node(d), nonce=1 + _),
        )
    for user in users:
        told = [one.inspect.field(user) for one in (*replicas, alone)]
        for other in told[1:]:
            assert other.nodes.node == told[0].nodes.node
            np.testing.assert_allclose(other.mean, told[0].mean, atol=1e-5)
            np.testing.assert_allclose(other.width, told[0].width, atol=1e-5)
        seats = [int(one._snapshot.decider.states.seat([user])[0]) for one in (*replicas, alone)]
        thetas = [
            one._snapshot.decider.states.state.posterior.theta[seat]
            for one, seat in zip((*replicas, alone), seats, strict=True)
        ]
        for theta in thetas[1:]:
            np.testing.assert_array_equal(theta, thetas[0])
    for one in replicas:
        one.close()


def _node(decision):
    return decision.path[-1] if decision.path else 0


def test_a_user_erased_on_one_replica_is_erased_on_all(url):
    shop = synthetic_catalogue(300, dim=4, seed=0)
    one, other = (tw.Explorer(shop, store=opened(url), exposures="all", seed=0) for _ in range(2))
    [d] = one.recommend(["ada"])
    [e] = other.recommend(["ada"])
    assert other.feedback({d.id: 1.0}) == {d.id: "recorded"}
    assert one.feedback({d.id: 1.0}) == {d.id: "duplicate"}
    assert one.forget("ada") == 3
    with pytest.raises(UnknownDecision):
        other.feedback({e.id: 1.0})
    assert other.store.counts(["ada"])[0] == 0
    [f] = other.recommend(["ada"])
    one.merge("ada", "eve")
    assert other.feedback({f.id: 0.5}) == {f.id: "recorded"}
    assert other.store.read(["eve"])[0]["kind"].tolist() == [SHOWN, 1]
    one.close()
    other.close()


def test_processes_that_number_items_at_once_agree(url):
    stores, found, gate = [opened(url) for _ in range(6)], {}, threading.Barrier(6)

    def work(number):
        gate.wait()
        for turn in range(5):
            ids = [f"item {(number + i) % 9 + 7 * turn}" for i in range(6)]
            found[number, turn] = ids, number_items(stores[number], pl.Series(ids)).tolist()
            number_snapshot(stores[number], f"tree {(number + turn) % 4}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = item_ids(stores[0]).to_list()
    assert len(known) == len(set(known))
    assert len(found) == 30
    for ids, numbers in found.values():
        assert [known[number] for number in numbers] == ids
    assert sorted(snapshot_digests(stores[0])) == [f"tree {i}" for i in range(4)]
    for store in stores:
        store.close()


def test_a_failed_move_leaves_users_as_they_were(url, monkeypatch):
    store, other = opened(url), opened(url)
    store.append(["ada"], event(1, 1.0, nonce=1))
    with monkeypatch.context() as broken:
        broken.setattr("treeward.store.postgres_schema.put_metadata", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.move("ada", "bob")
    assert (store.counts(["ada", "bob"]), store.identities.epoch) == ([1, 0], 0)
    forget(other, "eve")
    assert store.identities.epoch == 0
    assert merge(store, "ada", "bob") == 1
    assert (store.identities.epoch, store.identities.resolve("ada", 1)) == (2, "bob")
    assert store.identities.resolve("eve", 0) is None
    store.close()
    other.close()


def test_many_events_are_added_at_once(url):
    store = opened(url)
    counts = np.array([3_000, 0, 2_000])
    many = np.concatenate([event(i, 0.5) for i in range(5_000)])
    store.extend(["ada", "nobody", 9], counts, many)
    assert store.read(["ada"])[0].tobytes() == many[:3_000].tobytes()
    assert store.read([9], [1_990])[0]["item"].tolist() == list(range(4_990, 5_000))
    assert sum(map(len, read_chunks(store))) == 5_000
    assert set(everyone(store)) == {"ada", 9}
    store.close()


def test_other_versions_and_unreachable_databases_are_refused(cluster, url):  # noqa: F811
    import psycopg

    with pytest.raises(StoreError, match="there is no store in this database"):
        opened(url, create=False)
    opened(url).close()
    with psycopg.connect(url) as db:
        db.execute("UPDATE treeward.version SET number = 9")
    with pytest.raises(StoreVersion, match="of version 9; this treeward reads only version 3: use the treeward that"):
        opened(url)
    with psycopg.connect(url) as db:
        db.execute("DROP TABLE treeward.version")
    with pytest.raises(StoreVersion, match="of version 1 or 2; this treeward reads only"):
        opened(url)
    with pytest.raises(StoreError, match="cannot be reached") as told:
        opened("postgresql://me:hush@127.0.0.1:1/nothing", timeout=1.0)
    assert "hush" not in str(told.value)
    with pytest.raises(StoreError, match="cannot be reached"):
        opened("postgresql://%%%", timeout=1.0)


def test_a_store_recovers_when_its_database_comes_back(tmp_path):
    from tests.pg import Cluster

    own = Cluster()
    try:
        store = opened(own.database("treeward"), timeout=1.0)
        store.append(["ada"], event(1, 1.0, nonce=1))
        own.kill()
        with pytest.raises(StoreError, match="cannot be reached"):
            store.append(["ada"], event(2, 1.0, nonce=2))
        for _ in range(4):
            store.status(probe=True)
            assert store.status().problem is not None
        own.start()
        looks = 0
        while store.status().problem is not None:  # every look tries, however long the outage was
            store.status(probe=True)
            looks += 1
            assert looks <= 5
        assert store.append(["ada"], event(2, 1.0, nonce=2)).tolist() == [True]
        assert not store.append(["ada"], event(1, 1.0, nonce=1)).any()
        assert store.read(["ada"])[0]["item"].tolist() == [1, 2]
        store.close()
    finally:
        own.close()


def test_replicas_decide_alike_and_lose_or_repeat_no_events(url, tmp_path):
    """Sixteen callers hop between four services over one database, one of which is then killed."""
    synthetic_catalogue(500, dim=8, seed=0).save(tmp_path / "items")
    folders = [tmp_path / str(i) for i in range(4)]
    for folder in folders:
        folder.mkdir()
    options = (tmp_path / "items", "--policy", "phcb", "--store", url, "--set", "crowd=false")
    with ThreadPoolExecutor(4) as pool:
        services = list(pool.map(lambda folder: start(folder, *options), folders))
    decisions = 10_000 if os.environ.get("TORTURE") else 800
    with ThreadPoolExecutor(16) as pool:
        made = [
            id for part in pool.map(lambda seed: visits_of(services, seed, decisions // 16), range(16)) for id in part
        ]
    # One that was alone decides the same, given the same events.
    settings = Settings(items=str(tmp_path / "items"), policy="phcb", store=url, crowd=False)
    with open_explorer(settings) as alone:
        same = [alone.explain(id).reproduced for id in made]
    assert same == [True] * decisions
    check_that_nothing_is_lost(services, url)
    assert [stop(one) for one in services[1:]] == [0, 0, 0]


def visits_of(services, seed, count):
    """Recommend to users and give feedback, here and there; return the decisions."""
    random = np.random.default_rng(seed)
    clients, made = [Client(one.url, timeout=30) for one in services], []
    for _ in range(count):
        there, back = random.integers(len(clients), size=2).tolist()
        [one] = clients[there].recommend(f"somebody {int(random.integers(40))}")
        clients[back].feedback(one["decision_id"], float(random.random() < 0.3))
        made.append(one["decision_id"])
    for client in clients:
        client.close()
    return made


def check_that_nothing_is_lost(services, url):
    """Let callers share users and repeat themselves, kill a replica, and compare what they were told with the store."""
    told, stop_now = [], threading.Event()
    before = len(rewards_in(url))

    def visit(seed):
        random = np.random.default_rng(seed)
        clients = [Client(one.url, tries=1, timeout=10) for one in services]
        while not stop_now.is_set():
            user = f"user {int(random.integers(40))}"
            try:
                [made] = clients[int(random.integers(4))].recommend(user)
                reward = float(random.integers(2))
                for _ in range(2):  # as if the first answer had got lost
                    answer = clients[int(random.integers(4))].feedback(made["decision_id"], reward)
                    told.append((user, made["item"], reward, answer["outcome"]))
            except (ServiceError, httpx.TransportError):
                pass
        for client in clients:
            client.close()

    with ThreadPoolExecutor(16) as pool:
        visits = [pool.submit(visit, seed) for seed in range(16)]
        wait_until(lambda: len(told) > 150, "callers were answered")
        kill(services[0])
        upto = len(told)
        wait_until(lambda: len(told) > upto + 150, "callers are answered by the others")
        stop_now.set()
        for one in visits:
            one.result()
    rewards = rewards_in(url)
    assert len({(user, nonce) for user, _, nonce in rewards}) == len(rewards)
    recorded = [one for one in told if one[3] == "recorded"]
    assert len(recorded) > 100
    # What was recorded but not acknowledged, because its service was killed, may be there as well.
    assert len(recorded) <= len(rewards) - before <= len(recorded) + 32
    for user in {one[0] for one in recorded}:
        mine = sum(one[2] for one in recorded if one[0] == user)
        assert mine <= sum(reward for who, reward, _ in rewards if who == user)
    with Client(services[1].url) as one, Client(services[2].url) as other:
        for user in ("user 1", "user 2"):
            assert one.user(user) == other.user(user)


def rewards_in(url):
    store = opened(url)
    found = [(user, float(one["reward"]), int(one["nonce"]))
             for user, events in read_all(store) for one in events if one["kind"] == REWARD]  # fmt: skip
    store.close()
    return found


def test_a_service_recovers_when_its_database_comes_back(tmp_path):
    from tests.pg import Cluster

    own = Cluster()
    try:
        synthetic_catalogue(300, dim=4, seed=0).save(tmp_path / "items")
        running = start(tmp_path, tmp_path / "items", "--store", own.database("treeward"))
        with Client(running.url, tries=1, timeout=20) as client:
            [made] = client.recommend("ada")
            client.feedback(made["decision_id"], 1.0)
            own.kill()
            with pytest.raises(ServiceError, match="503 store"):
                client.feedback(made["decision_id"], 1.0)
            assert httpx.get(running.url + "/readyz").status_code == 503
            own.start()
            wait_until(lambda: httpx.get(running.url + "/readyz").status_code == 200, "the service is ready again")
            assert client.feedback(made["decision_id"], 1.0)["duplicate"]
            assert client.user("ada")["events"] == 2
        assert stop(running) == 0
        log = (tmp_path / "stderr").read_text()
        assert "Traceback" not in log
    finally:
        own.close()


def test_default_rewards_are_given_after_a_long_outage(tmp_path):
    from tests.pg import Cluster

    own = Cluster()
    try:
        synthetic_catalogue(300, dim=4, seed=0).save(tmp_path / "items")
        options = ("--store", own.database("treeward"), "--set", "window=2", "--set", "default_reward=0.25",
                   "--set", "exposures=strict")  # fmt: skip
        log = tmp_path / "stderr"

        def refused_after(moment):
            lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
            return any(one["time"] > moment and one.get("status") == 503 for one in lines)

        with serving(tmp_path, tmp_path / "items", *options) as running, Client(running.url, timeout=20) as client:
            client.recommend("ada", 3)
            over = time.time() + 2
            own.kill()
            wait_until(lambda: not client.ready(), "the outage is noticed")
            wait_until(lambda: client.ready() or refused_after(over + 3), "the windows are over, and swept")
            own.start()
            wait_until(client.ready, "the database is back")
            wait_until(lambda: client.user("ada")["events"] == 6, "the default rewards are written")
            assert [one["reward"] for one in client.user("ada")["history"][3:]] == [0.25] * 3
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        assert [one for one in lines if "cannot be reached" in one.get("error", "")]
        assert [one for one in lines if one.get("store") == "takes writes again"]
    finally:
        own.close()


def test_concurrent_bulk_appends_and_erasures_are_consistent(url):
    """New and known names in any order: nobody waits for each other for ever, nobody trips over somebody erased."""
    stores, problems = [opened(url) for _ in range(3)], []

    def work(number):
        random = np.random.default_rng(number)
        try:
            for turn in range(60):
                users = [f"u{i}" for i in random.integers(12, size=6)] + [f"{number}-{turn}"]
                if turn % 3 == number:
                    stores[number].extend(users, np.ones(7, dtype=np.int64), np.concatenate([event(1, 1.0)] * 7))
                elif turn % 3 == 1:
                    stores[number].append(users, np.concatenate([event(1, 1.0)] * 7))
                else:
                    forget(stores[number], users[0])
        except Exception as error:
            problems.append(repr(error))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert problems == []
    for user, events in read_all(stores[0]):
        assert len(events) == stores[0].counts([user])[0]
    for store in stores:
        store.close()


def test_passwords_are_not_shown():
    for place in ("u:se/cret@localhost/db", "u:p@secret@localhost/db", "u:sec ret@h/d"):
        with pytest.raises(StoreError, match="percent-encoded") as caught:
            opened("postgresql://" + place)
        assert not {"cret", "secret", "sec ret"} & set(str(caught.value).replace("/", " ").split())
    assert without_password("postgresql://me:hu@sh@host/db") == "postgresql://me:...@host/db"
    assert without_password("postgresql://me:hush@host/db") == "postgresql://me:...@host/db"
    assert without_password("postgresql:///db?password=hush&user=me") == "postgresql:///db?password=...&user=me"
    assert without_password("events.db") == "events.db"


def test_workers_share_a_port_and_are_replaced(url, tmp_path):
    synthetic_catalogue(300, dim=4, seed=0).save(tmp_path / "items")
    running = start(tmp_path, tmp_path / "items", "--store", url, "--workers", 2)
    try:
        assert httpx.get(running.admin + "/metrics").status_code == 200
        workers = children(running.process.pid)
        assert len(workers) == 2
        for i in range(12):  # a connection each: now one worker, now the other
            with Client(running.url) as client:
                [made] = client.recommend("ada")
            with Client(running.url) as client:
                assert client.feedback(made["decision_id"], float(i % 2)) == {"outcome": "recorded", "duplicate": False}
        with Client(running.url) as client:
            assert client.user("ada")["events"] == 24

        def counted(name):
            told = httpx.get(running.admin + "/metrics").text
            return float(re.search(rf'^treeward_{name}{{group="explored"}} (.*)$', told, re.MULTILINE)[1])

        assert [counted(name) for name in ("decisions_total", "rewards_total", "earned")] == [12, 12, 6]
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(set(children(running.process.pid)) - set(workers)) == 2, "both are started again")
        with Client(running.url, tries=50) as client:
            wait_until(client.ready, "they take requests")
            client.recommend("ada")
            client.recommend("ada")
        wait_until(lambda: answers(running.admin), "the first worker is back")
        assert counted("decisions_total") == 14, "what a worker counted is not lost with it"
        lines = [json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")]
        died = {(one["pid"], one["of"]) for one in lines if one.get("error", "").startswith("a worker died")}
        assert died == {(worker, "SIGKILL") for worker in workers}
    finally:
        assert stop(running) == 0
    assert "stopped; everything is on disk" in (tmp_path / "stderr").read_text()
    with pytest.raises(InvalidArgument, match="workers must be 1, unless the store is postgresql"):
        Settings(items=str(tmp_path / "items"), workers=2).check()
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError, match="cannot be reached"):
        start(tmp_path / "other", tmp_path / "items", "--workers", 2, "--store", "postgresql://127.0.0.1:1/nothing")


def answers(url):
    try:
        return httpx.get(url + "/metrics").status_code == 200
    except httpx.TransportError:
        return False


def children(pid):
    """Return the workers of a process: those of its children that serve."""
    listed = subprocess.run(["pgrep", "-P", str(pid), "-f", "spawn_main"], capture_output=True, text=True, check=False)
    return [int(one) for one in listed.stdout.split()]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    path = tmp_path_factory.mktemp("crowded") / "items"
    synthetic_catalogue(400, dim=6, seed=0).save(path)
    return path


def test_a_reward_given_to_one_replica_reaches_the_edition_of_another(crowded, url, tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with (
        serving(folders[0], crowded, "--store", url) as one,
        serving(folders[1], crowded, "--store", url) as two,
        Client(one.url) as first,
        Client(two.url) as second,
    ):
        [made] = first.recommend("ada")
        assert first.feedback(made["decision_id"], 1.0)["outcome"] == "recorded"
        begun = time.monotonic()
        wait_until(lambda: second.crowd()["rewards"] == 1, "the other replica's edition knows it")
        assert time.monotonic() - begun < 10
        [other] = second.recommend("bob")
        second.feedback(other["decision_id"], 0.0)
        wait_until(lambda: first.crowd()["rewards"] == 2, "and the other way round")
        assert first.crowd()["problem"] == second.crowd()["problem"] == ""


def test_two_explorers_on_one_database_decide_the_same_under_one_edition(crowded, url):
    settings = Settings(items=str(crowded), store=url, spare=0.0)
    luck = np.random.default_rng(0)
    with open_explorer(settings) as one, open_explorer(settings) as two:
        for round in range(6):
            for each in (one, two):
                shown = each.recommend([f"u{n}" for n in range(30)])
                each.feedback({d.id: float(luck.uniform() < 0.3) for d in shown})
            (one, two)[round % 2].publish()
            assert (two, one)[round % 2].crowd_keeper.follow()
            assert one.crowd_keeper.latest.same_as(two.crowd_keeper.latest)
            assert one.crowd_keeper.latest.rewards == 60 * (round + 1), "what both were told, once"
            users, made = ["new", *(f"u{n}" for n in range(30))], []
            for each in (one, two):
                draws = each._snapshot.decider._begun, each._snapshot.decider._call_stream
                each._snapshot.decider._begun, each._snapshot.decider._call_stream = (
                    0,
                    7,
                )  # the same for both
                made.append([(d.item, d.mean, d.width, d.edition) for user in users for d in each.preview(user, 3)])
                each._snapshot.decider._begun, each._snapshot.decider._call_stream = draws
            assert made[0] == made[1]


def test_editions_made_under_traffic_count_every_reward_once(crowded, url):
    """Rewards that come while a replica reads the events are in that edition or in the next, never twice."""
    settings = Settings(items=str(crowded), store=url, spare=0.0)
    with open_explorer(settings) as one, open_explorer(settings) as two, ThreadPoolExecutor(2) as pool:
        over = threading.Event()

        def live(explorer, name):
            count = 0
            while not over.is_set():
                [made] = explorer.recommend([f"{name}{count % 7}"])
                explorer.feedback({made.id: 1.0})
                count += 1
            return count

        callers = [pool.submit(live, *given) for given in ((one, "a"), (two, "b"))]
        numbers = []
        for _ in range(15):
            numbers += [one.publish(), two.publish()]
        over.set()
        told = sum(caller.result() for caller in callers)
        numbers.append(one.publish())
        assert numbers == sorted(numbers)
        assert one.crowd_keeper.latest.rewards == told
        assert two.crowd_keeper.follow()
        assert two.crowd_keeper.latest.rewards == told
