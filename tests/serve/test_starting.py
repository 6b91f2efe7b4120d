"""A service that is still loading: it listens, says how far it is, and ends when it is told to."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.serving import TREEWARD
from tests.waiting import wait_until
from treeward.core.compile_progress import CompileProgress
from treeward.serve import starting
from treeward.serve.settings import Settings

ROOT = Path(__file__).parents[2]
POLICY = """
import pathlib, time
from treeward.policy.beam import Beam

go = pathlib.Path(__file__).with_name("go")
while not go.exists():
    time.sleep(0.01)
if go.read_text():
    raise RuntimeError(go.read_text())

class Slow(Beam):
    pass
"""


class Loading:
    """A service that loads until `go` is called."""

    def __init__(self, folder, items):
        self.folder = folder
        (folder / "slow.py").write_text(POLICY)
        self.port, self.admin_port = free_ports(2)
        self.process = subprocess.Popen(
            [TREEWARD, "serve", str(items), "--policy", f"{folder}/slow.py:Slow", "--store", str(folder / "events.db"),
             "--port", str(self.port), "--admin-port", str(self.admin_port)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, text=True,
        )  # fmt: skip

    def go(self, error=""):
        """Let it load, or fail with an error."""
        (self.folder / "go.new").write_text(error)
        (self.folder / "go.new").rename(self.folder / "go")

    def get(self, path, port=None, **headers):
        """Return status, headers and body of an answer; None if nothing listens."""
        link = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=30)
        try:
            return ask(link, "GET", path, **headers)
        except ConnectionError:
            return None
        finally:
            link.close()

    def listens(self):
        """Return whether it answers that it is alive."""
        assert self.process.poll() is None, self.process.stderr.read()
        told = self.get("/livez")
        return told is not None and told[0] == 200

    def end(self, number):
        """Send a signal; return the exit code and what was written to stderr."""
        self.process.send_signal(number)
        return self.process.wait(60), self.process.stderr.read()


def free_ports(count):
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
    finally:
        for one in taken:
            one.close()


def ask(link, method, path, body=None, **headers):
    link.request(method, path, body, headers | ({"content-type": "application/json"} if body else {}))
    answer = link.getresponse()
    return answer.status, answer.headers, answer.read().decode()


@contextmanager
def loading(folder, items):
    made = Loading(folder, items)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.communicate()


def test_a_loading_service_is_alive_but_not_ready(items, tmp_path):
    with loading(tmp_path, items) as service:
        wait_until(service.listens, "it listens")
        status, _, body = service.get("/readyz")
        assert (status, json.loads(body)["ok"]) == (503, False)
        assert re.fullmatch(r"[a-z ]+, [0-9]+ %", json.loads(body)["reason"])
        link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        status, headers, body = ask(link, "POST", "/v1/recommend", '{"user": "ada"}')
        assert (status, json.loads(body)["error"], headers["retry-after"]) == (503, "starting", "1")
        assert headers["cache-control"] == "no-store"
        assert headers["x-request-id"]
        status, headers, body = service.get("/")
        assert (status, headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert "treeward is starting" in body
        assert service.get("/metrics", service.admin_port)[0] == 503
        assert service.get("/livez", Host="evil.example")[0] == 403, "also before it is ready"
        before = link.sock.getsockname()
        service.go()

        def ready():
            assert service.process.poll() is None, service.process.stderr.read()
            return ask(link, "GET", "/readyz")[0] == 200

        wait_until(ready, "it is ready")
        assert ask(link, "POST", "/v1/recommend", '{"user": "ada"}')[0] == 200
        assert link.sock.getsockname() == before, "the connection outlives the start"
        link.close()
        assert service.get("/metrics", service.admin_port)[0] == 200
        assert service.end(signal.SIGTERM)[0] == 0


def test_a_signal_ends_a_loading_service_and_leaves_nothing(items, tmp_path):
    for number, code, told in ((signal.SIGTERM, 0, "stopped"), (signal.SIGINT, 130, "interrupted")):
        folder = tmp_path / str(number)
        folder.mkdir()
        with loading(folder, items) as service:
            wait_until(service.listens, "it listens")
            ended, said = service.end(number)
        assert (ended, told in said) == (code, True), said
        assert "Traceback" not in said
        assert not (folder / "events.db").exists()


def test_an_error_while_loading_ends_the_service_with_its_reason(items, tmp_path):
    with loading(tmp_path, items) as service:
        wait_until(service.listens, "it listens")
        service.go("no such warehouse")
        assert service.process.wait(60) == 2
        said = service.process.stderr.read()
    assert "no such warehouse" in said
    assert "Traceback" not in said
    assert not (tmp_path / "events.db").exists()


def test_a_signal_ends_a_service_that_compiles(items, tmp_path):
    """The compiler cannot be interrupted, so the process ends around it."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    [port] = free_ports(1)
    command = [TREEWARD, "serve", str(items), "--store", str(tmp_path / "events.db"), "--port", str(port),
               "--admin-port", "-1"]  # fmt: skip
    with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:

        def compiles():
            assert process.poll() is None, process.stderr.read()
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                return "compiling, " in ask(link, "GET", "/readyz")[2]
            except ConnectionError:
                return False
            finally:
                link.close()

        wait_until(compiles, "it compiles")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "interrupted" in process.stderr.read()


