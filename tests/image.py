"""Build the image of the Dockerfile and run it as an orchestrator would: `make image`, as root on Debian.

There need not be a Docker engine: buildah reads the Dockerfile, and the container is a chroot. The base image is not
downloaded. A bare Debian with Python takes its name.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.cli.test_warm import COUNTED
from tests.serving import TREEWARD
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".image"
BASE, IMAGE = "localhost/python:3.11-slim", "localhost/treeward"
PORT = 18_000
SETTINGS = f"""
items = "/shop/items.npy"
store = "/data/events.db"
host = "0.0.0.0"
port = {PORT}
admin_port = -1
[[keys]]
name = "shop"
role = "write"
file = "/run/secrets/shop-key"
"""
DECIDES = """
import treeward as tw
from treeward.data.synthetic import synthetic_catalogue

explorer = tw.Explorer(synthetic_catalogue(300, dim=8, seed=0), seed=0)
[made] = explorer.recommend(["ada"])
explorer.feedback({made.id: 1.0})
explorer.recommend(["ada"], 3)
print(compiled)
"""


def say(text):
    sys.stdout.write(f"image: {text}\n")
    sys.stdout.flush()


def buildah(*words, **options):
    store = ["--root", FOLDER / "storage", "--runroot", FOLDER / "run"]
    return subprocess.run(["buildah", *store, *words], check=True, text=True, **options)


def shared():
    """Return options that let pip in the build find packages where pip on this machine does."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    pairs = [line.partition("=")[::2] for line in listed.stdout.splitlines()]
    settings = {name.rpartition(".")[2]: shlex.split(value)[0].split() for name, value in pairs}
    config = FOLDER / "pip.conf"
    config.write_text("\n".join(["[global]", *(f"{name} = {' '.join(value)}" for name, value in settings.items()), ""]))
    places = sorted({place for value in settings.values() for place in value})
    indices = [str(Path(place.removeprefix("file://")).parent) for place in places if place.startswith("file:///")]
    mounts = [f"{place}:{place}:ro" for place in [*places, *indices] if place.startswith("/") and Path(place).exists()]
    return [word for one in [f"{config}:/etc/pip.conf:ro", *mounts] for word in ("--volume", one)]


def build():
    FOLDER.mkdir(exist_ok=True)
    base = FOLDER / "base"
    if not (base / "usr/bin/python").exists():
        say("making a bare Debian with Python ...")
        shutil.rmtree(base, ignore_errors=True)
        packages = "--include=python3,python3-venv,python3-pip,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, "bookworm", base], check=True, stdout=subprocess.DEVNULL
        )
        (base / "usr/bin/python").symlink_to("python3")
    (FOLDER / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    ignored = FOLDER / "ignored"
    ignored.write_text("")
    buildah(
        "bud",
        "--quiet",
        "--isolation",
        "chroot",
        "--ignorefile",
        ignored,
        "--file",
        FOLDER / "Dockerfile",
        "--tag",
        BASE,
        base,
    )
    say("building the Dockerfile ...")
    began = time.monotonic()
    options = ["--isolation", "chroot", "--format", "docker", "--pull-never", "--layers=false", *shared()]
    buildah("bud", "--quiet", *options, "--tag", IMAGE, ROOT)
    say(f"built in {time.monotonic() - began:.0f} s")


class Container:
    """A root that cannot be written to, with the mounts of compose.yaml and the user of the image."""

    def __init__(self, root, image, shop, config, secrets, data):
        self.config = image["config"]
        mounts = [f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}"]
        mounts += [
            f"mount -t tmpfs tmpfs {root}/tmp",
            f"mount -t tmpfs tmpfs {root}/run",
            f"mount --rbind /dev {root}/dev",
        ]
        for place, target in ((shop, "shop"), (config, "config"), (secrets, "run/secrets"), (data, "data")):
            where = f"{root}/{target}"
            mounts.append(f"mkdir -p {where} && mount --bind {place} {where}")
            if target != "data":
                mounts.append(f"mount -o remount,bind,ro {where}")
        user, _, group = self.config["User"].partition(":")
        inside = f'cd {self.config["WorkingDir"]} && exec "$@"'
        env = [*self.config["Env"], "HOME=/nonexistent"]
        drop = (
            f"setpriv --reuid {user} --regid {group} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
        )
        run = f'exec chroot {root} {drop} env -i {shlex.join(env)} sh -c {shlex.quote(inside)} sh "$@"'
        self._script = " && ".join([*mounts, f"mount -t proc proc {root}/proc", run])

    def command(self, *words):
        return ["unshare", "--mount", "sh", "-ec", self._script, "sh", *words]

    def run(self, *words, check=True):
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=check)

    def start(self, log):
        process = subprocess.Popen(self.command(*self.config["Cmd"]), stdout=log, stderr=log)
        try:
            wait_until(lambda: process.poll() is not None or status("/readyz") == 200, "it is ready", 600)
            assert process.poll() is None
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process


