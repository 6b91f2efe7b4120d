"""Beyond one process: tasks in processes and on Ray, trees over shards, experiments; the same to the bit everywhere."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run as cli
from tests.waiting import wait_until
from tests.work import die, die_once, double, halves, read_shared, refuse, rest
from treeward.core.errors import DataError, InvalidArgument, TreewardError
from treeward.core.tasks import RETRIES, Processes, tasks
from treeward.data.synthetic import synthetic_catalogue
from treeward.experiment import run
from treeward.experiment.cells import SHARD, cells_of
from treeward.experiment.presets import REWARDS, rewards

WAYS = ("processes", "ray")

TORTURE = bool(os.environ.get("TORTURE"))


@pytest.fixture(scope="module")
def cluster():
    """One Ray for all tests here: starting one takes seconds."""
    import ray

    ray.init("local", num_cpus=2, log_to_driver=False, include_dashboard=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()


@pytest.fixture(params=WAYS)
def way(request):
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return request.param


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_results_come_back_with_their_numbers(way):
    with tasks(way, 2) as workers:
        assert dict(workers.each(double, [(i,) for i in range(7)])) == {i: 2 * i for i in range(7)}


def test_arrays_stay_with_the_tasks_until_requested(way):
    numbers = np.arange(1_000, dtype=np.float32)
    with tasks(way, 2) as workers:
        held = workers.put(numbers)
        one, other = workers.start(halves, held, 300, parts=2)
        [twice] = workers.start(double, one)
        workers.wait(twice)
        assert np.array_equal(workers.get(twice), 2 * numbers[:300])
        assert np.array_equal(workers.get(other), numbers[300:])
        workers.free([held, one, other, twice])


def test_errors_of_workers_keep_their_type(way):
    with tasks(way, 2) as workers:
        with pytest.raises(InvalidArgument, match="task: number must be another, got 3"):
            list(workers.each(refuse, [(3,)]))
        with pytest.raises(InvalidArgument, match="task: number must be another, got 4"):
            workers.get(workers.start(refuse, 4)[0])
        with pytest.raises(TreewardError, match="returned 1 arrays, not 2"):
            workers.get(workers.start(double, 4, parts=2)[0])


def test_work_of_a_killed_worker_is_repeated(way, tmp_path):
    with tasks(way, 2) as workers:
        flags = [str(tmp_path / str(i)) for i in range(3)]
        assert dict(workers.each(die_once, [(flag, i) for i, flag in enumerate(flags)])) == {0: 1, 1: 2, 2: 3}
        [ref] = workers.start(die_once, str(tmp_path / "kept"), np.arange(3))
        assert workers.get(ref).tolist() == [1, 2, 3]


def test_retries_are_counted_per_call(tmp_path):
    """Eight pieces whose workers are each killed once: none of them was killed often."""
    with Processes(1, tmp_path) as workers:
        pieces = [(str(tmp_path / str(i)), i) for i in range(8)]
        assert dict(workers.each(die_once, pieces)) == {i: i + 1 for i in range(8)}


def test_single_process_is_the_current_one():
    with tasks("processes", 1) as workers:
        assert dict(workers.each(os.getpid, [()])) == {0: os.getpid()}
        assert workers.get(workers.start(double, workers.put(np.arange(3)))[0]).tolist() == [0, 2, 4]
        with pytest.raises(InvalidArgument):
            list(workers.each(refuse, [(1,)]))


def fail_beside_a_long_one():
    with tasks("processes", 2) as workers:
        workers.start(rest, 600)
        workers.get(workers.start(refuse, 1)[0])


def test_workers_stop_after_an_error():
    began = time.monotonic()
    with pytest.raises(InvalidArgument):
        fail_beside_a_long_one()
    assert time.monotonic() - began < 300


def test_work_that_kills_its_worker_every_time_is_given_up(tmp_path):
    with Processes(1, tmp_path) as workers, pytest.raises(TreewardError, match=f"tried {RETRIES + 1} times"):
        list(workers.each(die, [(1,)]))


def test_workers_can_read_a_shared_folder(way, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "deep").write_text("hello")
    (tmp_path / "secret").write_text("not this")
    with tasks(way, 2) as workers:
        shared = workers.share(tmp_path, ["in", "absent"])
        assert [told for _, told in workers.each(read_shared, [(shared, "in/deep")] * 3)] == ["hello"] * 3


def test_unknown_place_for_workers_is_refused():
    with pytest.raises(InvalidArgument, match="on must be processes, ray, or ray://host:port"), tasks("spark"):
        pass
    with pytest.raises(InvalidArgument, match="processes must be"), tasks("processes", 0):
        pass


# --- trees ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vectors():
    return np.array(synthetic_catalogue(24_000, dim=8, seed=3).vectors)


@pytest.fixture(scope="module")
def folder(vectors, tmp_path_factory):
    made = tmp_path_factory.mktemp("shards")
    one, two, three = np.split(vectors, [9_000, 9_100])
    np.save(made / "a.npy", one)
    pl.DataFrame({"vector": two.tolist(), "other": range(100)}).write_parquet(made / "b.parquet")
    np.save(made / "c.npy", three.astype(np.float64))
    (made / "notes.txt").write_text("not a shard")
    return made


@pytest.fixture(scope="module")
def sharded(folder):
    return tw.ItemTree.from_shards(folder, seed=5)


def error(tree, vectors):
    return tree.describe(vectors).levels[-1].error


def test_sharded_tree_is_as_good_as_a_local_one(sharded, vectors):
    alone = tw.ItemTree.build(vectors, seed=5)
    assert sharded.widths == alone.widths == (39, 1500)
    for mine, theirs in zip(sharded.describe(vectors).levels, alone.describe(vectors).levels, strict=True):
        assert mine.error <= (1.005 if mine.leaves else 1.02) * theirs.error
    assert sharded.provenance["made_by"] == "from_shards"
    leaf = sharded.leaves[7]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert sharded.vectors[leaf] == pytest.approx(unit[sharded.items_of(leaf)].mean(axis=0), abs=1e-6)


@contextlib.contextmanager
def killing(way, most):
    """Kill workers while something is going on, at most so many; yield those that were."""
    stop, killed = threading.Event(), []

    def kill():
        while not stop.wait(0.02) and len(killed) < most:
            for pid in [one for one in workers_of(way) if one not in killed][:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    stop.wait(0.4)  # so that the next one has begun something

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def test_ray_and_processes_make_the_same_tree_while_workers_are_killed(way, folder, sharded):
    killed, wanted = [], 3 if way == "processes" or TORTURE else 1
    while len(killed) < wanted:  # a build may be done before that many were killed
        with killing(way, wanted - len(killed)) as now:
            made = tw.ItemTree.from_shards(folder, seed=5, on=way, processes=2)
        killed += now
        assert all(np.array_equal(one, other) for one, other in zip(made.arrays, sharded.arrays, strict=True))
        assert made.provenance == sharded.provenance


def processes():
    """Return the number, the parent's number and the command line of everything that runs."""
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
            yield int(name), int(Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[1]), words


