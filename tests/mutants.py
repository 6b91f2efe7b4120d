"""How much the tests notice: change one thing in the source, run the tests of the changed line, see whether one fails.

`make mutants` does it. cosmic-ray makes the changes (an operator, a number, a condition, a loop, a decorator), a sample
of them is taken, and kernels are interpreted. Which tests run which line, and how long each takes, is read from what
the last `make coverage` left.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, zip_longest
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
PACKAGES = ("bandit", "policy", "state", "store")
KERNELS = {"kernel", "summing_kernel", "tight", "tight_summing", "apart", "apart_summing", "inner", "inner_apart",
           "inner_apart_summing"}  # fmt: skip
SECONDS = 40  # of tests a mutant may take, beyond what it takes to import them


class Mutant(NamedTuple):
    """One change: where, what kind, and which of its kind in the file."""

    path: str
    operator: str
    occurrence: int
    code: str
    line: int


class Stripped(ast.NodeTransformer):
    """Source without what does not run, or not where kernels are interpreted: annotations, docstrings, decorators."""

    def visit_AnnAssign(self, node):
        value = node.value or ast.Constant(None)
        return ast.Assign([node.target], self.visit(value), lineno=0)

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        node.decorator_list = [one for one in node.decorator_list if ast.unparse(one) not in KERNELS]
        return self.generic_visit(node)

    def visit_Expr(self, node):
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def meaning(code):
    """Return what a module does, to be compared."""
    return ast.dump(Stripped().visit(ast.parse(code)))


def places(path):
    """Yield every change that cosmic-ray knows for a file: which operator, and which of its places."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast((ROOT / path).read_text())))
    for name in operator_names():
        kind = get_operator(name)
        if not kind.arguments() and "NoOp" not in name:
            count = sum(len(list(kind().mutation_positions(node))) for node in nodes)
            yield from ((path, name, occurrence) for occurrence in range(count))


def made(path, name, occurrence):
    """Return a mutant, or none where what runs is the same."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    was = (ROOT / path).read_text()
    code = mutate_code(was, get_operator(name)(), occurrence)
    try:
        if code is None or meaning(code) == meaning(was):
            return None
    except SyntaxError:
        return None
    line = next(row for row, (a, b) in enumerate(zip_longest(was.splitlines(), code.splitlines()), 1) if a != b)
    return Mutant(path, name, occurrence, code, line)


class Tests:
    """Which tests run a line, and how long each takes."""

    def __init__(self, folder):
        self.data = CoverageData(str(folder / ".coverage"))
        self.data.read()
        self.seconds = json.loads((folder / "durations.json").read_text())

    def of(self, mutant):
        """Return the tests of a line that fit into the time, the quickest first; if it runs on import, the file's."""
        lines = self.data.contexts_by_lineno(str(ROOT / mutant.path))
        names = self._known(lines.get(mutant.line, ())) or self._known(chain.from_iterable(lines.values()))
        chosen, left = [], SECONDS
        for name in sorted(names, key=lambda name: self.seconds[name]):
            left -= self.seconds[name]
            if left < 0 and chosen:
                break
            chosen.append(name)
        return chosen

    def _known(self, contexts):
        return {name for one in contexts if (name := one.split("|")[0]) in self.seconds}


def survives(mutant, tests, seconds, folder):
    """Tell whether the tests pass all the same, in about the time they take."""
    target = folder / mutant.path
    was = target.read_text()
    target.write_text(mutant.code)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests],
            cwd=folder, env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(folder / "src")},
            capture_output=True, text=True, check=False, timeout=30 + 2 * seconds,
        )  # fmt: skip
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_text(was)


def difference(mutant):
    """Return the changed line, as it was and as it is."""
    before, after = (
        (text.splitlines()[mutant.line - 1 :] or [""])[0].strip()
        for text in ((ROOT / mutant.path).read_text(), mutant.code)
    )
    return f"{mutant.path}:{mutant.line}\n  - {before}\n  + {after}"


def main():
    """Take a sample, try it, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of the path")
    parser.add_argument("--out", type=Path, default=ROOT / "mutants.json")
    options = parser.parse_args()
    tests = Tests(ROOT)
    paths = [
        str(path.relative_to(ROOT)) for one in PACKAGES for path in sorted((ROOT / "src/treeward" / one).rglob("*.py"))
    ]
    every = [place for path in paths if options.only in path for place in places(path)]
    random.Random(options.seed).shuffle(every)
    sample = list(islice((mutant for place in every if (mutant := made(*place))), options.count))
    print(f"{len(every):,} changes are possible, {len(sample)} are tried", flush=True)
    with tempfile.TemporaryDirectory() as spot:
        folders = Queue()
        for job in range(options.jobs):
            shutil.copytree(
                ROOT, Path(spot) / str(job), ignore=shutil.ignore_patterns(".*", "__pycache__", "site", "*-out")
            )
            folders.put(Path(spot) / str(job))

        def trial(mutant):
            folder, chosen, start = folders.get(), tests.of(mutant), time.time()
            try:
                lived = not chosen or survives(mutant, chosen, sum(map(tests.seconds.get, chosen)), folder)
            finally:
                folders.put(folder)
            where = difference(mutant)
            print(
                f"\nnot noticed: {where} ({len(chosen)} tests)" if lived else ".", end="\n" if lived else "", flush=True
            )
            return {"where": where, "operator": mutant.operator, "tests": len(chosen),
                    "seconds": round(time.time() - start, 1), "survived": lived}  # fmt: skip

        with ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(trial, sample))
    options.out.write_text(json.dumps({"seed": options.seed, "possible": len(every), "results": results}, indent=1))
    lived = [one for one in results if one["survived"]]
    print(f"\n{len(results) - len(lived)} of {len(results)} noticed: {1 - len(lived) / len(results):.1%}")
    return len(lived) > 0.15 * len(results)


if __name__ == "__main__":
    sys.exit(main())
