"""The tables of README and docs, made of docs/results: between `<!-- results: NAME -->` and `<!-- /results -->`."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import paper
import practice
from cells import NOT_RUN, TAOBAO, Results, arms_of, pair, table
from jobs import JOBS, LOGS, SYNTHETIC

from treeward.core.artefact import write_file

_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- /results -->)", re.DOTALL)


def write_tables(root: Path, results: Path) -> list[str]:
    """Rewrite the tables of README and docs that have changed, and return the names of the files."""
    told, changed = read_results(results), []
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        made = rendered(text, told)
        if made != text:
            write_file(page, made.encode())
            changed.append(page.relative_to(root).as_posix())
    return changed


def read_results(folder: Path) -> Results:
    """Return the results of a folder."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {name: found[name] for name in (*JOBS, *found) if name in found}


def rendered(text: str, results: Results) -> str:
    """Return a page with its tables as the results have them."""
    if (marks := len(re.findall("<!-- results: ", text))) != len(_BLOCK.findall(text)):
        raise ValueError(f"of {marks} tables, some have no closing mark")

    def fresh(found: re.Match[str]) -> str:
        made = TABLES[found[2]](results).strip()
        return found[0] if nothing_in(made) and not nothing_in(found[0]) else f"{found[1]}\n{made}\n\n{found[3]}"

    return _BLOCK.sub(fresh, text)


def nothing_in(made: str) -> bool:
    """Return whether no job of a table was run; such a table keeps the figures of an earlier run, if it has some."""
    rows = [line.split("|")[2:-1] for line in made.splitlines() if line.startswith("|")][2:]
    return all(cell.strip() in ("", NOT_RUN) for row in rows for cell in row)


# All of them


def leaderboard(results: Results, kind: str) -> str:
    """Return the arms of a protocol, the best first on each log."""
    parts = []
    for job in (f"{kind}-{log}" for log in TAOBAO):
        arms = arms_of(results, job)
        if not arms:
            continue
        told = results[job]["figures"]
        size = f"{told['users']:,} users, {told['items']:,} items, {told['repeats']} repeats"
        if kind == "stream":
            order = sorted(arms, key=lambda arm: -arms[arm]["clicks"][0])
            lines = [[str(at), arm, pair(arms[arm]["clicks"], ".3f"), pair(arms[arm]["last"], ".3f"),
                      f"{arms[arm]['microseconds']:.0f}"] for at, arm in enumerate(order, 1)]  # fmt: skip
            head = ["", "", "clicks per visit", "last third", "µs per visit"]
        else:
            last = str(told["rounds"])
            order = sorted(arms, key=lambda arm: -arms[arm]["reward"][last][0])
            lines = [[str(at), arm, pair(arms[arm]["reward"][last]), f"{arms[arm]['multiplications']:,.0f}",
                      f"{100 * arms[arm]['coverage']:.1f} %"] for at, arm in enumerate(order, 1)]  # fmt: skip
            head = ["", "", f"reward in {told['rounds']:,} rounds", "multiplications per round", "catalogue shown"]
        parts.append(f"**{job.removeprefix(kind + '-')}**: {size}.\n\n{table(head, lines)}")
    return "\n\n".join(parts) or NOT_RUN


def provenance(results: Results) -> str:
    """Return every job that was run: its command, seed, data, version and time."""
    rows = []
    for name, told in results.items():
        sums = ", ".join(f"{data} {found[:10]}" for data, found in told["data_sha256"].items())
        rows.append(
            [f"`{name}`", f"`{told['command']}`", str(told["seed"]), sums, told["version"], f"{told['minutes']:.1f}"]
        )
    total = sum(told["minutes"] for told in results.values())
    rows.append(["all", "", "", "", "", f"{total:.0f}"])
    return table(["job", "command", "seed", "SHA-256 of the data", "version", "minutes"], rows)


def printed(results: Results) -> str:
    """Return what benchmarks printed."""
    return "\n\n".join(
        f"`{told['command']}` ({told['machine']}):\n\n```text\n" + "\n".join(told["figures"]["lines"]) + "\n```"
        for told in results.values()
        if "lines" in told["figures"]
    )


def sizes_in(results: Results) -> list[str]:
    """Return the synthetic catalogues that rivals were run on, or all if none was."""
    sizes = [size for size, _, _ in SYNTHETIC]
    return [size for size in sizes if f"rivals-{size}" in results] or sizes


TABLES: dict[str, Callable[[Results], str]] = {
    "readme-stream": practice.readme_stream,
    "readme-prior": practice.readme_prior,
    "claims-in-short": paper.claims_in_short,
    "stream": practice.stream,
    "stream-attributes": lambda results: practice.stream(results, "attributes", LOGS[:3]),
    "frontier": practice.frontier,
    "rivals": practice.rivals,
    "rivals-work": practice.rivals_work,
    "rivals-synthetic": lambda results: practice.rivals(results, sizes_in(results)),
    "rivals-synthetic-work": lambda results: practice.rivals_work(results, sizes_in(results)),
    "table-3": paper.table_3,
    "claims": paper.claims,
    "by-round": paper.by_round,
    "readings": paper.readings,
    "nodes": paper.nodes,
    "figure-3": paper.figure_3,
    "figure-3-nodes": lambda results: paper.figure_3(results, "bases-nodes-sports"),
    "figure-4": paper.figure_4,
    "table-4": paper.table_4,
    "table-4-mind": lambda results: paper.table_4(results, ("mind",)),
    "table-4-biases": lambda results: paper.table_4(results, judge=1),
    "table-4-gaps": paper.table_4_gaps,
    "debias-ratings": lambda results: practice.debias(results, "rating"),
    "debias-rewards": lambda results: practice.debias(results, "click"),
    "leaderboard-rewards": partial(leaderboard, kind="rewards"),
    "leaderboard-frontier": partial(leaderboard, kind="frontier"),
    "leaderboard-rivals": partial(leaderboard, kind="rivals"),
    "leaderboard-stream": partial(leaderboard, kind="stream"),
    "provenance": provenance,
    "printed": printed,
}
"""By the name that a page uses."""
