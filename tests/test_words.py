"""Source, docs and README are in plain English: idioms that readers stumbled over do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUFFIXES = {".css", ".html", ".ipynb", ".js", ".md", ".py", ".toml"}
PLACES = [ROOT / "README.md", *(path for folder in ("src", "docs") for path in (ROOT / folder).rglob("*"))]
FILES = sorted(path for path in PLACES if path.suffix in SUFFIXES)
UNIT = "(call|commit|day|decision|event|item|leaf|level|machine|minute|node|request|round|row|second|user|visit)"
# Only what has no plain meaning: "made up of" and "the events a user has" pass.
IDIOMS = {
    r"anew\b": "again, recomputed, rebuilt",
    r"beside\b": "next to, compared with",
    r"(whoever|whomever|by whom|of whom|to whom)\b": "the user, the caller, the process",
    r"made-up\b": "synthetic, invented",
    r"told by\b": "inferred from",
    r"(what nobody|who nobody|nobody tells)\b": "what happens",
    r"(came|comes) of it\b": "the reward, the result",
    r"for ever\b": "permanently, always",
    r"comes? true\b": "holds",
    r"passed over\b": "ignored",
    r"not at hand\b": "not in memory, missing",
    r"so many (others|[a-z]+s)\b": "a number of, n",
    rf"(bytes|cells?|clicks?|decisions?|points?|requests?|rows?|scores?|vectors?) an? {UNIT}(?=[.,;:)|]|$)": "per",
}


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: re.sub(r"\W+", "-", idiom)[:24].strip("-"))
def test_idiom_does_not_occur(idiom):
    pattern = re.compile(rf"\b{idiom}", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"write {IDIOMS[idiom]!r} instead:\n" + "\n".join(found)


def test_no_merge_conflict_is_left():
    marker = re.compile(r"^ *(<{7}|>{7}) ", re.MULTILINE)
    assert not [str(path.relative_to(ROOT)) for path in FILES if marker.search(path.read_text(encoding="utf-8"))]
