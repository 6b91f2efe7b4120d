"""Measure how long a program waits before treeward does anything, in separate processes.

    python benchmarks/startup.py [TIMES]

First imports and `treeward --help`: the baselines of the same run, taken in turn with the rest, are an empty program,
`import numpy`, and for `--help` a command line of two commands that do nothing, made with the same library. Then the
compile budget: CPU seconds, over all processes, of programs that find no compiled kernels (`--compile`: that alone).
"""

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

SMALLEST = (
    "import typer; app = typer.Typer(); app.command('a')(lambda: 0); app.command('b')(lambda: 0); app(['--help'])"
)
TREEWARD = Path(sys.executable).with_name("treeward")
PROGRAMS = {
    "an empty program": [sys.executable, "-c", "pass"],
    "import numpy": [sys.executable, "-c", "import numpy"],
    "the smallest --help": [sys.executable, "-c", SMALLEST],
    "import treeward": [sys.executable, "-c", "import treeward"],
    "treeward.Catalogue": [sys.executable, "-c", "import treeward; treeward.Catalogue"],
    "treeward.Explorer": [sys.executable, "-c", "import treeward; treeward.Explorer"],
    "treeward --version": [str(TREEWARD), "--version"],
    "treeward --help": [str(TREEWARD), "--help"],
}
MOST = {"import treeward": ("import numpy", 0.5), "treeward --help": ("the smallest --help", 3.0)}
"""The most times as long as another takes, both without the empty program's time."""

LINES = (Path(__file__).parent.parent / "README.md").read_text().split("```python\n")[1].split("```")[0]
SIMULATED = """
import treeward as tw
world = tw.World.synthetic(items=1_000, users=5, dim=16, seed=0)
for policy in (tw.HCB(), tw.PHCB()):
    tw.simulate(policy, world, rounds=10)
"""
FIRST = """
import numpy as np, treeward as tw
tw.Explorer(tw.Catalogue(range(500), np.random.default_rng(0).standard_normal((500, 32)))).recommend(["ada"])
"""
BUDGET = {
    "README's lines": ([sys.executable, "-c", LINES], 20),
    "a simulation of HCB and pHCB": ([sys.executable, "-c", SIMULATED], 25),
    "everything: treeward warm": ([str(TREEWARD), "warm"], 50),
}
"""Programs that find nothing compiled, and the CPU seconds each may take."""
AGAIN = 1.0
"""Seconds to the first recommendation of a process that finds everything compiled."""


def seconds(times: int) -> dict[str, float]:
    """Return how long each program takes: the median, in turn, after one run that warms the disk's cache."""
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for turn in range(times + 1):
        for name, words in PROGRAMS.items():
            start = perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            if turn:
                taken[name].append(perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}


def slowest(statement: str, count: int = 6) -> list[tuple[float, str]]:
    """Return the modules that took longest to import, themselves alone, in milliseconds."""
    words = [sys.executable, "-X", "importtime", "-c", statement]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stderr.splitlines()[1:]
    cells = [line.removeprefix("import time:").split("|") for line in lines if line.startswith("import time:")]
    return sorted(((int(own) / 1e3, name.strip()) for own, _, name in cells), reverse=True)[:count]


def compiling() -> list[str]:
    """Print what programs take that find nothing compiled, and return those over their budget."""
    missed = []
    for name, (words, most) in BUDGET.items():
        with tempfile.TemporaryDirectory() as folder:
            told = {**os.environ, "NUMBA_CACHE_DIR": folder}
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
            subprocess.run(words, check=True, capture_output=True, env=told, cwd=folder)
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter() - start
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"{name}: {cpu:.1f} CPU s (at most {most}), {wall:.1f} s")
            missed += [name] if cpu > most else []
            if words[-1] != LINES:
                continue
            again = []
            for _ in range(4):
                start = perf_counter()
                subprocess.run([sys.executable, "-c", FIRST], check=True, env=told, cwd=folder)
                again.append(perf_counter() - start)
            print(f"a second process, to its first recommendation: {min(again):.2f} s (at most {AGAIN})")
            missed += ["a second process"] if min(again) > AGAIN else []
    return missed


def main() -> int:
    if sys.argv[1:] == ["--compile"]:
        return len(compiling()) > 0
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    taken = seconds(times)
    empty = taken["an empty program"]
    numpy = taken["import numpy"] - empty
    print(f"{platform.machine()}, Python {platform.python_version()}, median of {times}")
    for name, value in taken.items():
        print(f"{name:20} {1e3 * value:7.0f} ms  {value / empty:5.1f} x empty  {(value - empty) / numpy:5.2f} x numpy")
    for statement in ("import treeward.cli", "import treeward; treeward.Explorer"):
        told = ", ".join(f"{name} {value:.0f}" for value, name in slowest(statement))
        print(f"{statement}: slowest (ms): {told}")
    missed = []
    for name, (base, most) in MOST.items():
        ratio = (taken[name] - empty) / (taken[base] - empty)
        print(f"{name}: {ratio:.2f} x {base} (at most {most})")
        missed += [name] if ratio > most else []
    missed += compiling()
    print(f"MISSED: {', '.join(missed)}" if missed else "all within their bounds")
    return len(missed) > 0


if __name__ == "__main__":
    sys.exit(main())
