"""Rerun the figures of README and docs: `make reproduce DATA=FOLDER`.

Each job is a command of the docs. Its results go to OUT/results/JOB.json, with the command, the seed, the checksum of
the data, the version and the time it took. A run that was killed resumes with the job, and the cell of an experiment,
where it stopped. `--update` also copies the results to docs/results and rewrites the tables of README and docs.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collect import collect
from jobs import DATA, JOBS, Job
from tables import write_tables

from treeward.core.artefact import write_file
from treeward.core.parallel import cores
from treeward.core.version import __version__

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C does: end the job that runs, too
    parser = argparse.ArgumentParser(prog="reproduce", description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="append", default=[], metavar="FOLDER or NAME=PATH",
                        help="a folder with the data sets, or one data set; repeatable")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("reproduce-out"), help="results, and runs to go on with")
    parser.add_argument("--only", action="append", metavar="JOB", help="jobs, by how their names begin; repeatable")
    parser.add_argument("--keep", action="store_true", help="keep finished jobs although the source has changed since")
    parser.add_argument("--list", action="store_true", help="list the jobs, and how long each takes")
    parser.add_argument("--update", action="store_true", help="copy the results to docs/results, rewrite the tables")
    parser.add_argument("--tables", action="store_true", help="only rewrite the tables, from docs/results")
    given = parser.parse_args()
    named = {name for name in JOBS if given.only is None or name.startswith(tuple(given.only))}
    for name in reversed(JOBS):  # and the jobs whose folders they use
        named |= set(JOBS[name].after) if name in named else set()
    wanted = [job for job in JOBS.values() if job.name in named]
    if not wanted:
        parser.error(f"--only: no job begins with {' or '.join(given.only)}; --list lists them")
    if given.list:
        for job in wanted:
            print(f"{job.name:24} {job.minutes:5.1f} min  {job.shown}")
        print(f"{'all':24} {sum(job.minutes for job in wanted):5.1f} min")
        return 0
    if given.tables:
        return rewrite()
    data = found_data(parser, given.data) if given.data or any(job.reads for job in wanted) else {}
    out, left = given.out.resolve(), possible(wanted, data)
    failed = run_all(left, data, out, keep=given.keep)
    if given.update:
        RESULTS.mkdir(exist_ok=True)
        for job in left:
            if job.name not in failed:
                shutil.copy(out / "results" / f"{job.name}.json", RESULTS)
        rewrite()
    return 1 if failed else 0


def rewrite() -> int:
    """Rewrite the tables of README and docs, and say which pages changed."""
    print("Rewrote", ", ".join(write_tables(ROOT, RESULTS)) or "no page: all tables are up to date")
    return 0


def found_data(parser: argparse.ArgumentParser, given: list[str]) -> dict[str, Path]:
    """Return the data sets that were named, by name."""
    made: dict[str, Path] = {}
    for word in given:
        name, _, path = word.rpartition("=")
        place = Path(path).resolve()
        if name and name not in DATA:
            parser.error(f"--data {word}: {name} is none of {', '.join(DATA)}")
        if not place.exists():
            parser.error(f"--data {word}: {path} is not there")
        made |= {name: place} if name else {one: place / one for one in DATA if (place / one).exists()}
    if not made:
        parser.error(f"--data: name a folder with some of {', '.join(DATA)} (treeward data fetch tells where they are)")
    return made


def possible(jobs: list[Job], data: Mapping[str, Path]) -> list[Job]:
    """Return the jobs that can run here."""
    made: list[Job] = []
    for job in jobs:  # a job comes after those whose folders it uses
        if not left_out(job, data, {one.name for one in made}):
            made.append(job)
    return made


def left_out(job: Job, data: Mapping[str, Path], run: Set[str]) -> bool:
    """Return whether a job cannot run here, and say why; `run` are the jobs that will have run before."""
    absent = [name for name in job.data if name not in data]
    absent += [f"the job {name}" for name in job.after if name not in run]
    absent += [name for name in job.needs if not (shutil.which(name) or ("/" not in name and find_spec(name)))]
    if absent:
        print(f"{job.name}: left out, {' and '.join(absent)} is not here")
    return bool(absent)


def checksum(place: Path, suffix: str = "") -> str:
    """Return the SHA-256 of a file, or of the names and contents of a folder's files."""
    found = sha256()
    for path in files_of(place) if place.is_dir() else [place]:
        if path.name.endswith(suffix):
            found.update(path.relative_to(place).as_posix().encode() + b"\0" + sha256(path.read_bytes()).digest())
    return found.hexdigest()


def files_of(folder: Path) -> list[Path]:
    """Return all files below a folder, also behind links."""
    return sorted(Path(place) / name for place, _, names in os.walk(folder, followlinks=True) for name in names)


def version() -> str:
    """Return the version and the checksum of source and benchmarks: results of other code do not count."""
    sums = checksum(ROOT / "src", ".py") + checksum(ROOT / "benchmarks", ".py")
    return f"{__version__}, source {sha256(sums.encode()).hexdigest()[:10]}"


