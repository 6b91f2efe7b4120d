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
from treeward.client import Client
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.check import check


class Damage(NamedTuple):
    """What a campaign found."""

    acknowledged: int
    lost: int
    """Acknowledged, and not there."""
    problems: tuple[str, ...]
    """What fsck says; a reward that is there twice is one."""


def campaign(folder, items, kills, clients=16, env=None, during=lambda folder: None, seed=0):
    """Kill a service so many times while callers give feedback; `during` is called once it is ready."""
    acknowledged, guard, coin = {}, threading.Lock(), random.Random(seed)
    for _ in range(kills):
        running = start(folder, items, "--set", "log=off", env=env)
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
    lost = 0
    with serving(folder, items, "--set", "log=off") as running, Client(running.url, timeout=30) as client:
        pairs = list(acknowledged.items())
        for first in range(0, len(pairs), 500):
            rows = client.feedback_many(pairs[first : first + 500])
            lost += sum(not row["body"].get("duplicate") for row in rows)
    return Damage(len(acknowledged), lost, problems)


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp())
    synthetic_catalogue(1_000, dim=8, seed=0).save(place / "items")
    found = campaign(place, place / "items", int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    sys.stdout.write(f"{found}\n")
    sys.exit(found.lost > 0 or bool(found.problems) or not found.acknowledged)
