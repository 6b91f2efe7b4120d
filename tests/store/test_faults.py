"""Disks that fail and processes that die: never a false acknowledgement, never a silent loss."""

import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.serving import serving, start
from tests.torture import campaign
from treeward.client import Client, ServiceError
from treeward.data.synthetic import synthetic_catalogue
from treeward.store.check import check


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "items"
    synthetic_catalogue(1_000, dim=8, seed=0).save(path)
    return path


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """An environment in which the disk fails when told to."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("a C compiler is needed to make disks fail (apt-get install gcc libc6-dev)")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


def test_a_store_killed_at_random_loses_nothing(items, tmp_path):
    found = campaign(tmp_path, items, 3)
    assert found.acknowledged > 100
    assert (found.lost, found.problems) == (0, ())


def test_dropped_writes_are_noticed_by_the_campaign(items, tmp_path, faulty):
    found = campaign(tmp_path, items, 1, env=faulty, during=lambda folder: (folder / "drop-write").touch())
    assert found.acknowledged > 10
    assert found.lost == found.acknowledged


@pytest.mark.parametrize("fault", ["fail-write", "fail-sync", "fail-space"])
def test_writes_to_a_failing_disk_are_never_acknowledged(items, tmp_path, faulty, fault):
    running = start(tmp_path, items, env=faulty)
    with Client(running.url, tries=1) as client:
        made = client.recommend("ada", 4)
        client.feedback(made[0]["decision_id"], 1.0)
        (tmp_path / fault).touch()
        for _ in range(2):
            with pytest.raises(ServiceError, match="503 store"):
                client.feedback(made[1]["decision_id"], 1.0)
        with pytest.raises(ServiceError, match="503 store"):
            client.feedback(made[0]["decision_id"], 1.0)  # is on disk, but who knows what else is not
        ready = httpx.get(f"{running.url}/readyz")
        assert ready.status_code == 503
        assert "restart to recover" in ready.json()["reason"]
        (tmp_path / fault).unlink()
        with pytest.raises(ServiceError, match="503 store"):
            client.feedback(made[2]["decision_id"], 1.0)
        with pytest.raises(ServiceError, match="503 store"):
            client.recommend("ada")
    running.process.terminate()
    assert running.process.wait(30) == 2, "it says that not everything is on disk"
    running.process.stdout.close()
    assert "everything is on disk" not in (tmp_path / "stderr").read_text()
    assert check(tmp_path / "events.db").problems == ()
    with serving(tmp_path, items) as again, Client(again.url) as client:
        assert client.feedback(made[0]["decision_id"], 1.0)["duplicate"]
        assert {client.feedback(one["decision_id"], 1.0)["outcome"] for one in made} <= {"recorded", "duplicate"}
        assert client.user("ada")["events"] == 8
