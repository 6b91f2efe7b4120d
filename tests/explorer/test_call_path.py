"""How many files one call runs through: few enough to read them all."""

import sys
from pathlib import Path

import pytest

import treeward as tw
from treeward.data.synthetic import synthetic_catalogue

ROOT = Path(tw.__file__).parent
MOST_OF_FEEDBACK = 8


def files_of(call):
    """Return the files of treeward whose Python functions a call runs; all of the engine counts as one."""
    seen = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            seen.add(path.relative_to(ROOT))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted({"engine" if path.parts[0] == "engine" else str(path) for path in seen})


@pytest.mark.parametrize(
    ("durable", "options", "most_of_recommend"),
    [(False, {}, 14), (True, {}, 14), (False, {"counts": True, "spare": 0.1}, 15)],
    ids=["memory", "sqlite", "counts and spare places"],
)
def test_recommend_and_feedback_run_through_few_files(durable, options, most_of_recommend, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_VERSION")  # under pytest, kernels are called by way of a check that users do not run
    store = tw.SQLiteStore(tmp_path / "events.db") if durable else tw.MemoryStore()
    with tw.Explorer(synthetic_catalogue(1_000, dim=8, seed=0), store=store, seed=0, **options) as explorer:
        for _ in range(3):  # the user is known, and kernels are compiled
            explorer.feedback({made.id: 1.0 for made in explorer.recommend(["ada"])})
        made = []
        recommend = files_of(lambda: made.extend(explorer.recommend(["ada"])))
        feedback = files_of(lambda: explorer.feedback({made[0].id: 1.0}))
    assert {"explorer/explorer.py", "engine"} <= set(recommend), "the trace sees the call"
    assert "explorer/rewards.py" in feedback
    assert len(recommend) <= most_of_recommend, recommend
    assert len(feedback) <= MOST_OF_FEEDBACK, feedback
