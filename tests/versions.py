"""The quick part of the tests with other versions of what treeward needs, each in an environment of its own.

    make versions
    make versions SETS="lowest tested" PYTHON=python3.13

`lowest` has the lowest versions that pyproject.toml allows, `newest` the newest ones, `tested` those of
constraints.txt. Environments are below .versions/. torch and Ray are not installed, and no database is needed.
"""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".versions"
UV = HOME / "uv" / "bin" / "uv"
EXTRAS = ("serve", "postgres", "als")
TOOLS = ("pytest", "hypothesis", "pyyaml")
SETS = {
    "lowest": ("--resolution", "lowest-direct"),
    "newest": ("--resolution", "highest"),
    "tested": ("--constraints", "constraints.txt"),
}
QUICK = (
    "tests/test_package.py",
    "tests/core/test_artefact.py",
    "tests/core/test_checks.py",
    "tests/core/test_compiled.py",
    "tests/core/test_locks.py",
    "tests/core/test_parallel.py",
    "tests/core/test_rng.py",
    "tests/cli/test_options.py",
    "tests/data/test_catalogue.py",
    "tests/data/test_loaders.py",
    "tests/data/test_tables.py",
    "tests/tree/test_draw.py",
    "tests/tree/test_item_tree.py",
    "tests/store/test_parquet.py",
    "tests/store/test_sqlite.py",
    "tests/explorer/test_explorer.py",
    "tests/serve/test_client.py",
    "tests/serve/test_service.py",
)
"""Something of every layer, some minutes in all: files in every format, kernels, pages, the service."""


def environment(name: str) -> Path:
    """Set up an environment with one set of versions, print what it holds, and return its Python."""
    place = HOME / f"{name}-{platform.python_version()}"
    wanted = HOME / f"{place.name}.txt"
    extras = (part for extra in EXTRAS for part in ("--extra", extra))
    uv("pip", "compile", "pyproject.toml", *extras, *SETS[name], "--python", sys.executable, "--no-header",
       "--no-annotate", "--output-file", wanted, "--upgrade")  # fmt: skip
    uv("venv", "--clear", "--python", sys.executable, place)
    python = place / "bin" / "python"
    uv("pip", "install", "--python", python, "--requirements", wanted)
    uv("pip", "install", "--python", python, "--constraints", "constraints.txt", *TOOLS)
    uv("pip", "install", "--python", python, "--no-deps", "--editable", ".")
    named = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    held = [line for line in wanted.read_text().splitlines() if line.partition("==")[0] in named]
    print(f"{place.name}: {' '.join(held)}", flush=True)
    return python


def uv(*words: str | Path) -> None:
    subprocess.run([UV, *words, "--quiet"], cwd=ROOT, check=True)


def tried(name: str) -> bool:
    """Run the tests with one set of versions, with kernels of their own, and return whether they pass."""
    python = environment(name)
    kernels = HOME / f"{python.parents[1].name}-kernels"
    set_up = {"PYTHONPATH": str(ROOT / "src"), "NUMBA_CACHE_DIR": str(kernels), "PATH": f"{python.parent}:{os.defpath}"}
    start = time.monotonic()
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICK], cwd=ROOT, env=os.environ | set_up, check=False
    )
    print(f"{python.parents[1].name}: status {done.returncode} after {time.monotonic() - start:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    asked = sys.argv[1:] or ["lowest", "newest"]
    unknown = [name for name in asked if name not in SETS]
    if unknown:
        sys.exit(f"versions: SETS must be of {', '.join(SETS)}, got {', '.join(unknown)}")
    sys.exit(0 if all([tried(name) for name in asked]) else 1)
