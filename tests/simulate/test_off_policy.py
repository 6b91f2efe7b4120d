"""Off-policy estimates against the truth, logs of decisions, and replay."""

import numpy as np
import polars as pl
import pytest

import treeward as tw
from tests.commands import run as cli
from treeward.core.errors import InvalidArgument
from treeward.simulate import World, off_policy, simulate
from treeward.simulate.synthetic import vivid


@pytest.fixture(scope="module")
def world():
    return World(*vivid(items=40, users=300, dim=8, seed=4))


def logged(world, seed, rounds=20):
    policy = tw.Flat(tw.EpsilonGreedy(epsilon=0.5), budget=None)
    return simulate(policy, world, rounds=rounds, seed=seed, reward="click", log=True)


def liking(world):
    """A policy that leans to what is liked in general, and no more than leans."""
    appeal = np.mean([world.probabilities(user) for user in range(world.users)], axis=0)
    chances = appeal**1.5 / (appeal**1.5).sum()
    return lambda user: chances


def test_estimates_hold_the_truth(world):
    target = liking(world)
    truth = float(np.mean([target(user) @ world.probabilities(user) for user in range(world.users)]))
    told = [off_policy(logged(world, seed).log, target, world.chances_of, draws=200, seed=seed) for seed in range(25)]
    for name in ("ips", "snips", "dr"):
        estimates = [getattr(one, name) for one in told]
        inside = np.mean([one.low <= truth <= one.high for one in estimates])
        assert inside >= 0.84, name  # 25 intervals of 95 %
        values = np.array([one.value for one in estimates])
        assert abs(values.mean() - truth) < 3 * values.std() / 5 + 1e-4, name
    widths = {
        name: np.mean([getattr(one, name).high - getattr(one, name).low for one in told]) for name in ("ips", "dr")
    }
    assert widths["dr"] < widths["ips"]
    assert all(abs(one.logged.value - truth) > 0.005 for one in told)  # the log itself says something else
    assert 100 < told[0].effective < told[0].decisions == 6_000


def test_the_logging_policy_itself_is_worth_all_its_decisions():
    log = pl.DataFrame(
        {"user": ["a", "a", "b"], "row": [0, 1, 1], "slot": 0, "propensity": 0.5, "reward": [1.0, 0.0, None]}
    )
    told = off_policy(log, lambda user: [0.5, 0.5])
    assert told.ips.value == told.snips.value == told.logged.value == pytest.approx(1 / 3)
    assert told.dr.value == pytest.approx(1 / 3, abs=0.05)
    assert told.effective == pytest.approx(3)
    assert "doubly robust" in str(told)
    assert off_policy(log, lambda user: [0.0, 1.0], clip=1.0).ips.value == 0


def test_logs_without_support_are_reported(world):
    target = liking(world)
    fair = off_policy(logged(world, 0).log, target, draws=100)
    assert fair.supported
    assert "believe none" not in str(fair)
    once = simulate(
        tw.Flat(tw.EpsilonGreedy(0.5), budget=None), world, rounds=30, reward="click", repeats=False, log=True
    )
    greedy = simulate(tw.Flat(tw.LinUCB(), budget=None), world, rounds=20, reward="click", log=True)
    for result in (once, greedy):
        told = off_policy(result.log, target, draws=100)
        assert not told.supported
        assert "believe none" in str(told)
    guessed = simulate(tw.HCB(tw.Thompson(), budget=10), world, rounds=5, log=True)
    assert "of the propensities are exact" in str(off_policy(guessed.log, target, draws=100))
    alone = off_policy(fair_log_of_one(world), target, draws=100)
    assert np.isnan(alone.ips.low)


def fair_log_of_one(world):
    return logged(world, 0).log.filter(pl.col("user") == 3)