def test_the_reason_names_the_stage_and_the_share(monkeypatch):
    compiling = CompileProgress()
    monkeypatch.setattr(starting, "compile_progress", compiling)
    made = starting.Starting(Settings(items="x"))
    made.report("reading events", 70, 100)
    assert made.reason == "reading events, 70 %"
    compiling.depth, compiling.done = 1, 32
    assert made.reason == "compiling, 40 %"
    compiling.done = 10_000
    assert made.reason == "compiling, 99 %"
    made.stopped = True
    with pytest.raises(starting.Stopped):
        made.report("reading events", 71, 100)


def test_listening_imports_no_compiler():
    """It would take seconds; `/livez` has to answer within one."""
    told = "import sys, treeward.cli.serve, treeward.serve.server; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "scipy", "polars", "starlette.routing"} & set(modules)
    assert "treeward.serve.protocol" in modules


# --- the manifest's probes, played as a kubelet would ----------------------------------------------------------------


class Probe:
    """One probe of the manifest: when it is due, and how often it failed in a row."""

    def __init__(self, told, port):
        self.path, self.port = told["httpGet"]["path"], port
        self.every, self.patience = told["periodSeconds"], told.get("timeoutSeconds", 1)
        self.most, self.failed, self.passed = told["failureThreshold"], 0, False
        self.due = 0.0

    def run(self, now):
        """Probe, if it is time to; return whether the threshold is reached."""
        if now < self.due:
            return False
        self.due = now + self.every
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
        try:
            self.passed = 200 <= ask(link, "GET", self.path)[0] < 400
        except OSError:
            self.passed = False
        finally:
            link.close()
        self.failed = 0 if self.passed else self.failed + 1
        return self.failed >= self.most


def probes_of(manifest, port):
    [deployment] = [one for one in yaml.safe_load_all(manifest) if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    made = {name: Probe(container[f"{name}Probe"], port) for name in ("startup", "liveness", "readiness")}
    assert (made["startup"].path, made["liveness"].path, made["readiness"].path) == ("/readyz", "/livez", "/readyz")
    return made


def test_the_probes_of_the_manifest_let_a_slow_start_finish(items, tmp_path):
    manifest = (ROOT / "deploy" / "kubernetes.yaml").read_text()
    with loading(tmp_path, items) as service:
        probes = probes_of(manifest, service.port)
        began = time.monotonic()
        while not probes["startup"].passed:  # until then, a kubelet runs no other probe
            assert not probes["startup"].run(time.monotonic()), "it would be restarted"
            if probes["startup"].failed == 2:
                service.go()
            assert service.process.poll() is None
            time.sleep(0.02)
        assert probes["startup"].every * probes["startup"].most >= 300, "reading many events takes minutes"
        assert time.monotonic() - began < probes["startup"].every * probes["startup"].most
        for name in ("liveness", "readiness"):
            assert not probes[name].run(time.monotonic())
            assert probes[name].passed
