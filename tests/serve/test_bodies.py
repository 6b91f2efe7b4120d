"""Bodies that no well-behaved caller sends."""

import base64
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

import treeward as tw
from tests.serve.asking import ask
from tests.serving import serving
from treeward.data.synthetic import synthetic_catalogue

NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    '"1"',
    "true",
    "null",
    "[]",
    "{}",
    "1e308",
    "-1",
    "2",
    "",
    "1" * 5_000,
]


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers_that_are_no_numbers_are_refused(http, value):
    [made] = ask(http)
    body = f'{{"decision_id": "{made["decision_id"]}", "reward": {value}}}'
    answer = http.post("/v1/feedback", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    body = f'{{"user": "ada", "n": {value}}}'
    answer = http.post("/v1/recommend", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == (200 if value == "2" else 400)


def test_fuzzed_bodies_are_never_a_server_error(http):
    rng = random.Random(0)
    bodies = [b'{"user": "ada"}', b'{"decision_id": "AQAA", "reward": 0.5}', b"[" * 100_000, b'{"a":' * 50_000]
    for _ in range(50_000 if os.environ.get("TORTURE") else 400):
        body = bytearray(rng.choice(bodies[:2]))
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        bodies.append(bytes(body))
    for body in bodies:
        for path in ("/v1/recommend", "/v1/feedback"):
            answer = http.post(path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code < 500, body
    assert http.post("/v1/recommend", content=b'{"user": "ada"}').status_code == 415
    away = http.post("/v1/recommend", json={"user": "ada"}, headers={"host": "evil.example"})
    assert (away.status_code, away.json()["error"]) == (403, "host")
    for depth in (2, 500):
        where = b'{"user":"u","where":{"price":' + b'{"min":' * depth + b"1" + b"}" * depth + b"}}"
        # The client gives up after ten seconds: what grew with a power of the depth would take for ever.
        answer = http.post("/v1/recommend", content=where, headers={"content-type": "application/json"})
        assert answer.status_code == 400
    form = http.post("/v1/recommend", data={"user": "ada"})
    assert (form.status_code, form.json()["error"]) == (415, "not_json"), "a page elsewhere can send forms"


def test_tampered_decision_ids_are_refused(http):
    [made] = ask(http)
    id = made["decision_id"]
    rng = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    forged = {id[:at] + rng.choice(letters.replace(id[at], "")) + id[at + 1 :] for at in range(len(id))}
    forged |= {id + "A", id[:-1], id + "=", " " + id, id.lower(), ""}
    other = tw.Explorer(synthetic_catalogue(1_000, dim=8, seed=0)).recommend(["ada"])[0].id
    for one in [*forged - {id}, other, base64.urlsafe_b64encode(b"\x01" * 60).decode()]:
        answer = http.post("/v1/feedback", json={"decision_id": one, "reward": 1})
        assert answer.status_code == 404, one


def test_schemathesis_finds_no_violation(items, tmp_path):
    """All checks and phases but one: an erased user may be read again, like any unknown user."""
    tries = 500 if os.environ.get("TORTURE") else 12
    with serving(tmp_path, items) as service:  # of its own: its items are changed, too
        done = _schemathesis(service, tries, tmp_path)
    assert done.returncode == 0, done.stdout[-20_000:]
    assert re.search(r"Stateful", done.stdout)
    assert "Tested: 31" in done.stdout


def _schemathesis(service, tries, tmp_path):
    return subprocess.run(
        [Path(sys.executable).with_name("schemathesis"), "--config-file", Path(__file__).with_name("schemathesis.toml"),
         "run", f"{service.url}/openapi.json", "--checks", "all", "--exclude-checks", "use_after_free",
         "--phases", "coverage,fuzzing,stateful", "--max-examples", str(tries), "--generation-deterministic"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