def test_bad_logs_and_targets_are_refused():
    log = pl.DataFrame({"user": [1, 2], "row": [0, 1], "slot": 0, "propensity": 0.5, "reward": 1.0})
    for bad, why in (
        (log.drop("propensity"), "a table with the columns user, row, slot, propensity, reward"),
        (log.with_columns(propensity=pl.lit(0.0)), "propensities above 0 and up to 1"),
        (log.with_columns(propensity=pl.lit(None)), "propensities above 0 and up to 1"),
        (log[:0], "of at least one decision"),
        ([1, 2], "a table with the columns"),
        (log.with_columns(reward=pl.lit(float("inf"))), "finite rewards"),
        (log.with_columns(reward=pl.lit("yes")), "rewards that are numbers"),
        (log.with_columns(row=pl.lit(-1)), "column 'row' holds integers from 0 on"),
        (log.with_columns(row=pl.lit(0.5)), "column 'row' holds integers from 0 on"),
        (log.with_columns(user=pl.lit(None)), "names the user of every decision"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            off_policy(bad, lambda user: [0.5, 0.5])
    for target, why in (
        (lambda user: [1.0], "for at least 2 items, because the log shows row 1"),
        (lambda user: [0.5, 0.4], "sum to 1"),
        (lambda user: [1.5, -0.5], "sum to 1"),
        (lambda user: [np.nan, 1.0], "the probability of every item"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            off_policy(log, target)
    with pytest.raises(InvalidArgument, match="a function of a user"):
        off_policy(log, [0.5, 0.5])
    with pytest.raises(InvalidArgument, match="gives 2 finite numbers"):
        off_policy(log, lambda user: [0.5, 0.5], lambda user: [1.0])


def test_a_logged_run_equals_the_run(world):
    policy = tw.HCB(tw.LinUCB(), budget=20)
    plain, told = (simulate(policy, world, rounds=30, seed=3, repeats=False, log=log) for log in (False, True))
    np.testing.assert_array_equal(plain.rewards, told.rewards)
    assert plain.log is None
    assert told.log.height == world.users * 30
    mine = told.log.filter(pl.col("user") == 5)
    np.testing.assert_allclose(mine["reward"].to_numpy(), told.rewards[5], rtol=1e-6)
    assert mine["item"].n_unique() == 30


def test_explorers_log_what_they_showed(world):
    explorer = tw.Explorer(world.catalogue, policy=tw.Flat(tw.EpsilonGreedy(0.3), budget=None), exposures="all", seed=0)
    made = explorer.recommend(["ada", "bob"], n=2) + explorer.recommend(["ada"])
    explorer.feedback({made[0].id: 1.0, made[4].id: 0.5})
    log = explorer.log()
    assert log.columns == ["user", "item", "row", "slot", "propensity", "exact", "adopted", "reward", "context"]
    assert log["exact"].all()
    told = log.sort("user", maintain_order=True).rows()
    wanted = [made[0], made[1], made[4], made[2], made[3]]
    assert [row[:2] for row in told] == [(one.user, one.item) for one in wanted]
    assert [row[3] for row in told] == [0, 1, 0, 0, 1]
    assert [row[4] for row in told] == pytest.approx([one.propensity for one in wanted])
    assert [row[7] for row in told] == [1.0, None, 0.5, None, None]
    explorer.publish()  # which the next one does at its start
    again = tw.Explorer(world.catalogue, policy=explorer.policy, store=explorer.store, exposures="all", seed=0)
    assert again.inspect.interests("ada") == explorer.inspect.interests("ada")  # what was shown teaches nothing
    explorer.forget("ada")
    assert explorer.log()["user"].to_list() == ["bob", "bob"]
    silent = tw.Explorer(world.catalogue, seed=0)
    silent.recommend([1])
    assert silent.log().height == 0
    numbers = tw.Explorer(world.catalogue, repeats=False, seed=0)
    numbers.recommend([1, 2])
    assert numbers.log()["user"].dtype == pl.Int64
    with pytest.raises(InvalidArgument, match="exposures must be one of needed, all"):
        tw.Explorer(world.catalogue, exposures="none")


# --- decisions that do not count, items that come later, and the command ---------------------------------------------


def drawing(world, **more):
    policy = tw.Flat(tw.EpsilonGreedy(0.5), budget=None)
    return tw.Explorer(world.catalogue, policy=policy, exposures="all", seed=0, memory=1 << 24, **more)


def played(explorer, world, users, rounds, luck=None):
    luck = luck or np.random.default_rng(0)
    for _ in range(rounds):
        shown = explorer.recommend(users)
        chances = world.chances([one.user for one in shown], [one.item for one in shown])
        explorer.feedback({one.id: float(luck.uniform() < chance) for one, chance in zip(shown, chances, strict=True)})


def test_adopted_decisions_are_marked_and_left_out(world, tmp_path):
    explorer = drawing(world)
    played(explorer, world, list(range(100)), 10)
    alone = off_policy(explorer.log(), liking(world), draws=50)
    best = int(np.argmax([world.probabilities(0)[item] for item in range(40)]))
    for user in range(100, 140):  # as a service does for those held out
        [made] = explorer.adopt(user, [best])
        explorer.feedback({made.id: 1.0})
    log = explorer.log()
    assert log.filter("adopted")["user"].to_list() == list(range(100, 140))
    told = off_policy(log, liking(world), draws=50)
    assert (told.left_out, alone.left_out) == (40, 0)
    assert told[:4] == alone[:4]
    assert "40 decisions left out: users held out, or items that the caller chose" in str(told)
    assert pl.read_csv(tw.write_open_bandit(log, world.catalogue, tmp_path) / "all.csv").height == 1_000
    with pytest.raises(InvalidArgument, match="got '40 that were all adopted'"):
        off_policy(log.filter("adopted"), liking(world))
    with pytest.raises(InvalidArgument, match="'adopted' holds booleans"):
        off_policy(log.with_columns(adopted=pl.lit("no")), liking(world))


@pytest.mark.parametrize("policy", [tw.Flat(), tw.CBLeaf(), tw.HCB(), tw.PHCB(), tw.Beam(), tw.Flat(budget=None)])
def test_decisions_of_a_policy_are_not_marked(policy, world):
    explorer = tw.Explorer(world.catalogue, policy=policy, exposures="all", memory=1 << 24)
    for _ in range(3):
        explorer.recommend(list(range(30)), n=2)
    assert not explorer.log()["adopted"].any()


def test_an_item_added_meanwhile_is_named_as_the_cause(world):
    explorer = drawing(world, spare=0.5)
    played(explorer, world, list(range(100)), 10)
    explorer.add(tw.Catalogue([9_001], world.catalogue.vectors[:1]))
    shown = explorer.recommend(list(range(100)), allow=[9_001])
    explorer.feedback({one.id: 1.0 for one in shown})
    target = liking(world)  # of the 40 items that there were
    with pytest.raises(
        InvalidArgument, match="for at least 41 items, because the log shows row 40, item 9001; an item"
    ):
        off_policy(explorer.log(), target)
    padded = off_policy(explorer.log(), lambda user: np.append(target(user), 0.0), draws=50)
    assert padded.decisions == 1_100


def test_few_decisions_and_few_users_are_reported(world):
    explorer = drawing(world)
    played(explorer, world, list(range(10)), 3)
    told = off_policy(explorer.log(), liking(world), draws=50)
    assert told.effective < 200
    assert "too few to believe any of these numbers" in str(told)
    assert "only 10 users" in str(told)
    assert off_policy(logged(world, 0).log, liking(world), draws=50).notes == []


@pytest.fixture(scope="module")
def shop(world, tmp_path_factory):
    """A folder with items, settings and a store whose policy drew, with some users held out."""
    folder = tmp_path_factory.mktemp("shop")
    world.catalogue.save(folder / "items")
    (folder / "settings.toml").write_text('items = "items"\npolicy = "flat"\nbandit = "epsilon"\nstrength = 0.5\n')
    with drawing(world, store=tw.SQLiteStore(folder / "events.db"), spare=0.5) as explorer:
        played(explorer, world, list(range(200)), 20)
        for user in range(200, 230):
            explorer.adopt(user, [0])
        explorer.add(tw.Catalogue([9_001], world.catalogue.vectors[:1]))
        explorer.recommend([1], allow=[9_001])
    return folder


def test_the_command_estimates_from_a_store(shop, world):
    before = (shop / "events.db").read_bytes()
    (shop / "one.csv").write_text("item,probability\n39,1.0\n")  # one item of 40, always
    out = ("-o", "told.parquet", "--save-log", "log.parquet")
    told = cli("off-policy", "events.db", "--config", "settings.toml", *out, "--draws", 200, cwd=shop, width=200)
    assert "from 4,001 decisions of 200 users" in told
    assert "note: 30 decisions left out: users held out" in told
    assert (
        "popular (80% of the time one of the 10 items that earned most with other users, else any): would have" in told
    )
    table = pl.read_parquet(shop / "told.parquet")
    assert table.filter(estimator="snips")["policy"].to_list() == ["uniform", "popular"]
    assert table["left_out"].unique().to_list() == [30]
    [uniform] = table.filter(policy="uniform", estimator="snips").rows(named=True)
    truth = float(np.mean([world.probabilities(user).mean() for user in range(200)]))
    assert uniform["supported"]
    assert uniform["low"] < truth < uniform["high"]
    assert (shop / "events.db").read_bytes() == before
    few = cli("off-policy", "events.db", "--config", "settings.toml", "-t", "one.csv", cwd=shop, width=400)
    assert "too few decisions count to say which is better" in few
    again = cli("off-policy", "log.parquet", "--items", "items", "-t", "uniform", "-o", "told.csv", cwd=shop, width=200)
    assert "from 4,001 decisions of 200 users" in again
    same = pl.read_csv(shop / "told.csv").filter(estimator="snips")["value"][0]
    assert same == pytest.approx(uniform["value"])


def test_the_command_reads_items_and_their_condition_as_the_service_does(shop, world, tmp_path):
    """A table whose ids are in a column of another name, and a condition that only some items fulfil."""
    table = {"sku": [f"s{i}" for i in range(40)], "emb": world.catalogue.vectors.tolist(), "stock": [1, 0] * 20}
    pl.DataFrame(table).with_columns(ean=pl.lit("e") + pl.col("sku")).write_parquet(tmp_path / "items.parquet")
    columns = {"id": "sku", "vector": "emb"}
    named = tw.Catalogue.load(tmp_path / "items.parquet", columns=columns)
    settings = 'items = "items.parquet"\ncolumns = ["id=sku", "vector=emb"]\npolicy = "flat"\nwhere = "stock > 0"\n'
    (tmp_path / "settings.toml").write_text(settings)
    store = tw.SQLiteStore(tmp_path / "events.db")
    policy = tw.Flat(tw.EpsilonGreedy(0.5), budget=None)
    with tw.Explorer(named, policy=policy, store=store, exposures="all", where=pl.col("stock") > 0) as explorer:
        for _ in range(3):
            shown = explorer.recommend(list(range(60)))
            explorer.feedback({one.id: float(int(one.item[1:]) < 20) for one in shown})
    config, draws = ("--config", "settings.toml"), ("--draws", 20)
    out = ("-o", "told.csv", "--save-log", "log.parquet")
    told = cli("off-policy", "events.db", *config, *draws, *out, cwd=tmp_path, width=400)
    assert "uniform (any of 20 items, all as likely)" in told
    before = (tmp_path / "told.csv").read_bytes()
    again = ("off-policy", "log.parquet", *config, *draws, "-o", "told.csv")
    assert "told.csv exists: choose another path, or overwrite it (--force)" in cli(*again, cwd=tmp_path, code=2)
    assert (tmp_path / "told.csv").read_bytes() == before
    assert "any of 20 items" in cli(*again, "--force", cwd=tmp_path, width=400)
    mapped = ("--column", "id=sku", "--column", "vector=emb")
    told = cli("off-policy", "log.parquet", "--items", "items.parquet", *mapped, *draws, cwd=tmp_path, width=400)
    assert "any of 40 items" in told
    for words in (("off-policy", "log.parquet"), ("off-policy", "events.db"), ("store", "check", "events.db")):
        wrong = cli(
            *words, "--items", "items.parquet", "--column", "id=ean", *mapped[2:], cwd=tmp_path, code=2, width=400
        )
        assert "If a column of the items holds their ids: --column id=NAME" in wrong
    assert "clean" in cli("store", "check", "events.db", "--items", "items.parquet", *mapped, cwd=tmp_path)
    (tmp_path / "settings.toml").write_text(settings.replace("stock > 0", "stock > 9"))
    for log in ("log.parquet", "events.db"):
        wrong = cli("off-policy", log, *config, cwd=tmp_path, code=2, width=400)
        assert "no item of the catalogue could be shown" in wrong


def test_the_command_takes_a_table_or_user_code(shop):
    rows = [f"{item},{0.5 if item < 2 else 0.0}" for item in range(4)]
    (shop / "ranking.csv").write_text("item,probability\n" + "\n".join(rows) + "\n")
    code = "def first(shop):\n    made = [0.5, 0.5, *[0.0] * (len(shop) - 2)]\n    return lambda user: made\n"
    (shop / "mine.py").write_text(code)
    told = ("off-policy", "log.parquet", "--items", "items", "-t", "ranking.csv", "-t", "mine.py:first")
    cli(*told, "-o", "own.csv", "--draws", 50, cwd=shop)
    one, other = (
        pl.read_csv(shop / "own.csv").filter(policy=name)["value"] for name in ("ranking.csv", "mine.py:first")
    )
    assert one.to_list() == other.to_list()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("none.db", "--items", "items"), "there is no such store"),
        (("events.db",), "--items must be given: a log alone does not say which items there were"),
        (("postgresql://u:hush@h/db", "--items", "items"), "LOG must be a file; copy a database to one first"),
        (("log.parquet",), "--items must be given"),
        (("none.parquet", "--items", "items"), "there is no such file"),
        (("events.db", "--items", "items", "-o", "told.xlsx"), "--out must be one of .csv, .parquet"),
        (("log.parquet", "--items", "items", "-t", "best"), "target must be one of uniform, popular, a table"),
        (("none.parquet", "--items", "items", "-t", "best"), "target must be one of uniform, popular, a table"),
        (("none.parquet", "--items", "items", "-t", "no.csv"), "target must be one of uniform, popular, a table"),
        (("log.parquet", "--items", "items", "-t", "odd.csv"), "must have the columns item and probability"),
        (("log.parquet", "--items", "items", "-t", "half.csv"), "must be at least 0 and sum to 1, not 0.5"),
        (("log.parquet", "--items", "items", "-t", "other.csv"), "has the item 77, which the catalogue lacks"),
        (("log.parquet", "--items", "items", "-t", "mine.py:none"), "a function of the catalogue that mine.py has"),
        (("odd.parquet", "--items", "items"), "a table with the columns user, row, slot, propensity, reward"),
    ],
)
def test_the_command_refuses_bad_input(words, why, shop):
    (shop / "odd.csv").write_text("item\n1\n")
    (shop / "half.csv").write_text("item,probability\n1,0.5\n")
    (shop / "other.csv").write_text("item,probability\n77,1\n")
    (shop / "mine.py").touch()
    pl.DataFrame({"user": [1]}).write_parquet(shop / "odd.parquet")
    if not (shop / "log.parquet").exists():
        logged(World(*vivid(items=40, users=3, dim=8, seed=4)), 0, rounds=2).log.write_parquet(shop / "log.parquet")
    told = cli("off-policy", *words, cwd=shop, code=2, width=500)
    assert why in told
    assert "hush" not in told
