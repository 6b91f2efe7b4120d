"""Cells and rows of the tables: figures as text, "not run" where there are none."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jobs import LOGS

from treeward.experiment.summary import Estimate, interval_text

Results = dict[str, dict[str, Any]]
"""What each job found, by its name."""
NOT_RUN = "not run"
TAOBAO = (*LOGS[:3], "taobao", "movietweetings")
"""The logs of table 3."""
Row = tuple[str, Callable[[str], str]]
"""A label, and what makes a cell from the name of a job."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def pair(found: Sequence[float | None] | None, form: str = ".1f", *, plain: bool = False) -> str:
    """Return a mean and half of its interval as text."""
    if found is None or found[0] is None:
        return ""
    return interval_text(found[0], None if plain else found[1], form).replace("-", "−")


def figures_of(results: Results, job: str) -> dict[str, Any]:
    """Return what a job found, or nothing if it was not run."""
    found: dict[str, Any] = results[job]["figures"] if job in results else {}
    return found


def arms_of(results: Results, job: str) -> dict[str, Any]:
    """Return a job's arms, or none if it was not run."""
    found: dict[str, Any] = figures_of(results, job).get("arms", {})
    return found


def reward(results: Results, job: str, arm: str, round: int | None = None, *, plain: bool = False) -> str:
    """Return what an arm earned, with its interval."""
    arms = arms_of(results, job)
    if arm not in arms:
        return NOT_RUN
    rounds = arms[arm]["reward"]
    return pair(rounds[str(round) if round else max(rounds, key=int)], plain=plain)


def gap(results: Results, job: str, one: str, other: str, form: str = "+.1f") -> str:
    """Return how much more an arm earned than another."""
    return pair(difference(results, job, one, other), form) or NOT_RUN


def difference(results: Results, job: str, one: str, other: str) -> list[float] | None:
    """Return how much more an arm earned than another, and half of its interval."""
    gaps = figures_of(results, job).get("gaps", {})
    found = gaps.get(f"{one} - {other}")
    turned = gaps.get(f"{other} - {one}")
    return found if found or not turned else [-turned[0], turned[1]]


def answer(results: Results, job: str, one: str, other: str) -> str:
    """Return whether an arm earned more, by the interval of the difference."""
    found = difference(results, job, one, other)
    if found is None:
        return NOT_RUN
    return f"{Estimate(*found).answer} ({pair(found, '+.1f')})"


def by_log(results: Results, kind: str, rows: Iterable[Row], logs: Sequence[str] = LOGS) -> str:
    """Return a table with a column per log; each row is made by a function of the job's name."""
    return table(["", *logs], ([label, *(made(f"{kind}-{log}") for log in logs)] for label, made in rows))


def share(results: Results, job: str, what: str, one: str, other: str) -> str:
    """Return what one arm took, as a share of another."""
    arms = arms_of(results, job)
    return f"{100 * arms[one][what] / arms[other][what]:.1f} %" if {one, other} <= set(arms) else NOT_RUN