def status(path, key=None):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def post(path, body, key):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@contextmanager
def container():
    image = json.loads(buildah("inspect", "--type", "image", IMAGE, capture_output=True).stdout)["Docker"]
    name = buildah("from", "--pull-never", IMAGE, capture_output=True).stdout.strip()
    try:
        root = buildah("mount", name, capture_output=True).stdout.strip()
        for folder in ("shop", "config"):  # an engine makes the folders that it mounts
            Path(root, folder).mkdir()
        with tempfile.TemporaryDirectory() as place:
            folders = [Path(place, one) for one in ("shop", "config", "secrets", "data")]
            for folder in folders:
                folder.mkdir()
            np.save(folders[0] / "items.npy", np.random.default_rng(0).standard_normal((2_000, 16), dtype=np.float32))
            (folders[1] / "settings.toml").write_text(SETTINGS)
            subprocess.run(
                [TREEWARD, "key", "new", "shop", "--out", folders[2] / "shop-key"], check=True, capture_output=True
            )
            (folders[2] / "shop-key").chmod(0o444)
            os.chown(folders[3], *map(int, image["config"]["User"].split(":")))
            yield Container(root, image, *folders), root, (folders[2] / "shop-key").read_text().strip(), folders[3]
    finally:
        buildah("rm", name, capture_output=True)


def check():
    with container() as (made, root, key, data), tempfile.TemporaryFile("w+") as log:
        size = int(
            subprocess.run(["du", "-sm", f"{root}/opt"], capture_output=True, text=True, check=True).stdout.split()[0]
        )
        say(f"/opt of the image has {size} MB")
        assert made.run("id", "-u").stdout.strip() == "10001"
        for path in ("/opt/treeward/x", "/x", "/shop/x", "/config/x", "/run/secrets/x"):
            assert made.run("touch", path, check=False).returncode != 0, path
        sound = json.loads(made.run("treeward", "doctor", "--json").stdout)
        assert sound["sound"], sound
        assert made.run("python", "-c", COUNTED + DECIDES).stdout.splitlines()[-1] == "[]", "kernels are compiled again"
        say("read-only root, uid 10001, nothing is compiled")
        began = time.monotonic()
        process = made.start(log)
        try:
            say(f"ready after {time.monotonic() - began:.1f} s")
            test = made.config["Healthcheck"]["Test"]
            assert test[0] == "CMD"
            health = [word.replace("127.0.0.1:8000/", f"127.0.0.1:{PORT}/") for word in test[1:]]
            made.run(*health)
            assert (status("/v1/about"), status("/v1/about", key)) == (401, 200)
            shown = post("/v1/recommend", {"user": "ada", "n": 3}, key)["items"]
            reward = {"decision_id": shown[0]["decision_id"], "reward": 1}
            assert post("/v1/feedback", reward, key)["duplicate"] is False
            process.send_signal(signal.SIGKILL)
            assert process.wait(30) == -signal.SIGKILL
            process = made.start(log)
            assert post("/v1/feedback", reward, key)["duplicate"] is True
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        except BaseException:
            log.seek(0)
            say(log.read())
            raise
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read()
        assert "everything is on disk" in said, said
        assert key not in said
        assert made.run(*health, check=False).returncode != 0
        assert sorted(path.name for path in data.iterdir())[0] == "events.db"
        say("health check, keys from a file, kill -9 and SIGTERM: nothing was lost")


if __name__ == "__main__":
    missing = [name for name in ("debootstrap", "buildah", "unshare", "setpriv") if shutil.which(name) is None]
    if os.geteuid() or missing:
        sys.exit(
            f"make image needs root on Debian with debootstrap and buildah; missing: {', '.join(missing) or 'root'}"
        )
    build()
    check()
