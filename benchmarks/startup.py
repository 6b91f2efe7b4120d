"""How long a program waits before treeward does anything: imports and `treeward --help`, in processes of their own.

    python benchmarks/startup.py [TIMES]

The baselines of the same run, taken in turn with the rest, are an empty program, `import numpy`, and for `--help` a
command line of two commands that do nothing, made with the same library.
"""

import platform
import statistics
import subprocess
import sys
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
"""At most so many times as long as another takes, both beyond the empty program."""


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


def main() -> int:
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
    print(f"MISSED: {', '.join(missed)}" if missed else "all within their bounds")
    return len(missed) > 0


if __name__ == "__main__":
    sys.exit(main())
