"""A service and a client in one script: start `treeward serve`, let simulated users click, show what was learned."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import treeward as tw
from treeward.client import Client

folder = Path(tempfile.mkdtemp())
world = tw.World.synthetic(items=2_000, users=20, dim=16, seed=0)
world.catalogue.save(folder / "items")

command = [str(Path(sys.executable).with_name("treeward")), "serve", str(folder / "items"), "--port", "8767"]
service = subprocess.Popen([*command, "--admin-port", "8768", "--store", str(folder / "events.db"), "--set", "log=off"])
try:
    with Client("http://127.0.0.1:8767") as client:
        while not client.ready():
            time.sleep(0.1)
        earned = []
        for _ in range(30):
            for user in range(20):
                [choice] = client.recommend(user)
                reward = float(world.chances([user], [choice["item"]])[0])
                client.feedback(choice["decision_id"], reward)
                earned.append(reward)
        tenth = len(earned) // 10
        print(f"mean reward: first tenth {sum(earned[:tenth]) / tenth:.3f}, last {sum(earned[-tenth:]) / tenth:.3f}")
        best = client.user(0)["interests"][0]
        print(f"user 0 likes node {best['node']} best: mean {best['mean']:.3f} after {best['visits']} visits")
finally:
    service.terminate()
    service.wait()
