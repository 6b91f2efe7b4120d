"""Compare treeward with its peers: ``python benchmarks/peers.py [--quick] [--stream RUN] [--write PAGE]``.

The first run needs package registries: every peer is installed in an environment of its own (``.peers/NAME``; versions
are in ``benchmarks/peers.txt``). Every side then runs in its own interpreter, one after the other, one decision at a
time. A side that fails, or needs more than ``--limit`` seconds for a size, is reported so, and not run on larger ones.

**The task.** A synthetic world of clear tastes (`treeward.simulate.synthetic.vivid`): N items with vectors of 32
dimensions and length 1, 50 new users, 200 rounds. A round shows each user one item out of the whole catalogue, and the
user clicks with a probability that depends on the vector. Items may repeat. All sides get the same users with the same
random numbers. The result is the expected clicks of the items shown. It is the job treeward was made for, and not what
most peers were made for: a user's taste has to be found from their own clicks, among many items without any clicks.
LinUCB has alpha 0.5 everywhere; Vowpal Wabbit's exploration was chosen on another world (seed 1, 1,000 items).
Libraries whose bandit cannot use item vectors run as documented and, where possible, the other way round
(`side/bandits.py`). Those that cannot look at all items in time choose among 50 drawn items, as their users must. The
sides that fit models to logs (implicit, treeward's population prior) also get a log of 1,000 earlier users who were
shown 100 random items each. gorse and metarank are servers in Go and Scala and in no registry of Python, npm or Debian
packages; they are named, and not run.

**The stream.** A shop from its first day (`treeward experiment stream`): users arrive over 20 days, most of them a few
times, and every visit shows an item that the user has not seen. It runs in a synthetic world of 5,000 items with 1,000
users; ``--stream RUN`` runs only the seeds of a finished run. Vowpal Wabbit and mabwiser choose among 50 drawn
items and get feedback at once; treeward's arms get it in batches of 50 visits.

**Off-policy evaluation**, the job of Open Bandit Pipeline: both estimate the same policy from the same log.

Prints the tables as Markdown; writes bench-out/peers/peers.json (versions, seeds, settings, machine, reward by user).
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "side"))
from task import Task  # noqa: E402

import treeward as tw  # noqa: E402
from treeward.experiment.stream import Stream, Streamed, load_stream, open_setup, run_stream  # noqa: E402
from treeward.experiment.stream_arms import CROWD  # noqa: E402
from treeward.experiment.stream_report import size_of  # noqa: E402
from treeward.experiment.stream_summary import arm_summaries, gap  # noqa: E402
from treeward.experiment.summary import interval_text  # noqa: E402
from treeward.simulate.random_log import random_log  # noqa: E402
from treeward.simulate.synthetic import vivid  # noqa: E402

ENVIRONMENTS = Path(".peers")
OUT = Path("bench-out/peers")
SIZES = (1_000, 10_000, 100_000)
EARLIER, SHOWN = 1_000, 100
Result = dict[str, Any]


class Side(NamedTuple):
    """A row of the table."""

    name: str
    how: str
    environment: str
    """Its folder in `.peers`; empty: treeward's own."""
    arm: str


