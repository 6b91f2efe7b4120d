"""Kill a service at random under load, and count what it lost; ``python tests/torture.py [KILLS]`` takes its time."""

import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.serving import kill, serving, start
from treeward.client import Client, ServiceError
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.base import read_all
from treeward.store.check import check


class Damage(NamedTuple):
    """What a campaign found."""

    acknowledged: int
    lost: int
    """Acknowledged, and not there."""
    problems: tuple[str, ...]
    """What `store check` says; a reward that is there twice is one."""
    editions: int = 0
    """Number of the crowd's last edition."""


def campaign(folder, items, kills, clients=16, env=None, during=lambda folder: None, seed=0):
    """Kill a service so many times while callers give feedback; `during` is called once it is ready."""
    acknowledged, guard, coin = {}, threading.Lock(), random.Random(seed)
    for _ in range(kills):
        running = start(folder, items, "--set", "log=off", "--set", "repeats=true", env=env)
        during(folder)

        def live(name, running=running):
            with httpx.Client(base_url=running.url, timeout=5) as http:
                while True:
                    try:
                        answer = http.post("/v1/recommend", json={"user": name})
                        if answer.status_code != 200:
                            return
                        id, reward = answer.json()["items"][0]["decision_id"], random.random()
                        if http.post("/v1/feedback", json={"decision_id": id, "reward": reward}).status_code == 200:
                            with guard:
                                acknowledged[id] = reward
                    except httpx.TransportError:
                        return

        with ThreadPoolExecutor(clients) as pool:
            for i in range(clients):
                pool.submit(live, f"user-{i}")
            time.sleep(coin.uniform(0.2, 1.2))
            kill(running)
    problems = check(folder / "events.db").problems
    with serving(folder, items, "--set", "log=off", "--set", "repeats=true") as running:
        return Damage(len(acknowledged), lost_of(acknowledged, running.url), problems)


def crowd_campaign(folder, items, kills, clients=8, seed=0):
    """Kill a service so many times while it makes an edition of the crowd every few milliseconds.

    After every kill the store is checked, which adds up everybody's rewards again. Numbers of editions never go back.
    """
    from treeward.explorer.crowd_check import check_with_crowd

    acknowledged, guard, coin, problems = {}, threading.Lock(), random.Random(seed), []
    options, latest = ("--set", "log=off", "--set", "repeats=true", "--set", "publish_every=0.001"), 0

    def live(running, name, seen):
        with httpx.Client(base_url=running.url, timeout=5) as http:
            while True:
                try:
                    answer = http.post("/v1/recommend", json={"user": name})
                    if answer.status_code != 200:
                        return
                    made = answer.json()
                    seen.append(made["items"][0]["edition"])
                    id, reward = made["items"][0]["decision_id"], random.random()
                    if http.post("/v1/feedback", json={"decision_id": id, "reward": reward}).status_code == 200:
                        with guard:
                            acknowledged[id] = reward
                except httpx.TransportError:
                    return

    for _ in range(kills):
        running = start(folder, items, *options)
        seen = [[] for _ in range(clients)]
        with ThreadPoolExecutor(clients) as pool:
            for i in range(clients):
                pool.submit(live, running, f"user-{i}", seen[i])
            time.sleep(coin.uniform(0.3, 1.2))
            kill(running)
        if any(one != sorted(one) for one in seen) or min(one[0] for one in seen if one) <= latest:
            problems.append(f"the numbers of editions went back: they were {latest} before")
        latest = max(max(one) for one in seen if one)
        report, told = check_with_crowd(folder / "events.db")
        problems += [*report.problems, *([] if told else ["there is no edition"])]
    with serving(folder, items, *options) as running, Client(running.url) as client:
        told = client.crowd()
        lost = lost_of(acknowledged, running.url)
    if told["edition"] <= latest or told["rewards"] < len(acknowledged):
        problems.append(f"edition {told['edition']} after {latest} knows {told['rewards']} rewards")
    report, said = check_with_crowd(folder / "events.db")
    problems += [*report.problems, *([] if said.endswith("nothing came since") else [f"after a restart: {said}"])]
    return Damage(len(acknowledged), lost, tuple(problems), told["edition"])