def run_all(jobs: list[Job], data: Mapping[str, Path], out: Path, keep: bool = False) -> list[str]:
    """Run jobs one after the other, and return the names of those that failed."""
    sums = {name: checksum(data[name]) for name in sorted({name for job in jobs for name in job.reads})}
    (out / "results").mkdir(parents=True, exist_ok=True)
    stamps = {job.name: stamp(job, sums) for job in jobs}
    done = {job.name: found for job in jobs if (found := finished(out, job, stamps[job.name], keep)) is not None}
    failed: list[str] = []
    for number, job in enumerate(jobs, 1):
        if job.name in done:
            continue
        if gone := [name for name in job.after if name in failed]:
            print(f"{job.name}: left out, {gone[0]} failed")
            failed.append(job.name)
            continue
        waiting = [one for one in jobs[number - 1 :] if one.name not in done]
        print(f"[{number}/{len(jobs)}] {job.name}: {job.shown}", f"({left(waiting, done)} left)", flush=True)
        found = run_job(job, data, out, stamps[job.name])
        if found is None:
            failed.append(job.name)
        else:
            done[job.name] = found
    print(f"{len(done)} of {len(jobs)} jobs done" + (f"; failed: {', '.join(failed)}" if failed else ""), flush=True)
    return failed


def left(jobs: list[Job], done: Mapping[str, Mapping[str, Any]]) -> str:
    """Return an estimate of the time that jobs take, by how long those that are done took here."""
    known = [(JOBS[name].minutes, found["minutes"]) for name, found in done.items()]
    usual, here = (sum(column) for column in zip(*known, strict=True)) if known else (1.0, 1.0)
    minutes = sum(job.minutes for job in jobs) * here / usual
    return f"about {minutes / 60:.1f} h" if minutes > 90 else f"about {minutes:.0f} min"


def stamp(job: Job, sums: Mapping[str, str]) -> dict[str, Any]:
    """Return what a result belongs to."""
    seed = re.search(r"--seed (\d+)", " ".join(job.command))
    data = {name: sums[name] for name in job.reads}
    return {"command": job.shown, "seed": int(seed[1]) if seed else 0, "data_sha256": data, "version": version()}


def finished(out: Path, job: Job, stamped: Mapping[str, Any], keep: bool) -> dict[str, Any] | None:
    """Return a job's result if it is there and of this command and data, and of this source unless `keep`."""
    path = out / "results" / f"{job.name}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = all(found.get(name) == value for name, value in stamped.items() if not (keep and name == "version"))
    return found if same else None


def run_job(job: Job, data: Mapping[str, Path], out: Path, stamped: Mapping[str, Any]) -> dict[str, Any] | None:
    """Run a command, or what is left of it; write and return its result, or None if it failed."""
    folder, started = out / "runs" / job.name, out / "runs" / f"{job.name}.json"
    log, clock = out / "runs" / f"{job.name}.log", out / "runs" / f"{job.name}.seconds"
    if not started.exists() or json.loads(started.read_text()) != dict(stamped):
        shutil.rmtree(folder, ignore_errors=True)  # of another version, or of other data: its cells do not count
        clock.unlink(missing_ok=True)
    folder.parent.mkdir(exist_ok=True)
    write_file(started, json.dumps(stamped).encode())
    places = {"out": str(folder), **{name: str(path) for name, path in data.items()}}
    words = [
        re.sub(r"{(run:)?([\w-]+)}", lambda one: str(out / "runs" / one[2]) if one[1] else places[one[2]], word)
        for word in job.command
    ]
    tools = Path(sys.executable).parent
    words[0] = str(tools / words[0]) if (tools / words[0]).exists() else words[0]
    known = clock.read_text() if clock.exists() else ""
    before, start = float(known or 0), time.perf_counter()
    errors = out / "runs" / f"{job.name}.err"
    with (
        log.open("w") as printed, errors.open("w") as told,  # experiments show their progress on stderr
        subprocess.Popen(words, cwd=ROOT, stdout=printed, stderr=told if job.timed else None) as running,
    ):  # fmt: skip
        code = None
        try:
            while code is None:
                with suppress(subprocess.TimeoutExpired):
                    code = running.wait(5)
                took = before + time.perf_counter() - start
                write_file(clock, str(took).encode())  # so that the time of a run that is killed counts, too
        except BaseException:
            running.terminate()  # nobody would wait for it, and it would hold the folder of the run
            raise
    missed = job.timed and code == 1 and "Traceback" not in errors.read_text()  # its figures count
    if code and not missed:
        print(f"{job.name}: failed with exit status {code}; its output is in {log}", flush=True)
        return None
    try:
        figures = collect(job, folder, log.read_text())
    except Exception as error:  # other jobs go on
        print(f"{job.name}: its results cannot be read: {error!r}", flush=True)
        return None
    machine = f"{cores()} cores, {platform.machine()}, Python {platform.python_version()}"
    made = {"job": job.name, **stamped, "machine": machine, "minutes": round(took / 60, 2), "figures": figures}
    write_file(out / "results" / f"{job.name}.json", (json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode())
    return made


if __name__ == "__main__":
    sys.exit(main())