SIDES = (
    Side("chance", "any item", "", "ours:Chance"),
    Side("oracle", "each user's best item", "", "ours:Oracle"),
    Side("treeward", "Beam", "", "ours:Treeward"),
    Side("treeward", "pHCB, 50 scores", "", "ours:PHCB"),
    Side("treeward", "exact LinUCB, every item", "", "ours:Exact"),
    Side("treeward", "Beam, prior from the log", "", "ours:Primed"),
    Side("Vowpal Wabbit", "SquareCB, every item", "vw", "vw:Wabbit"),
    Side("Vowpal Wabbit", "large action space, every item", "vw", "vw:Large"),
    Side("Vowpal Wabbit", "SquareCB, 50 drawn items", "vw", "vw:Shortlisted"),
    Side("mabwiser", "LinUCB, one arm per item", "mabwiser", "bandits:MabwiserItems"),
    Side("mabwiser", "LinUCB, one model per user", "mabwiser", "bandits:MabwiserUsers"),
    Side("contextualbandits", "LinUCB, one arm per item", "contextualbandits", "bandits:ContextualItems"),
    Side("contextualbandits", "LinUCB, one model per user", "contextualbandits", "bandits:ContextualUsers"),
    Side("river", "Bayesian regression, 50 drawn items", "river", "bandits:River"),
    Side("obp", "LinUCB, one arm per item", "obp", "bandits:OpenBandit"),
    Side("RePlay", "LinUCB, one arm per item, fitted every 50 rounds", "replay", "factors:RePlay"),
    Side("implicit", "ALS from the log, clicks folded in", "implicit", "factors:ALS"),
)
STREAM_SIDES = (
    Side("Vowpal Wabbit", "SquareCB, 50 drawn items", "vw", "vw:Visited"),
    Side("Vowpal Wabbit", "SquareCB, large action space, 50 drawn items", "vw", "vw:VisitedLarge"),
    Side("mabwiser", "LinUCB, one model of all users, 50 drawn items", "mabwiser", "bandits:MabwiserVisited"),
)
NOT_RUN = {
    "gorse": "a server in Go; PyPI and npm carry clients only, Debian nothing",
    "metarank": "a server in Scala; on neither PyPI, npm nor Debian",
}


def export(items: int, users: int, rounds: int, seed: int) -> Task:
    """Make a world and what every side needs to know of it."""
    world = tw.World(*vivid(items=items, users=users + EARLIER, dim=32, seed=seed))
    chances = np.array([world.probabilities(user) for user in range(users)])
    coins = np.random.default_rng(seed).uniform(size=(users, rounds))
    table = random_log(world, range(users, users + EARLIER), shown=SHOWN, seed=seed).table
    log = np.stack([table[name].to_numpy().astype(np.int64) for name in ("user", "item", "reward")], axis=1)
    vectors = world.catalogue.vectors
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)  # treeward does so by itself; LinUCB gains by it
    return Task(unit, chances, coins, log, seed)