def database_campaign(folder, items, kills, clients=16, seed=0):
    """Kill replicas, and the database under them, so many times each, while callers give feedback.

    Returns the damage, and the longest that it took a service to be ready again after the database was.
    """
    from tests.pg import Cluster

    base, coin = Cluster(), random.Random(seed)
    url = base.database("torture")
    acknowledged, guard, over, longest = {}, threading.Lock(), threading.Event(), 0.0
    places = [folder / str(i) for i in range(3)]
    for place in places:
        place.mkdir()
    services = [start(place, items, "--store", url, "--set", "log=off", "--set", "repeats=true") for place in places]

    def live(name):
        while not over.is_set():
            try:
                with Client(coin.choice(services).url, tries=1, timeout=10) as client:
                    for _ in range(50):
                        [made] = client.recommend(name)
                        client.feedback(made["decision_id"], reward := random.random())
                        with guard:
                            acknowledged[made["decision_id"]] = reward
            except (ServiceError, httpx.TransportError):
                time.sleep(0.05)

    try:
        with ThreadPoolExecutor(clients) as pool:
            for i in range(clients):
                pool.submit(live, f"user-{i}")
            for _ in range(kills):
                time.sleep(coin.uniform(0.3, 1.5))
                which = coin.randrange(3)
                kill(services[which])
                services[which] = start(
                    places[which], items, "--store", url, "--set", "log=off", "--set", "repeats=true"
                )
                time.sleep(coin.uniform(0.3, 1.5))
                base.kill()
                base.start()
                longest = max(longest, until_ready(services))
            over.set()
        lost = lost_of(acknowledged, services[0].url)
        for one in services:
            kill(one)
        return Damage(len(acknowledged), lost, twice(url)), longest
    finally:
        over.set()
        base.close()


def lost_of(acknowledged, url):
    """Tell how many of the rewards that were acknowledged a service does not know."""
    lost, pairs = 0, list(acknowledged.items())
    with Client(url, timeout=30) as client:
        for first in range(0, len(pairs), 500):
            rows = client.feedback_many(pairs[first : first + 500])
            lost += sum(not row["body"].get("duplicate") for row in rows)
    return lost


def until_ready(services):
    """Wait until all services are, and return how long that took."""
    began = time.monotonic()
    while any(httpx.get(one.url + "/readyz", timeout=5).status_code != 200 for one in services):
        time.sleep(0.05)
    return time.monotonic() - began


def twice(url):
    """Say whose decisions have more than one reward, and whose events are not numbered from the first on."""
    from treeward.store.postgres import PostgresStore

    store, found = PostgresStore(url), []
    for user, events in read_all(store):
        nonces = events["nonce"][(events["kind"] == 1) & (events["nonce"] != 0)].tolist()
        if len(set(nonces)) != len(nonces):
            found.append(f"{user!r} has decisions with two rewards")
        if len(events) != store.counts([user])[0]:
            found.append(f"{user!r} lacks events")
    store.close()
    return tuple(found)


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp())
    synthetic_catalogue(1_000, dim=8, seed=0).save(place / "items")
    kills, longest = int(sys.argv[1]) if len(sys.argv) > 1 else 200, 0.0
    if "--database" in sys.argv:
        found, longest = database_campaign(place, place / "items", kills)
        sys.stdout.write(f"ready again at most {longest:.1f} s after the database\n")
    else:
        found = campaign(place, place / "items", kills)
    sys.stdout.write(f"{found}\n")
    sys.exit(found.lost > 0 or bool(found.problems) or not found.acknowledged or longest > 30)
