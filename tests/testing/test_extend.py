"""The examples of extending treeward, the contract checks, and own code on the command line."""

import os
import runpy
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run as cli
from tests.data.test_loaders import busy, mind, taobao
from tests.data.test_random_exposure import coat, open_bandit
from tests.serving import serving
from treeward.cli.inputs import Loader
from treeward.core.errors import DataError, InvalidArgument, StoreFailed
from treeward.data.dataset import Dataset
from treeward.data.loaders import LOADERS, find_loader
from treeward.experiment import load
from treeward.store import MemoryStore, WriteThroughStore
from treeward.store.base import forget, merge
from treeward.store.events import event
from treeward.store.metadata import begin
from treeward.store.numbers import item_ids, number_items
from treeward.testing import ContractBroken, check_bandit, check_loader, check_policy, check_store

EXTEND = Path(__file__).parents[2] / "examples" / "extend"
EXAMPLES = sorted(EXTEND.glob("*.py"))


def example(name, run_name="example"):
    return runpy.run_path(str(EXTEND / f"{name}.py"), run_name=run_name)


def test_every_kind_has_a_short_example():
    assert [path.stem for path in EXAMPLES] == ["bandit", "loader", "policy", "store"]
    for path in EXAMPLES:
        text = path.read_text()
        assert len(text.splitlines()) < 60, path
        assert f"check_{path.stem}(" in text.partition('if __name__ == "__main__":')[2], path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bandit", "alpha 4.78"),
        ("loader", "7 items x 2 dimensions"),
        ("policy", "TwoStep(LinUCB): reward"),
        ("store", '[["ada"], [1], [['),
    ],
)
def test_examples_pass_their_own_checks(name, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example(name, "__main__")
    assert told in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_example_bandit_refuses_bad_settings():
    confident = example("bandit")["Confident"]
    assert confident(delta=0.01).rule(8).strength > confident().rule(8).strength
    assert confident().rule(32).strength > confident().rule(8).strength
    with pytest.raises(tw.InvalidArgument, match="Confident: delta must be a finite number above 0 and below 1"):
        check_bandit(confident(delta=1.5))


def test_example_policy_walks_the_given_level():
    two_step = example("policy")["TwoStep"]
    world = tw.World.synthetic(items=300, users=3, dim=8, seed=0)
    tree = tw.ItemTree.build(world.catalogue.vectors, (4, 12), seed=0)
    assert len(two_step().tree_for(tree, world.catalogue).leaves) == 4
    assert len(two_step(depth=3).tree_for(tree, world.catalogue).leaves) == 12
    assert len(two_step(depth=9).tree_for(tree, world.catalogue).leaves) == 12
    with pytest.raises(tw.InvalidArgument, match="TwoStep: depth must be an integer of at least 2"):
        check_policy(two_step(depth=1))


# --- loaders ---------------------------------------------------------------------------------------------------------


def sample(kind, folder):
    """Write a small, valid file of a kind; return what to read, and which file holds the events."""
    if kind == "coat":
        return coat(folder / "coat"), "train.ascii"
    if kind == "open-bandit":
        return open_bandit(folder / "men"), "men.csv"
    if kind == "gorse":
        rows = (f'{{"FeedbackType":"like","UserId":"{user}","ItemId":"{user % 3}"}}\n' for user in range(12))
        (folder / "feedback.jsonl").write_text("".join(rows))
        (folder / "items.jsonl").write_text("".join(f'{{"ItemId":"{item}"}}\n' for item in range(3)))
        return folder, "feedback.jsonl"
    if kind == "recbole":
        rows = (f"{user}\t{user % 3 + 1}\t{user % 5 + 1}\n" for user in range(12))
        (folder / "ml.inter").write_text("user_id:token\titem_id:token\trating:float\n" + "".join(rows))
        (folder / "ml.item").write_text("item_id:token\ttitle:token_seq\n1\tA\n2\tB\n3\tC\n")
        return folder, "ml.inter"
    if kind == "taobao":
        return taobao(folder, busy(users=12)), "UserBehavior.csv"
    if kind == "mind":
        lines = (f"{user}\tU{user}\t11/12/2019 2:14:46 PM\tN1 N2\tN2-1 N1-0\n" for user in range(12))
        return mind(folder / "mind", "".join(lines)), "behaviors.tsv"
    if kind == "movielens":
        (folder / "movies.csv").write_text("movieId,title,genres\n1,A (1999),Drama\n2,B,Drama\n3,C,Comedy\n")
        rows = (f"{user},{user % 3 + 1},4.0,100\n" for user in range(12))
        (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(rows))
        return folder, "ratings.csv"
    if kind == "sequences":
        (folder / "sequences.txt").write_text("".join(f"{user} {user + 1} {user + 2}\n" for user in range(12)))
        return folder / "sequences.txt", None
    table = pl.DataFrame({"user": range(12), "item": [user % 3 for user in range(12)]})
    (table.write_csv if kind == "tabular" else table.write_parquet)(folder / f"table.{kind.replace('tabular', 'csv')}")
    return next(folder.iterdir()), None


@pytest.mark.parametrize("kind", [*LOADERS, "parquet"])
def test_every_loader_keeps_its_promises(kind, tmp_path):
    check_loader(LOADERS["tabular" if kind == "parquet" else kind], *sample(kind, tmp_path))


def test_help_lists_every_loader():
    [told] = [part.help for part in Loader.__metadata__]
    assert all(name in told for name in LOADERS)


def swapped(**changes):
    def change(data):
        return Dataset(**{name: getattr(data, name) for name in
                          ("name", "catalogue", "interactions", "splits", "dropped", "source")} | changes)  # fmt: skip

    return change


def silent(data):
    return swapped(dropped={})(data)


def unlisted(data):
    return swapped(catalogue=tw.Catalogue(data.catalogue.ids[:1]))(data)


def twice(data):
    return swapped(splits=pl.concat([data.splits, data.splits[:1]]))(data)


def someone_missing(data):
    return swapped(splits=data.splits[1:])(data)


def nobody_trains(data):
    return swapped(splits=data.splits.with_columns(pl.lit("test").alias("split")))(data)


def without_digest(data):
    return swapped(source={"loader": "mine"})(data)


def with_a_path(data):
    return swapped(source=data.source | {"where": Path("here")})(data)


def by_hand(data):
    return data.interactions


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (silent, "a malformed line is counted in dropped, never ignored"),
        (unlisted, "items with events are in the catalogue"),
        (twice, "every user is in one split only"),
        (someone_missing, "every user of the log is in a split, and no other user"),
        (nobody_trains, "some users are left for training"),
        (without_digest, "sha256"),
        (with_a_path, "source holds only what JSON can hold"),
        (by_hand, "it returns a Dataset"),
    ],
)
def test_loader_that_returns_wrong_data_is_noticed(change, promise, tmp_path):
    def load(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
        sizes = {"test": test, "validation": validation, "seed": seed}
        return change(LOADERS["sequences"](path, strict=strict, progress=progress, **sizes))

    with pytest.raises(ContractBroken, match=f"broken: .*{promise}"):
        check_loader(load, *sample("sequences", tmp_path))


def deaf(path, *, test=0.2, validation=0.1, strict=False, progress=None):
    return LOADERS["sequences"](path)


def mute(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
    return LOADERS["sequences"](path, validation=validation, seed=seed, strict=strict)


def lenient(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
    return LOADERS["sequences"](path, validation=validation, seed=seed, progress=progress)


def always_the_same(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
    return LOADERS["sequences"](path, validation=validation, strict=strict, progress=progress)


def moody(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
    moody.turn += 1
    return LOADERS["sequences"](path, validation=validation, seed=moody.turn, strict=strict, progress=progress)


def rash(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
    for line in Path(path).read_text().splitlines():
        _ = [int(word) for word in line.split()]
    return LOADERS["sequences"](path, validation=validation, seed=seed, strict=strict, progress=progress)


def bare(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
    Path(path).stat()
    return LOADERS["sequences"](path, validation=validation, seed=seed, strict=strict, progress=progress)


def untidy(path, *, test=0.2, validation=0.1, seed=0, strict=False, progress=None):
    data = LOADERS["sequences"](path, validation=validation, seed=seed, strict=strict, progress=progress)
    with Path(path).open("a") as file:
        file.write("\n99 1 2")
    return data


@pytest.mark.parametrize(
    ("load", "promise"),
    [
        (deaf, "a loader takes seed"),
        (mute, "it reports its progress"),
        (lenient, "with strict, a malformed line is a DataError"),
        (always_the_same, "another seed splits users another way"),
        (moody, "the same file and seed give the same data"),
        (rash, "a malformed line is counted or a DataError, not UnicodeDecodeError"),
        (bare, "a missing file is a DataError, not FileNotFoundError"),
        (untidy, "the same file and seed give the same data"),
    ],
)
def test_loader_that_breaks_a_promise_is_noticed(load, promise, tmp_path):
    moody.turn = 0
    with pytest.raises(ContractBroken, match=f"broken: {promise}"):
        check_loader(load, *sample("sequences", tmp_path))


def test_missing_sample_is_noticed(tmp_path):
    with pytest.raises(ContractBroken, match="`events` names a file in it"):
        check_loader(LOADERS["sequences"], tmp_path)


def test_own_loaders_are_found_by_file_and_module(tmp_path):
    (tmp_path / "clicks.jsonl").write_text(
        '{"user": "a", "item": "x", "ts": 1}\n{"user": 7, "item": "x", "ts": 1, "click": "no"}\n{"user"}\n'
    )
    name = f"{EXTEND / 'loader.py'}:load"
    data = tw.load_dataset(tmp_path, name, test=0)
    assert {reason: problem.times for reason, problem in data.dropped.items()} == {
        "bad time or click": 1,
        "no user or item": 1,
    }
    assert data.interactions.rewards.to_list() == [1.0]
    assert tw.load_dataset(tmp_path, find_loader("test", name), test=0).source == data.source
    assert find_loader("test", "treeward.data.loaders.taobao:load") is LOADERS["taobao"]
    with pytest.raises(DataError, match="clicks.jsonl, line 2: bad time or click|line 3: no user or item"):
        tw.load_dataset(tmp_path, name, strict=True)
    with pytest.raises(tw.InvalidArgument, match="one of .*progress, seed, strict.* for .*loader.py:load"):
        tw.load_dataset(tmp_path, name, least=3)
    for wrong in (
        "nothing:load",
        "nothing.py:load",
        f"{EXTEND / 'loader.py'}:lode",
        "treeward.data.loaders.taobao:_COLUMNS",
        7,
    ):
        with pytest.raises(tw.InvalidArgument, match="loader must be a"):
            tw.load_dataset(tmp_path, wrong)


# --- stores ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def json_lines(tmp_path):
    kind = example("store")["JsonLinesStore"]
    return lambda: kind(tmp_path / "events.jsonl")


def test_example_store_reads_what_it_wrote(json_lines, tmp_path):
    store = json_lines()
    number_items(store, pl.Series([7, 8]))
    store.append(["ada", 7], np.concatenate([event(1, 0.1, nonce=11), event(0, 1.0, nonce=12)]))
    store.metadata.put({"a": b"\x00\xff"})
    merge(store, 7, "bob")
    begin(store.metadata)
    again = json_lines()
    assert again.identities.secret == store.identities.secret
    assert again.metadata.list() == store.metadata.list()
    assert item_ids(again).to_list() == [7, 8]
    assert again.read(["ada"])[0].tobytes() == store.read(["ada"])[0].tobytes()
    assert again.identities.resolve(7, 0) == "bob"
    assert not again.append(["bob"], event(0, 1.0, nonce=12)).any()


def test_example_store_drops_a_torn_last_line(json_lines, tmp_path):
    store = json_lines()
    store.append(["ada"], event(1, 0.5, nonce=11))
    file = tmp_path / "events.jsonl"
    whole = file.read_bytes()
    store.append(["ada"], event(2, 0.5, nonce=12))
    longer = file.read_bytes()
    for cut in range(len(whole), len(longer)):
        file.write_bytes(longer[:cut])
        again = json_lines()
        assert again.counts(["ada"])[0] == 1
        assert file.read_bytes() == whole
    assert again.append(["ada"], event(2, 0.5, nonce=12)).all()
    assert json_lines().counts(["ada"])[0] == 2


def test_nothing_of_a_forgotten_user_is_left_on_disk(json_lines, tmp_path):
    store = json_lines()
    store.append(["somebody", "ada"], np.concatenate([event(1, 0.123456, nonce=11), event(2, 1.0, nonce=12)]))
    forget(store, "somebody")
    assert "somebody" not in (tmp_path / "events.jsonl").read_text()
    assert "0.123456" not in (tmp_path / "events.jsonl").read_text()
    assert json_lines().counts(["ada"])[0] == 1
    assert json_lines().identities.resolve("somebody", 0) is None
    assert os.listdir(tmp_path) == ["events.jsonl"]


class Full(WriteThroughStore):
    room = 3

    def load(self):
        return []

    def write(self, change):
        self.room -= 1
        if self.room < 0:
            raise OSError(28, "No space left on device")


def test_store_accepts_nothing_after_a_failed_write():
    store = Full()
    store.append(["ada"], event(1, 1.0, nonce=11))
    begin(store.metadata)
    with pytest.raises(StoreFailed, match="Full: could not write: .*No space left"):
        store.append(["ada"], event(1, 1.0, nonce=12))
    for call in (lambda: begin(store.metadata), lambda: forget(store, "ada"), lambda: store.metadata.put({"a": b""})):
        with pytest.raises(StoreFailed, match="Full: takes no more writes: .*No space left"):
            call()


class Broken(Full):
    room = 1

    def write(self, change):
        self.room -= 1
        if self.room < 0:
            raise self.problem


@pytest.mark.parametrize(
    "problem", [RuntimeError("the connection is gone"), TypeError("not JSON"), KeyboardInterrupt()]
)
def test_any_error_in_a_write_stops_the_store(problem):
    store = Broken()
    store.problem = problem
    with pytest.raises(StoreFailed if isinstance(problem, Exception) else KeyboardInterrupt):
        store.append(["ada"], event(1, 1.0, nonce=11))
    with pytest.raises(StoreFailed, match="takes no more writes"):
        store.append(["ada"], event(1, 1.0, nonce=11))


def test_store_that_is_not_durable_is_noticed():
    class Forgetful(Full):
        room = 1_000

    check_store(Forgetful)
    with pytest.raises(ContractBroken, match="there when the store is opened again"):
        check_store(Forgetful, durable=True)


def test_only_the_owner_may_read_the_file(json_lines, tmp_path):
    forget(json_lines(), "nobody")
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o077 == 0


OF_ONES_OWN = """
from __future__ import annotations
from dataclasses import dataclass
import treeward as tw
@dataclass
class Row:
    user: int
def load(path, **options):
    return tw.load_dataset(path, "tabular")
def nothing(path, *, strict=False, progress=None):
    return None
def plain(path):
    return None
"""


def test_error_says_what_is_wrong_with_a_loader(tmp_path):
    (tmp_path / "log.csv").write_text("user,item\n1,2\n1,3\n")
    (tmp_path / "mine.py").write_text(OF_ONES_OWN)
    (tmp_path / "broken.py").write_text("def load(path:\n")
    assert len(tw.load_dataset(tmp_path / "log.csv", f"{tmp_path}/mine.py:load", strict=True).interactions) == 2
    for name, options, told in (
        ("mine.py:nothing", {}, "a function that returns a Dataset"),
        ("mine.py:plain", {"strict": True}, "options must be one of none for .*plain, got .strict."),
        ("mine.py:nothing", {"colour": 1}, "one of progress, strict for"),
        ("broken.py:load", {}, "can be imported .SyntaxError"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            tw.load_dataset(tmp_path / "log.csv", f"{tmp_path}/{name}", **options)


def test_closed_store_accepts_nothing(json_lines):
    store = json_lines()
    store.close()
    with pytest.raises(StoreFailed, match="it is closed"):
        begin(store.metadata)
    assert isinstance(store, MemoryStore)


def test_own_policy_works_with_replace():
    assert replace(example("policy")["TwoStep"](), budget=20).budget == 20


# --- policies and bandits by the name of their file ------------------------------------------------------------------

TWO_STEP, CONFIDENT = f"{EXTEND / 'policy.py'}:TwoStep", f"{EXTEND / 'bandit.py'}:Confident"
SMALL = ("--items", 300, "--users", 3, "--rounds", 5, "--dim", 4, "--budget", 20)


def test_simulate_takes_a_policy_and_a_bandit_from_files(tmp_path):
    told = cli(
        "simulate", *SMALL, "--policy", TWO_STEP, "--policy", "hcb", "--bandit", CONFIDENT, "-o", tmp_path / "c.html"
    )
    assert "TwoStep(Confident)" in told
    assert "HCB(Confident)" in told


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("none.py:Mine", None, "in a file that exists, got 'none.py:Mine'"),
        ("mine.py:Mine", "raise RuntimeError('boom')", "that can be imported (RuntimeError: boom)"),
        ("mine.py:Mine", "import sys; sys.exit(0)", "that can be imported (SystemExit: 0)"),
        ("mine.py:Mine", "def", "that can be imported (SyntaxError: "),
        ("no.such.module:Mine", None, "that can be imported (ModuleNotFoundError: "),
        ("mine.py:Mine", "class Other: pass", "that mine.py has (it has Other)"),
        ("mine.py:Mine", "class Mine: pass", "mine.py:Mine"),
        ("mine.py:Mine", "Mine = 3", "mine.py:Mine"),
    ],
)
def test_error_about_a_file_without_the_class_is_one_line(name, code, why, tmp_path):
    if code is not None:
        (tmp_path / "mine.py").write_text(code)
    tw.Catalogue(range(4), np.eye(4)).save(tmp_path / "items")
    for option, what in (("policy", "a subclass of treeward's Policy"), ("bandit", "a bandit (a class with")):
        commands = [("simulate", *SMALL, f"--{option}", name)]
        if code is not None and "boom" in code:  # a process of its own: once is enough
            commands.append(("serve", "items", "--check", "--set", f"{option}={name}"))
        for command in commands:
            told = cli(*command, cwd=tmp_path, code=2, width=500)
            assert f"{option} must be {what}" in told
            assert why in told


def test_experiment_runs_and_records_an_own_policy(tmp_path):
    tw.World.synthetic(items=300, users=8, dim=4, seed=0).save(tmp_path / "world")
    for name in ("policy", "bandit"):
        (tmp_path / f"{name}.py").write_text((EXTEND / f"{name}.py").read_text())
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'name = "mine"\ndata = "{tmp_path / "world"}"\nusers = 3\nrounds = 20\nrepeats = 2\nbudget = 20\n'
        'widths = [4, 16]\n[[arms]]\nlabel = "HUCB"\npolicy = "hcb"\nbaseline = true\n'
        '[[arms]]\nlabel = "mine"\npolicy = "policy.py:TwoStep"\nbandit = "bandit.py:Confident"\n'
        "options = {depth = 3}\nbandit_options = {delta = 0.2}\n"
    )
    run = ("experiment", "run", spec, "-o", "run", "--processes", 2)
    cli(*run, cwd=tmp_path)
    held = load(tmp_path / "run")
    made = held.cells.filter(arm="mine")["policy"][0]
    assert made.startswith("TwoStep(bandit=Confident(delta=0.2")
    assert "depth=3" in made
    page = (tmp_path / "run" / "report.html").read_text()
    assert "policy.py:TwoStep" in page
    assert "depth 3, delta 0.2" in page
    mine = tmp_path / "policy.py"
    sound = mine.read_text()
    mine.write_text("raise RuntimeError('run')")  # a report does not run the code of its policies
    assert "Wrote" in cli("experiment", "report", tmp_path / "run", cwd=tmp_path)
    assert "RuntimeError: run" in cli(*run, cwd=tmp_path, code=2)
    before = held.rewards
    mine.write_text(sound.replace("tree.level[node] <= self.depth", "tree.level[node] <= 2"))
    cli(*run, cwd=tmp_path)
    after = load(tmp_path / "run").rewards  # what other code made is computed again, and nothing else
    assert after.filter(arm="HUCB").equals(before.filter(arm="HUCB"))
    assert not after.filter(arm="mine").equals(before.filter(arm="mine"))
    assert "options must be one of" in cli(
        "experiment", "run", _changed(spec, "depth = 3", "breadth = 3"), "-o", "other", cwd=tmp_path, code=2
    )


def _changed(spec, old, new):
    made = spec.with_name("changed.toml")
    made.write_text(spec.read_text().replace(old, new))
    return made


def test_presets_take_own_policies_as_options(tmp_path):
    tw.World.synthetic(items=300, users=8, dim=4, seed=0).save(tmp_path / "world")
    others = [word for name in ("HMAB", "ICTRUCB", "ConUCB", "CB-Category") for word in ("--without", name)]
    told = cli(
        "experiment", "rewards", tmp_path / "world", "-o", tmp_path / "run", "--users", 3, "--rounds", 10, "--repeats",
        1, "--processes", 1, "--budget", 20, "--widths", "4,16", *others, "--policy", TWO_STEP, "--policy", "beam",
        "--bandit", CONFIDENT,
    )  # fmt: skip
    assert "TwoStep Confident" in told
    assert "beam Confident" in told
    assert f'policy = "{TWO_STEP}"' in (tmp_path / "run" / "spec.toml").read_text()


def test_service_takes_code_from_settings_but_never_over_http(tmp_path):
    shop = tw.World.synthetic(items=200, users=2, dim=4, seed=0).catalogue
    shop.save(tmp_path / "items")
    (tmp_path / "settings.toml").write_text(f'policy = "{TWO_STEP}"\nbandit = "{CONFIDENT}"\nbudget = 20\n')
    options = ("--config", tmp_path / "settings.toml")
    assert "TwoStep with" in cli("serve", tmp_path / "items", *options, "--check", cwd=tmp_path).replace("\n", "")
    told = cli("serve", tmp_path / "items", *options, "--set", "strength=1", "--check", code=2, width=500)
    assert "strength must be 0: " in told
    assert "bandit.py:Confident declares no strength, got 1.0" in told
    (tmp_path / "empty.py").write_text("class Empty:\n    def rule(self, dim):\n        return None\n")
    told = cli("serve", tmp_path / "items", "--check", "--set", f"bandit={tmp_path / 'empty.py'}:Empty", code=2)
    assert "bandit must be a class whose rule(dim) returns a Rule, got 'None'" in told.replace("\n", " ")
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    with serving(tmp_path, tmp_path / "items", *options) as running:
        with httpx.Client(base_url=running.url) as http:
            told = http.post("/v1/recommend", json={"user": "ada", "n": 2}).json()
            assert len(told["items"]) == 2
            assert http.get("/v1/about").json()["policy"] == "TwoStep(Confident)"
            for body in ({"user": "ada", "policy": f"{trap}:Mine"}, {"user": "ada", "bandit": f"{trap}:Mine"}):
                assert http.post("/v1/recommend", json=body).status_code == 400
        with httpx.Client(base_url=running.admin) as http:
            for body in ({"policy": f"{trap}:Mine"}, {"items": f"{trap}:Mine"}, {"features": f"{trap}:Mine"}):
                assert http.post("/admin/snapshot", json=body).status_code in (400, 404, 409, 422), body
    assert not (tmp_path / "sprung").exists()