def export_log(folder: Path, seed: int, decisions: int = 10_000, items: int = 200, users: int = 100) -> None:
    """Write a log with known propensities, and a policy to judge: softmax of what users think, by a rough model."""
    random = np.random.default_rng(seed)
    world = tw.World(*vivid(items=items, users=users, dim=32, seed=seed))
    chances = np.array([world.probabilities(user) for user in range(users)], dtype=np.float64)
    model = np.clip(chances + random.normal(0, 0.05, chances.shape), 0, 1)
    target, logging = (_softmax(warmth * model) for warmth in (8.0, 3.0))
    who = np.repeat(np.arange(users), decisions // users)
    rows = np.array([random.choice(items, p=logging[user]) for user in who])
    rewards = (random.uniform(size=len(who)) < chances[who, rows]).astype(np.float64)
    folder.mkdir(parents=True, exist_ok=True)
    told = {"user": who, "row": rows, "propensity": logging[who, rows], "reward": rewards}
    np.savez(folder / "log.npz", **told, target=target, model=model)


def make_stream(folder: Path, seed: int, items: int, users: int) -> None:
    """Run treeward's arms through a stream in a synthetic world, unless it was done."""
    world = folder.with_name(f"{folder.name}-world")
    tw.World.synthetic(items=items, users=2 * users, dim=32, seed=seed).save(world, overwrite=True)
    run_stream(Stream(str(world), vectors="own", users=users, repeats=1, seed=seed), folder)


def export_stream(run: Path, folder: Path, repeat: int = 0) -> Streamed:
    """Write one seed of a finished stream for the other sides; return what treeward's arms made of it."""
    streamed = load_stream(run)
    spec, stage = open_setup(str(run))
    visits = spec.arrivals(len(stage.users), stage.items, repeat)
    coins = np.ones((len(stage.users), int(visits.visit.max())))
    coins[visits.user, visits.visit - 1] = visits.luck
    chances = np.array([stage.world.probabilities(int(user)) for user in stage.users])
    vectors = stage.world.catalogue.vectors
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    Task(unit, chances, coins, np.zeros((0, 3), dtype=np.int64), spec.seed).save(folder)
    np.save(folder / "visits.npy", visits.user.astype(np.int64))
    return streamed._replace(
        spec=replace(spec, repeats=1),
        visits=streamed.visits.filter(repeat=repeat),
        cells=streamed.cells.filter(repeat=repeat),
    )


def stream_peers(
    folder: Path, limit: float, absent: dict[str, str], wanted: set[str], sides: Sequence[Side] = STREAM_SIDES
) -> dict[str, Result]:
    """Run the peers through an exported stream."""
    told = {}
    for side in sides:
        key = f"{side.name}, {side.how}"
        if side.environment not in wanted:
            continue
        if absent.get(side.environment):
            told[key] = {"failed": absent[side.environment]}
            continue
        out = (OUT / "result.json").absolute()
        arguments = [side.arm, str(folder.absolute()), str(out), str(limit)]
        told[key] = run(side.environment, "stream.py", arguments, out, 3 * limit + 60)
        print(f"{key}: {told[key]}", flush=True)
    return told


def play_stream(run: Path, limit: float, absent: dict[str, str], wanted: set[str], sides: Sequence[Side]) -> None:
    """Run the peers through every seed of a finished stream, and print them next to treeward's arms."""
    streamed = load_stream(run)
    told = []
    for repeat in range(streamed.spec.repeats):
        ours = export_stream(run, OUT / "visits", repeat).visits.filter(arm=CROWD)["click"].mean()
        told.append(stream_peers(OUT / "visits", limit, absent, wanted, sides))
        for one in told[-1].values():
            one["less"] = ours - one["clicks"] if ours is not None and "clicks" in one else None
    means = {key: average([one[key] for one in told]) for key in told[0]}
    print(stream_table(streamed, means))


def average(seeds: list[Result]) -> Result:
    """Return the mean over seeds, or the first seed that did not make it."""
    if lost := [one for one in seeds if "clicks" not in one]:
        return lost[0]
    means: Result = {name: float(np.mean([one[name] for one in seeds])) for name in ("clicks", "last", "each")}
    less = [one["less"] for one in seeds if one["less"] is not None]
    gap = [float(np.mean(less)), half_of(less)] if less else None
    return means | {"half": half_of([one["clicks"] for one in seeds]), "gap": gap}


def half_of(values: list[float]) -> float | None:
    """Return half of a 95 % interval of a mean over seeds, by Student's t."""
    count = len(values)
    return float(stdtrit(count - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else None


def stream_table(streamed: Streamed, told: dict[str, Result]) -> str:
    """Return the stream as Markdown: treeward's arms, then the peers."""
    lines = [["", "clicks per visit", "last third", "the default minus it", "time per visit"], ["---"] * 5]
    for line in arm_summaries(streamed):
        rate = interval_text(line.clicks.mean, line.clicks.half, ".3f")
        more = gap(streamed, CROWD, line.arm) if line.arm != CROWD and CROWD in streamed.spec.arms else None
        less = interval_text(more.mean, more.half, "+.3f") if more else ""
        lines.append([line.arm, rate, f"{line.last.mean:.3f}", less, duration(line.microseconds / 1e6)])
    for key, result in told.items():
        if "clicks" in result:
            rate = interval_text(result["clicks"], result.get("half"), ".3f")
            less = interval_text(*result["gap"], "+.3f") if result.get("gap") else ""
            lines.append([key, rate, f"{result['last']:.3f}", less, duration(result["each"])])
        else:
            slow = f"too slow, {duration(result['each'])}" if "gave_up" in result else "-"
            lines.append([key, slow, "", "", ""])
    notes = [f"not run: {key}: {one['failed']}" for key, one in told.items() if "failed" in one]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + ["", size_of(streamed), *notes])


def _softmax(scores: np.ndarray) -> np.ndarray:
    made = np.exp(scores - scores.max(axis=1, keepdims=True))
    return made / made.sum(axis=1, keepdims=True)


def recipes(text: str) -> dict[str, list[list[str]]]:
    """Return for every environment the lists of arguments that pip is called with."""
    made: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        name, *what = line.split()[:] or [""]
        if name and not name.startswith("#"):
            made.setdefault(name, []).append(what)
    return made


def install(name: str, steps: list[list[str]]) -> str:
    """Make the environment unless it is there; return why it could not be."""
    folder = ENVIRONMENTS / name
    done, wanted = folder / "done", json.dumps(steps)
    if done.exists() and done.read_text() == wanted:
        return ""
    print(f"installing {name} ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    calls = [[sys.executable, "-m", "venv", str(folder)]]
    calls += [[str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *step] for step in steps]
    for call in calls:
        made = subprocess.run(call, capture_output=True, text=True, check=False)
        if made.returncode:
            return f"not installed: {_last(made.stderr)}"
    done.write_text(wanted)
    return ""


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1][:120] if lines else "no word of why"


def run(environment: str, script: str, arguments: list[str], out: Path, limit: float) -> Result:
    """Run a script of `side/` in an environment; an error is part of the result."""
    python = ENVIRONMENTS / environment / "bin/python" if environment else Path(sys.executable)
    out.unlink(missing_ok=True)
    settings = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # the matrices are small, and implicit asks for it
    call = [str(python.absolute()), str(HERE / "side" / script), *arguments]
    try:
        made = subprocess.run(call, capture_output=True, text=True, check=False, timeout=limit, env=settings, cwd=OUT)
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {limit:.0f} s"}
    except OSError as error:
        return {"failed": str(error)}
    if made.returncode or not out.exists():
        return {"failed": _last(made.stderr)}
    return dict(json.loads(out.read_text()))


def compare(sides: list[Side], tasks: dict[int, Path], limit: float, absent: dict[str, str]) -> dict[str, Result]:
    """Run every side on every size, from the smallest, until it fails or takes too long."""
    told: dict[str, Result] = {}
    for side in sides:
        dropped = absent.get(side.environment, "")
        for items, folder in tasks.items():
            key = f"{side.name}, {side.how}"
            if dropped:
                told.setdefault(key, {})[str(items)] = {"failed": dropped}
                continue
            begun = time.perf_counter()
            arguments = [side.arm, str(folder), str((OUT / "result.json").absolute()), str(limit)]
            result = run(side.environment, "play.py", arguments, OUT / "result.json", 3 * limit + 60)
            told.setdefault(key, {})[str(items)] = result
            print(f"{key}, {items:,} items: {cell(result)} ({time.perf_counter() - begun:.0f} s)", flush=True)
            if "earned" not in result:
                dropped = "too slow on fewer items already" if "gave_up" in result else result["failed"]
    return told


def cell(result: Result) -> str:
    """Return a result as text: expected clicks per user, half of their 95 % interval, and the time per decision."""
    if "failed" in result:
        return "-"
    if "gave_up" in result:
        return f"too slow, {duration(result['each'])}"
    earned = np.array(result["earned"])
    half = 1.96 * earned.std(ddof=1) / len(earned) ** 0.5 if len(earned) > 1 else 0.0
    return f"{earned.mean():.1f} ± {half:.1f}, {duration(result['each'])}"


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def table(told: dict[str, Result], sizes: list[int]) -> str:
    """Return the comparison as Markdown, with a line on everything that was not run."""
    head = ["", *(f"{items:,} items" for items in sizes)]
    lines = [head, ["---"] * len(head)]
    notes = []
    for key, results in told.items():
        lines.append([key, *(cell(results[str(items)]) for items in sizes)])
        for items in sizes:
            reason = results[str(items)].get("failed", "")
            if reason and not reason.startswith("too slow"):
                notes.append(f"not run: {key}: {reason}")
                break
    notes += [f"not run: {name}: {why}" for name, why in NOT_RUN.items()]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + ["", *notes])


def judged(seed: int, absent: dict[str, str]) -> dict[str, Result]:
    """Let both estimate the same policy from the same log."""
    export_log(OUT / "log", seed)
    told = {}
    for side, environment in (("ours", ""), ("theirs", "obp")):
        out = (OUT / f"{side}.json").absolute()
        failed = {"failed": absent.get(environment, "")}
        told[side] = (
            failed
            if failed["failed"]
            else run(environment, "estimates.py", [side, str((OUT / "log").absolute()), str(out)], out, 300)
        )
    return told


def estimates(told: dict[str, Result]) -> str:
    """Return the off-policy estimates as Markdown."""
    for side, result in told.items():
        if "failed" in result:
            return f"not run: off-policy estimates, {side}: {result['failed']}"
    lines = [
        "| | IPS | self-normalised | doubly robust | time, with 1,000 draws for intervals |",
        "|---|---|---|---|---|",
    ]
    for name, result in zip(("treeward", "obp"), told.values(), strict=True):
        values = " | ".join(f"{result[key]:.6f}" for key in ("ips", "snips", "dr"))
        lines.append(f"| {name} | {values} | {duration(result['seconds'])} |")
    ours, theirs = told.values()
    gap = max(abs(ours[key] - theirs[key]) for key in ("ips", "snips", "dr"))
    return "\n".join([*lines, "", f"largest difference: {gap:.1e}"])


def fill(page: str, name: str, body: str) -> str:
    """Return a page of Markdown with other words between its marks of this name."""
    first, last = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    before, _, rest = page.partition(first)
    _, found, after = rest.partition(last)
    if not found:
        raise ValueError(f"a page without the marks {first.strip()} and {last.strip()}")
    return f"{before}{first}{body}{last}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 users, 20 rounds, 1,000 items alone")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the sides, by name")
    parser.add_argument("--how", default="", help="of the stream: only sides whose description begins so")
    parser.add_argument("--limit", type=float, help="seconds a side may take for one size (100; quick: 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into docs/compare.md")
    parser.add_argument(
        "--stream", type=Path, metavar="RUN", help="only this: the stream of a finished `experiment stream`"
    )
    given = parser.parse_args()
    users, rounds, sizes = (10, 20, SIZES[:1]) if given.quick else (50, 200, SIZES)
    limit = given.limit or (5.0 if given.quick else 100.0)
    sides = [side for side in SIDES if not given.only or side.name in given.only]
    wanted = {side.environment for side in sides} - {""}
    absent = {
        name: install(name, steps)
        for name, steps in recipes((HERE / "peers.txt").read_text()).items()
        if name in wanted
    }
    if given.stream:
        sides_too = [side for side in STREAM_SIDES if side.how.startswith(given.how)]
        play_stream(given.stream, 20 * limit, absent, wanted, sides_too)
        return 0
    tasks = {}
    for items in sizes:
        tasks[items] = (OUT / f"world-{items}").absolute()
        export(items, users, rounds, given.seed).save(tasks[items])
    told = compare(sides, tasks, limit, absent)
    shown = table(told, list(sizes))
    print(f"\n{users} users, {rounds} rounds: expected clicks a user ± half of a 95 % interval, time a decision\n")
    print(f"{shown}\n")
    also = judged(given.seed, absent) if "obp" in wanted else {}
    if also:
        print(estimates(also))
    begun = OUT / f"stream-{given.seed}{'-quick' * given.quick}"
    make_stream(begun, given.seed, *((500, 60) if given.quick else (5_000, 1_000)))
    streamed = export_stream(begun, OUT / "visits")
    visited = stream_peers(OUT / "visits", 20 * limit, absent, wanted)
    print(f"\n{stream_table(streamed, visited)}\n")
    if given.write:
        page = fill(given.write.read_text(), "measured", shown.partition("\n\n")[0])
        given.write.write_text(fill(page, "estimates", estimates(also)) if also else page)
    facts = {
        "settings": {"users": users, "rounds": rounds, "limit": limit, "seed": given.seed, "earlier": [EARLIER, SHOWN]},
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "processor": platform.machine()},
        "installed": (HERE / "peers.txt").read_text(),
        "not_run": NOT_RUN,
        "results": told,
        "off_policy": also,
        "stream": {
            "task": size_of(streamed),
            "treeward": [line._asdict() for line in arm_summaries(streamed)],
            "peers": visited,
        },
        "table": shown,
    }
    (OUT / "peers.json").write_text(json.dumps(facts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