def family(pid):
    """Return a process and all that it started, and those started."""
    parents, found = {one: parent for one, parent, _ in processes()}, [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def workers_of(way):
    """Return the processes that compute for this one."""
    found = []
    for name, parent, words in processes():
        # Ray's agents are named like its workers, but a machine goes with its agents.
        if (way == "ray" and words.startswith((b"ray::_kept", b"ray::run_cell"))) or (
            way == "processes" and parent == os.getpid() and b"spawn_main" in words
        ):
            found.append(name)
    return found


@pytest.mark.parametrize(
    ("widths", "options"),
    [
        ((30, 1_200), {"normalize": False}),
        ((10, 300), {}),
        ((), {}),
        ((1_100,), {"max_leaf": 15}),
        ((7,), {"max_leaf": 2_500, "normalize": False}),
    ],
)
def test_sharded_build_takes_other_shapes(folder, vectors, widths, options):
    made = tw.ItemTree.from_shards(folder, widths, **options)
    alone = tw.ItemTree.build(vectors, widths, **options)
    assert error(made, vectors) <= 1.01 * error(alone, vectors)
    if "max_leaf" in options:
        sizes = np.diff(made.item_range[made.leaves]).ravel()
        assert sizes.max() <= options["max_leaf"]
        assert sizes.sum() == len(vectors)
    else:
        assert made.widths == alone.widths


@pytest.mark.parametrize(
    ("distinct", "rows", "widths"), [(8, 2_400, (1_100,)), (20, 1_000, (200,)), (1, 60, (50,)), (20, 1_000, (10, 900))]
)
def test_few_different_vectors_leave_no_leaf_empty(tmp_path, distinct, rows, widths):
    points = np.random.default_rng(0).normal(size=(distinct, 8)).astype(np.float32)
    points = points[np.arange(rows) % distinct]
    np.save(tmp_path / "a.npy", points[: rows // 2])
    np.save(tmp_path / "b.npy", points[rows // 2 :])
    made = tw.ItemTree.from_shards(tmp_path, widths, processes=1)
    assert made.widths == widths
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    for leaf in made.leaves:
        assert made.vectors[leaf] == pytest.approx(unit[made.items_of(leaf)].mean(axis=0), abs=1e-6)
    if distinct <= widths[-1]:
        assert error(made, points) == pytest.approx(0, abs=1e-9)


def test_sharded_tree_does_not_depend_on_the_files(tmp_path):
    points = np.array(synthetic_catalogue(3_000, dim=4, seed=1).vectors)
    made = []
    for number, cuts in enumerate(([], [1], [5, 1_500, 1_501])):
        folder = tmp_path / str(number)
        folder.mkdir()
        for part, rows in enumerate(np.split(points, cuts)):
            np.save(folder / f"{part}.npy", rows)
        made.append(tw.ItemTree.from_shards(folder, (1_050,), processes=1))
    for other in made[1:]:
        assert all(np.array_equal(one, two) for one, two in zip(made[0].arrays, other.arrays, strict=True))


def test_shards_written_by_other_tools_are_read(tmp_path):
    folder = tmp_path / "s[1]"
    folder.mkdir()
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    table = pl.DataFrame({"vector": points[:20]}, schema={"vector": pl.Array(pl.Float32, 3)})
    table.write_parquet(folder / "a.parquet")
    np.save(folder / "b.npy", np.asfortranarray(points[20:].astype(">f8")))
    made = tw.ItemTree.from_shards(folder, (5,), processes=1)
    assert all(np.array_equal(a, b) for a, b in zip(made.arrays, tw.ItemTree.build(points, (5,)).arrays, strict=True))


def test_error_names_the_bad_shard(tmp_path):
    with pytest.raises(InvalidArgument, match="a folder of .npy or .parquet files"):
        tw.ItemTree.from_shards(tmp_path / "nowhere")
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    with pytest.raises(InvalidArgument, match="a folder that exists"):
        tw.ItemTree.from_shards(tmp_path, scratch=tmp_path / "nowhere")
    np.save(tmp_path / "b.npy", np.ones((4, 2)))
    with pytest.raises(InvalidArgument, match="3 in a.npy, 2 in b.npy"):
        tw.ItemTree.from_shards(tmp_path)
    np.save(tmp_path / "b.npy", np.array([[1, 2, 3], [1, np.nan, 3]]))
    with pytest.raises(DataError, match=r"b.npy: row 1 is not finite"):
        tw.ItemTree.from_shards(tmp_path)
    np.save(tmp_path / "b.npy", np.ones(4))
    with pytest.raises(DataError, match=r"b.npy: cannot be read as vectors \(float64\(4,\) is no matrix"):
        tw.ItemTree.from_shards(tmp_path)
    (tmp_path / "b.npy").write_bytes(b"rubbish")
    with pytest.raises(DataError, match="b.npy: cannot be read as vectors"):
        tw.ItemTree.from_shards(tmp_path)
    (tmp_path / "b.npy").unlink()
    pl.DataFrame({"vector": [[1.0, 2.0, 3.0], [1.0, 2.0]]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match="b.parquet: .*not of 3 numbers"):
        tw.ItemTree.from_shards(tmp_path)
    pl.DataFrame({"vector": [None, [1.0, 2.0]]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match="b.parquet: .*first vector is missing"):
        tw.ItemTree.from_shards(tmp_path)
    with pytest.raises(DataError, match="b.parquet: .*no column 'emb', only vector"):
        tw.ItemTree.from_shards(tmp_path, column="emb")


def test_command_builds_from_shards(folder, sharded, tmp_path):
    told = cli("tree", "build", folder, "--seed", 5, "-o", tmp_path / "tree")
    assert "24,000" in told
    made = tw.ItemTree.load(tmp_path / "tree")
    assert all(np.array_equal(one, other) for one, other in zip(made.arrays, sharded.arrays, strict=True))
    told = cli("tree", "build", folder / "a.npy", "--on", "ray", "-o", tmp_path / "other", code=2)
    assert "--on must be used with a folder of shards" in told


# --- experiments ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "world"
    tw.World.synthetic(items=300, users=700, dim=4, seed=1).save(path)
    made = rewards(str(path), users=500, rounds=12, repeats=2, budget=20, widths=(5, 40))
    labels = ("LinUCB", "ICTRUCB", "HUCB", "pHUCB")
    return replace(made, arms=tuple(arm for arm in REWARDS if arm.label in labels))


@pytest.fixture(scope="module")
def outcome(spec, tmp_path_factory):
    return run(spec, tmp_path_factory.mktemp("run") / "here", processes=2)


def test_independent_users_run_in_parts(spec, outcome, tmp_path):
    cells = cells_of(spec, 500)
    assert len(cells) == 2 * (3 * 2 + 1)
    assert {cell.last - cell.first for cell in cells} == {SHARD, 500}
    tree = tw.ItemTree.build(tw.World.load(spec.data).catalogue.vectors, (5, 40), seed=0)
    arm = next(arm for arm in spec.arms if arm.label == "HUCB")
    from treeward.experiment.run_folder import cell_seed

    whole = tw.simulate(
        arm.build(20), tw.World.load(spec.data), tree, rounds=12, users=outcome.prepared["users"],
        seed=cell_seed(0, 1), regret=True,
    )  # fmt: skip
    mine = outcome.rewards.filter(arm="HUCB", repeat=1, round=12)
    assert mine["cumulative_reward"].to_numpy() == pytest.approx(whole.per_user, rel=1e-6)
    told = outcome.cells.filter(arm="HUCB", repeat=1).row(0, named=True)
    assert told["coverage"] == pytest.approx(whole.coverage)
    assert told["scores"] == pytest.approx(whole.scores.mean())
    assert told["most_scores"] == whole.settings["most_scores"]
    assert told["multiplications"] == pytest.approx(whole.settings["multiplications"])


def test_ray_and_processes_give_the_same_rewards(cluster, spec, outcome, tmp_path):
    """While its workers are killed."""
    killed, made, wanted = [], None, 2 if TORTURE else 1
    while len(killed) < wanted:
        with killing("ray", wanted - len(killed)) as now:
            made = run(spec, tmp_path / f"run-{len(killed)}", on="ray")
        killed += now
    same = [name for name in outcome.cells.columns if name != "seconds"]
    assert made.rewards.equals(outcome.rewards)
    assert made.cells.select(same).equals(outcome.cells.select(same))


def listening(port):
    """Whether anything accepts connections at a port of this machine."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def unused_ports(count):
    """Ports that nothing listens at, below those that the system hands out to callers in the meantime."""
    drawn = random.Random(os.getpid()).sample(range(21_000, 31_000), 100)
    return [port for port in drawn if not listening(port)][:count]


def test_command_builds_a_tree_on_a_remote_cluster(tmp_path, folder):
    """Build a tree on a separate cluster, reached through its client port as from another machine."""
    port, client = unused_ports(2)
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    short = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the names of its sockets must be short
    words = [ray, "start", "--head", f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2",
             "--include-dashboard=false", f"--temp-dir={short}"]  # fmt: skip
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=300)
        # The command returns before its client server listens; on a busy machine that takes many seconds more.
        wait_until(lambda: listening(client), "the cluster's client port listens", seconds=300)
        address = f"ray://127.0.0.1:{client}"
        cli("tree", "build", folder, "--seed", 5, "--widths", "40", "--on", address, "-o", tmp_path / "tree")
        assert tw.ItemTree.load(tmp_path / "tree").widths == (40,)
    finally:
        for pid in {one for first, _, words in processes() if short.encode() in words for one in family(first)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(short, ignore_errors=True)


def test_address_without_a_cluster_is_refused(folder, tmp_path):
    told = cli("tree", "build", folder, "--on", "ray://127.0.0.1:9", "-o", tmp_path / "tree", code=2)
    assert "no cluster answers there" in told
    assert "Traceback" not in told
