"""`treeward doctor`, on machines that lack this or that."""

import json
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from treeward.cli import doctor
from treeward.cli.app import app
from treeward.cli.doctor import EXTRAS, packages

TREEWARD = Path(sys.executable).with_name("treeward")


@pytest.fixture
def lacking(monkeypatch):
    """Return a function after which some packages are not installed, or of another version."""

    def lack(**versions):
        known = metadata.version

        def version(name):
            found = versions.get(doctor._plain(name).replace("-", "_"), "")
            if found is None:
                raise metadata.PackageNotFoundError(name)
            return found or known(name)

        monkeypatch.setattr(doctor.metadata, "version", version)

    return lack


def asked(*words):
    done = CliRunner().invoke(app, ["doctor", *words], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_here_all_is_well():
    done = subprocess.run([TREEWARD, "doctor", "--json"], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert done.returncode == 0, told
    assert told["sound"]
    assert told["cores"] >= 1
    assert {one["name"] for one in told["packages"]} >= {
        "numpy",
        "typer",
        "torch",
        "psycopg-binary",
        "grpcio",
        "uvloop",
    }
    assert list(told["extras"]) == list(EXTRAS)
    assert [one["name"] for one in told["checks"]] == ["an explorer decides and learns", "a store keeps events on disk"]
    assert all(one["fine"] and one["seconds"] >= 0 for one in told["checks"])
    assert told["kernels"]["folder"].endswith("__pycache__")
    assert told["temp"]["free"] > 0


def test_no_extra_is_ever_imported():
    code = (
        "import sys; from treeward.cli.doctor import examine; told = examine(); assert told.sound;"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "ray", "uvicorn", "httpx", "psycopg", "implicit", "sentence_transformers", "matplotlib", "plotly"}
    assert not heavy & set(done.stdout.split())


def test_missing_extras_are_told_with_the_way_to_get_them(lacking):
    lacking(torch=None, uvloop=None, uvicorn="0.30.1", psycopg=None, grpcio=None, implicit=None)
    code, out = asked()
    assert code == 0
    assert "extra train: lacks torch: pip install 'treeward[train]' -c " in out
    assert "extra serve: lacks uvicorn, uvloop: pip install 'treeward[serve]'" in out
    assert "extra postgres: lacks psycopg: pip install 'treeward[postgres]'" in out
    assert "extra ray: lacks grpcio: pip install 'treeward[ray]'" in out
    assert "extra als: lacks implicit: pip install 'treeward[als]'" in out
    assert "too old or other" in next(line for line in out.splitlines() if line.strip().startswith("uvicorn"))
    assert "GPU: not looked for: only the extra train would use one" in out
    assert out.splitlines()[-1] == "sound"


@pytest.mark.parametrize(("version", "state"), [(None, "missing"), ("1.9.4", "too old or other")])
def test_a_base_that_lacks_something_is_not_sound(lacking, version, state):
    lacking(scipy=version)
    code, out = asked()
    assert code == 1
    assert state in next(line for line in out.splitlines() if line.strip().startswith("scipy"))
    assert "not sound" in out
    code, out = asked("--json")
    assert code == 1
    assert json.loads(out)["sound"] is False


def test_no_temporary_folder_at_all_is_told(monkeypatch):
    def none():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", none)
    told = doctor.examine()
    assert told.temp == {"folder": "none that can be written", "free": None}


def test_a_store_that_cannot_be_opened_is_told(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    code, out = asked()
    assert code == 1
    assert "FAILS: a store keeps events on disk (FileNotFoundError" in out
    assert "temporary files: /proc/nowhere, unknown free" in out
    assert "works: an explorer decides" in out


def test_an_explorer_that_fails_is_told_in_a_line(monkeypatch):
    monkeypatch.setattr("treeward.explorer.explorer.Explorer.recommend", lambda *_: 1 / 0)
    code, out = asked()
    assert code == 1
    assert "FAILS: an explorer decides and learns (ZeroDivisionError: division by zero;" in out


def test_kernels_that_are_not_kept_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "kernels", lambda: {"folder": None, "writable": False, "compiled": False})
    assert "nowhere to keep them: every process compiles again" in asked()[1]
    monkeypatch.setattr(doctor, "kernels", lambda: {"folder": str(tmp_path), "writable": False, "compiled": False})
    assert f"not there yet: the first decision takes half a minute ({tmp_path}, which cannot be written)" in asked()[1]


@pytest.mark.parametrize(
    ("version", "told"),
    [("2.13.0+cpu", "torch 2.13.0+cpu is built for the CPU"), ("2.13.0", "torch 2.13.0"), (None, "not looked for")],
)
def test_gpus(lacking, version, told):
    lacking(torch=version)
    assert told in doctor._gpu()


def test_not_installed_as_a_package(monkeypatch):
    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", nothing)
    assert packages() == []
    assert "packages: unknown" in asked()[1]


@pytest.mark.parametrize(
    ("installed", "sign", "version", "fine"),
    [
        ("2.13.0+cpu", "==", "2.13.0", True),
        ("2.13.1", "==", "2.13.0", False),
        ("2.10.0", ">=", "2.9", True),
        ("2.9", ">=", "2.10", False),
        ("3.0rc1", ">=", "2.1", True),
        ("1", None, None, True),
    ],
)
def test_versions_are_compared_as_numbers(installed, sign, version, fine):
    assert doctor._suits(installed, sign, version) is fine


@pytest.mark.parametrize(
    ("marker", "elsewhere"),
    [
        (f'sys_platform != "{sys.platform}"', True),
        (f"sys_platform == '{sys.platform}' and extra == 'serve'", False),
        ('python_version < "3.11"', True),
        ('python_version >= "3.11"', False),
        ('implementation_name == "pypy"', True),
        ("", False),
    ],
)
def test_requirements_of_other_systems_are_passed_over(marker, elsewhere):
    assert doctor._elsewhere(marker) is elsewhere
