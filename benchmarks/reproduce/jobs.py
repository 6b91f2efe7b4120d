"""What `make reproduce` runs: one job per command of the docs, the data it needs, and what is read from its results."""

import re
import shlex
from typing import NamedTuple

from treeward.data.public_sets import public_sets

REWARDS, STREAM, JUDGED, DEBIAS = "rewards", "stream", "judged", "debias"
PEERS, LINES = "peers", "lines"
"""What is read: cumulative rewards, clicks per visit, verdicts of judges, errors of ratings, a table of arms that is
printed, or the printed lines."""
RUN = "run"
"""The folder of a run, as the docs show it."""


class Job(NamedTuple):
    """One command."""

    name: str
    """Also the name of its results file."""
    command: tuple[str, ...]
    """``{out}`` stands for the job's folder, ``{NAME}`` for the data set of that name, ``{run:JOB}`` for another job's
    folder, from which vectors, worlds and trees are taken. Its rows are computed after that job's."""
    minutes: float
    """How long it took where the figures of the docs were measured, on 2 cores."""
    kind: str = REWARDS
    against: tuple[str, ...] = ()
    """Arms that all others are compared with, paired by user."""
    needs: tuple[str, ...] = ()
    """Programs (also by path) and modules without which it is left out."""
    folder: str = "{out}"
    """Where the run's results are."""
    timed: bool = False
    """Whether its figures are times, which differ from run to run."""

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets that it reads."""
        return tuple(name for name in DATA if f"{{{name}}}" in self.command)

    @property
    def reads(self) -> tuple[str, ...]:
        """The data sets that its result depends on: also those of the jobs whose folders it uses."""
        return tuple(dict.fromkeys((*self.data, *(name for job in self.after for name in JOBS[job].reads))))

    @property
    def after(self) -> tuple[str, ...]:
        """The jobs whose folders it uses."""
        return tuple(found[1] for word in self.command if (found := re.match(r"{run:([\w-]+)}", word)))

    @property
    def shown(self) -> str:
        """The command as the docs show it."""
        named = (
            re.sub(r"{(?:run:)?([\w-]+)}", lambda one: RUN if one[1] == "out" else one[1], word)
            for word in self.command
        )
        return shlex.join(named)


DATA = tuple(name for name, known in public_sets().items() if known.figures)
"""The names that data folders are known by; `treeward data fetch` tells where each is found."""

SYNTHETIC = (
    ("100k", ("--users", "50", "--repeats", "2"), 10),
    ("1m", ("--loader-option", "items=1000000", "--loader-option", "users=100020", "--users", "10", "--repeats", "2"),
     15),
)  # fmt: skip
"""Synthetic catalogues that rivals are compared on, by size."""
LOGS = ("sports", "beauty", "movielens-small", "movietweetings")
_POSITIVE = {"movielens-small": ("--loader-option", "positive=0.5")}
_VISITS = {"movielens-small": ("--visits", "80")}
_TAOBAO = ("--loader-option", "least=4", "--seed", "1")
_NO_OTHERS = tuple(
    word for arm in ("LinTS", "LinEG", "HTS", "HEG", "pHTS", "pHEG") for word in ("--without", arm)
)  # fmt: skip


def _experiment(kind: str, data: str, *words: str) -> tuple[str, ...]:
    return ("treeward", "experiment", kind, f"{{{data}}}", "-o", "{out}", *_POSITIVE.get(data, ()), *words)


def _of_the_paper() -> list[Job]:
    few = ("--users", "200", "--repeats", "3")
    made = [
        Job(f"rewards-{data}", _experiment("rewards", data, *few, "--readings"), minutes, against=("LinUCB", "HUCB"))
        for data, minutes in zip(LOGS, (9, 8, 5, 8), strict=True)
    ]
    made.append(
        Job("rewards-taobao", _experiment("rewards", "taobao", *few, "--readings", *_TAOBAO), 4,
            against=("LinUCB", "HUCB"))
    )  # fmt: skip
    for data in LOGS[:3]:
        words: tuple[str, ...] = (*few, "--nodes", "mean", "--prepared", f"{{run:rewards-{data}}}")
        words += tuple(word for arm in ("LinUCB", "ConUCB", "HMAB", "ICTRUCB") for word in ("--without", arm))
        made.append(Job(f"nodes-{data}", _experiment("rewards", data, *words), 1))
    bases = ("--users", "200", "--rounds", "1000", "--repeats", "3", "--prepared", "{run:rewards-sports}")
    flat = ("UCB", "TS", "EG", "HUCB", "HTS", "HEG")
    made.append(Job("bases-sports", _experiment("bases", "sports", *bases), 2, against=flat))
    made.append(Job("bases-nodes-sports", _experiment("bases", "sports", *bases, "--nodes", "mean"), 2, against=flat))
    grid = ("--users", "200", "--repeats", "2", "--prepared", "{run:rewards-sports}")
    made.append(Job("sensitivity-sports", _experiment("sensitivity", "sports", *grid), 2))
    for data in LOGS[:2]:
        words = (*_NO_OTHERS, "--prepared", f"{{run:rewards-{data}}}")
        made.append(Job(f"closed-loop-{data}", _experiment("closed-loop", data, *words), 8, JUDGED, needs=("torch",)))
    made.append(
        Job("closed-loop-mind", _experiment("closed-loop", "mind", "--repeats", "3", *_NO_OTHERS), 8, JUDGED,
            needs=("torch",))
    )  # fmt: skip
    return made


def _of_practice() -> list[Job]:
    made = []
    for data, minutes in zip(LOGS, (7, 6, 3, 6), strict=True):
        words: tuple[str, ...] = ("--repeat-rounds", "0", "--prepared", f"{{run:rewards-{data}}}")
        against = ("Beam", "popularity", "Beam, no prior")
        made.append(
            Job(f"frontier-{data}", _experiment("frontier", data, *words), minutes, against=against,
                needs=("torch", "implicit"), folder="{out}/once")
        )  # fmt: skip
    for data, minutes in zip(LOGS, (8, 8, 5, 8), strict=True):
        words = ("--tune", "--repeats", "3", "--prepared", f"{{run:frontier-{data}}}/once")
        made.append(
            Job(f"rivals-{data}", _experiment("rivals", data, *words), minutes, against=("Beam", "Beam, no prior"),
                needs=("torch",), folder="{out}/test")
        )  # fmt: skip
    for size, words, minutes in SYNTHETIC:
        made.append(
            Job(f"rivals-{size}", ("treeward", "experiment", "rivals", "synthetic", "-o", "{out}", *words), minutes,
                against=("Beam", "Beam, no prior"), needs=("torch",))
        )  # fmt: skip
    for data, minutes in zip(LOGS, (8, 7, 4, 7), strict=True):
        words = _VISITS.get(data, ())
        made.append(
            Job(f"stream-{data}", ("treeward", "experiment", "stream", f"{{{data}}}", "-o", "{out}", *words), minutes,
                STREAM, needs=("torch", "implicit"))
        )  # fmt: skip
    for data in LOGS:
        peers = ("python", "benchmarks/peers.py", "--only", "Vowpal Wabbit", "--how", "SquareCB, 50", "--stream",
                 f"{{run:stream-{data}}}")  # fmt: skip
        made.append(Job(f"peers-{data}", peers, 3, PEERS, needs=(".peers/vw/bin/python",)))
    arms = tuple(word for arm in ("Beam", "Beam, crowd", "Beam, offline prior") for word in ("--arm", arm))
    for data, minutes in zip(LOGS[:3], (3, 3, 2), strict=True):
        words = ("--vectors", "attributes", *arms, *_VISITS.get(data, ()))
        made.append(
            Job(f"attributes-{data}", ("treeward", "experiment", "stream", f"{{{data}}}", "-o", "{out}", *words),
                minutes, STREAM, needs=("torch",))
        )  # fmt: skip
    return made


def _of_logs() -> list[Job]:
    return [
        Job("debias-coat", ("treeward", "experiment", "debias", "{coat}", "-o", "{out}", "--draws", "2000"), 1, DEBIAS,
            needs=("torch",)),
        Job("open-bandit", ("python", "benchmarks/open_bandit.py", "{open-bandit}", "--bootstraps", "200"), 4, LINES),
    ]  # fmt: skip


def _of_speed() -> list[Job]:
    names = (("decide", 1), ("explorer", 2), ("tree_build", 3), ("crowd", 1), ("loaders", 2), ("startup", 1))
    return [
        Job(f"speed-{name}", ("python", f"benchmarks/{name}.py"), minutes, LINES, timed=True) for name, minutes in names
    ]


JOBS = {job.name: job for job in (*_of_the_paper(), *_of_practice(), *_of_logs(), *_of_speed())}
"""By name, in the order in which they run."""
