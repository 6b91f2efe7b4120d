"""`treeward experiment closed-loop`: models that exploit, bandits that explore, and what can be learned from either."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import treeward as tw
from treeward.cli.app import app
from treeward.core.errors import DataError, InvalidArgument
from treeward.experiment.baselines import NextClickPolicy
from treeward.experiment.cells import _reached
from treeward.experiment.presets import SENSITIVITY, TABLE_4, closed_loop
from treeward.experiment.profile_quality import (
    Past,
    build_past,
    category_numbers,
    draw_trial,
    eligible,
    gini,
    judge,
    log_loss,
    most_diverse,
    recorded_clicks,
)
from treeward.experiment.report import render
from treeward.experiment.run import load
from treeward.experiment.spec import Arm, Judge, Spec
from treeward.experiment.summary import BEFORE, gaps, verdicts
from treeward.learn.next_click import NextClick
from treeward.simulate.fit_evidence import auc

GROUPS, EACH = 4, 15
PLAIN, BIASED = Judge("plain", decay=0.3), Judge("biased", biases=True, decay=0.5)


def tastes(users, seed=0):
    """Everybody likes one or two of four groups of items: what two users share, they share for a reason."""
    random = np.random.default_rng(seed)
    who, what = [], []
    for user in range(users):
        mine = [user % GROUPS, (user // GROUPS) % GROUPS]
        liked = np.concatenate([group * EACH + random.choice(EACH, 5, replace=False) for group in set(mine)])
        who += [f"u{user:03}"] * len(liked)
        what += [f"i{item:02}" for item in random.permutation(liked)]
    return tw.Interactions(who, what)


@pytest.fixture(scope="module")
def shop():
    names = [f"i{item:02}" for item in range(GROUPS * EACH)]
    return tw.Catalogue(names, categories=[f"g{item // EACH}" for item in range(GROUPS * EACH)])


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A folder with items and events, as tables have them."""
    path = tmp_path_factory.mktemp("log") / "events.csv"
    tastes(160).table.write_csv(path)
    return path


def test_gini_auc_and_log_loss_have_known_values():
    assert gini(np.array([1, 2, 3])) == pytest.approx(2 / 3)
    assert gini(np.array([1, -1, 2, -1])) == 0.5  # what has no category is left out
    assert gini(np.array([-1])) == 0
    random = np.random.default_rng(0)
    scores, truth = random.integers(0, 5, 60).astype(np.float32), random.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth] for b in scores[~truth]]
    assert auc(scores, truth) == pytest.approx(np.mean(pairs))
    chances = 1 / (1 + np.exp(-scores.astype(np.float64)))
    told = -np.log(np.where(truth, chances, 1 - chances)).mean()
    assert log_loss(scores, truth) == pytest.approx(told)
    assert np.isfinite(log_loss(np.array([1e4, -1e4]), np.array([False, True])))


def test_users_with_the_most_diverse_clicks_are_chosen(shop):
    tested = recorded_clicks(tastes(40), shop, "auto")
    clicks = tested.start
    chosen = most_diverse(clicks, eligible(tested, 3), shop, 8)
    spread = {user: gini(clicks.of(user) // EACH) for user in range(len(clicks))}
    assert min(spread[user] for user in chosen) >= sorted(spread.values())[-8]
    assert eligible(tested, 5) == [user for user in range(40) if len(clicks.of(user)) > 5]
    with pytest.raises(InvalidArgument, match=r"Gini impurity.*--pick random"):
        most_diverse(clicks, [0, 1], tw.Catalogue(shop.ids), 1)


@pytest.fixture(scope="module")
def past(shop):
    new = recorded_clicks(tastes(30, seed=1), shop, "auto")
    return build_past(tastes(120), new, eligible(new, 3), shop)


def test_samples_and_start_do_not_overlap(past, tmp_path):
    one, again, other = draw_trial(past, 3, seed=5), draw_trial(past, 3, seed=5), draw_trial(past, 3, seed=6)
    np.testing.assert_array_equal(one.start, again.start)
    assert (one.start != other.start).any()
    for user in range(past.users):
        samples = one.samples
        mine, asked = set(past.clicked(user).tolist()), samples.user == user
        clicked, others = (set(samples.item[asked & (samples.clicked == which)].tolist()) for which in (True, False))
        assert clicked | set(one.start[user].tolist()) == mine
        assert not clicked & set(one.start[user].tolist())
        assert len(others) == len(clicked)
        assert not others & mine
    past.save(tmp_path / "past")
    for mine, read in zip(past, Past.load(tmp_path / "past"), strict=True):
        np.testing.assert_array_equal(mine, read)


@pytest.mark.parametrize("how", [PLAIN, BIASED], ids=["plain", "biased"])
def test_a_judge_learns_from_true_clicks_and_not_from_coin_flips(past, how):
    """Collected clicks on the users' own groups teach a factorisation; coin flips do not."""
    tried = draw_trial(past, 3, seed=0)
    shown = np.tile(np.arange(GROUPS * EACH), (past.users, 1))
    own = np.array([np.isin(shown[0] // EACH, past.clicked(user) // EACH) for user in range(past.users)])
    coins = np.random.default_rng(0).random(shown.shape) < own.mean()
    nothing = judge(past, tried, shown[:, :0], own[:, :0].astype(np.float32), how, 0)
    truth = judge(past, tried, shown, own.astype(np.float32), how, 0)
    noise = judge(past, tried, shown, coins.astype(np.float32), how, 0)
    assert truth.auc > nothing.auc > noise.auc
    assert truth.log_loss < noise.log_loss
    again = judge(past, tried, shown, own.astype(np.float32), how, 0)
    assert (truth.auc, truth.log_loss) == (again.auc, again.log_loss)
    assert np.isnan([truth.auc_world, truth.log_loss_world]).all()  # there is no world


def test_a_judge_without_biases_cannot_know_popularity(past, monkeypatch):
    """P(click) = sigmoid(u'v): what it returns has no biases and no base rate."""
    import treeward.experiment.profile_quality as module

    kept, real = [], module.factorise
    monkeypatch.setattr(module, "factorise", lambda *args, **more: kept.append(real(*args, **more)) or kept[-1])
    tried = draw_trial(past, 3, seed=0)
    nothing = np.zeros((past.users, 0))
    for how in (PLAIN, BIASED):
        judge(past, tried, nothing.astype(np.int64), nothing.astype(np.float32), how, 0)
    plain, biased = kept
    assert not plain.user_bias.any()
    assert not plain.item_bias.any()
    assert biased.user_bias.any()
    assert biased.item_bias.any()
    assert min(plain.losses) < plain.losses[0]  # it learned


def test_the_world_labels_uniformly_drawn_items(past, shop, monkeypatch):
    users = list(range(past.users))
    world = tw.World(shop, np.ones((past.users, 1)), np.ones((len(shop), 1)), np.zeros(past.users), np.zeros(len(shop)))
    assert len(draw_trial(past, 3, 7, world, users).labelled.user) == past.users * (len(shop) // 20)
    monkeypatch.setattr("treeward.experiment.profile_quality._LABELLED_SHARE", 1)
    random = np.random.default_rng(0)
    liked = random.normal(size=(past.users, 2)).astype(np.float32)
    world = tw.World(shop, 3 * liked, random.normal(size=(len(shop), 2)), np.zeros(past.users), np.zeros(len(shop)))
    tried = draw_trial(past, 3, 7, world, users)
    labelled = tried.labelled
    assert len(labelled.user) == past.users * (len(shop) - 3)
    for user in range(past.users):
        mine = labelled.item[labelled.user == user]
        assert len(set(mine.tolist())) == len(mine)
        assert not set(mine.tolist()) & set(tried.start[user].tolist())
    chances = world.chances(labelled.user, labelled.item)
    assert abs(labelled.clicked.mean() - chances.mean()) < 0.05
    assert auc(chances.astype(np.float32), labelled.clicked) > 0.8
    shown = np.tile(np.arange(20), (past.users, 1))
    found = judge(past, tried, shown, np.zeros(shown.shape, np.float32), PLAIN, 0)
    assert 0 < found.auc_world < 1
    assert found.log_loss_world > 0


def impressions(users, seed=0):
    """A log with histories and impressions: clicks on two of the user's own group, three skips of others."""
    random = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        own = user % GROUPS * EACH
        history = own + random.choice(EACH, 6, replace=False)
        clicked = own + random.choice(np.setdiff1d(np.arange(EACH), history - own), 2, replace=False)
        skipped = random.choice(np.setdiff1d(np.arange(GROUPS * EACH), np.arange(own, own + EACH)), 3, replace=False)
        rows += [(f"u{user:03}", f"i{i:02}", 1.0, "history") for i in history]
        rows += [(f"u{user:03}", f"i{i:02}", 1.0, "click") for i in clicked]
        rows += [(f"u{user:03}", f"i{i:02}", 0.0, "skip") for i in skipped]
    who, what, reward, kind = zip(*rows, strict=True)
    return tw.Interactions(who, what, rewards=reward, actions=kind)


def test_impressions_are_the_samples_where_a_log_has_them(shop):
    tested = recorded_clicks(impressions(12, seed=1), shop, "auto")
    chosen = eligible(tested, 3)
    assert chosen == list(range(12))
    past = build_past(impressions(80), tested, chosen, shop)
    one, other = draw_trial(past, 3, seed=1), draw_trial(past, 3, seed=2)
    for mine, theirs in zip(one.samples, other.samples, strict=True):
        np.testing.assert_array_equal(mine, theirs)  # real samples are the same in every repeat
    assert one.samples.clicked.sum() == 12 * 2
    assert (~one.samples.clicked).sum() == 12 * 3
    groups = one.samples.item // EACH
    assert ((groups == one.samples.user % GROUPS) == one.samples.clicked).all()
    assert (one.start // EACH == np.arange(12)[:, None] % GROUPS).all()
    assert not np.isin(one.start, one.samples.item[one.samples.clicked]).all()
    assert len(past.skip_user) == 80 * 3  # the judge trains on logged skips
    assert past.old_shown.sum() == 80 * 2
    assert not set((past.skip_user * 60 + past.skip_item).tolist()) & set((past.old_user * 60 + past.old_item).tolist())
    nothing = np.zeros((12, 0))
    found = judge(past, one, nothing.astype(np.int64), nothing.astype(np.float32), PLAIN, 0)
    assert found.auc > 0.7  # who is of a group clicks in it
    drawn = recorded_clicks(impressions(12, seed=1), shop, "drawn")
    assert drawn.asked is None
    assert (
        len(draw_trial(build_past(impressions(80), drawn, eligible(drawn, 3), shop), 3, 1).samples.user) == 12 * 2 * 5
    )
    with pytest.raises(InvalidArgument, match="samples must be auto or drawn: the log has no impressions"):
        recorded_clicks(tastes(5), shop, "impressions")


def test_clicks_on_impressions_are_compared_with_skips_and_others_with_drawn_items(shop):
    """Otherwise a judge would learn which items were ever shown, and not who likes them."""
    from treeward.experiment.profile_quality import _non_clicks

    tested = recorded_clicks(impressions(6, seed=1), shop, "auto")
    past = build_past(impressions(80), tested, eligible(tested, 3), shop)
    logged = past.skip_user * past.items + past.skip_item
    clicks = past.old_user * past.items + past.old_item
    for negatives, share in ((1, 160 / 240), (4, 1.0)):  # 160 clicks on impressions, 240 skips
        user, item = _non_clicks(past, negatives, 0)
        pairs = user * past.items + item
        assert np.isin(logged, pairs).mean() == pytest.approx(share)
        assert not np.isin(pairs, clicks).any()
        drawn = ~np.isin(pairs, logged)
        wanted = negatives * len(clicks) - (~drawn).sum()
        assert 0.6 * wanted < drawn.sum() <= wanted  # some that are drawn were clicked or skipped


def test_items_of_the_history_are_no_samples(shop):
    log = impressions(6, seed=1)
    again = log.table.filter(pl.col("action") == "history").group_by("user").first()
    more = pl.concat([log.table, again.with_columns(pl.lit("click").alias("action")).select(log.table.columns)])
    tested = recorded_clicks(tw.Interactions.of_table(more), shop, "auto")
    past = build_past(impressions(80), tested, eligible(tested, 3), shop)
    for user in range(6):
        assert not np.isin(past.clicked(user), past.asked_item[past.asked_user == user]).any()


def test_judges_do_not_learn_from_their_samples(past):
    tried = draw_trial(past, 3, seed=0)
    shown = np.stack([tried.samples.item[tried.samples.user == user][:4] for user in range(past.users)])
    answers = np.random.default_rng(0).random(shown.shape) < 0.5
    nothing = judge(past, tried, shown[:, :0], answers[:, :0].astype(np.float32), PLAIN, 0)
    assert judge(past, tried, shown, answers.astype(np.float32), PLAIN, 0)[:2] == nothing[:2]


def test_items_without_a_category_have_no_group(past, shop):
    some = tw.Catalogue(["a", "b", "c"], categories=["x", None, "y"])
    assert category_numbers(some).tolist()[1] == -1 < min(category_numbers(some)[[0, 2]])
    world = tw.World(tw.Catalogue(shop.ids), np.zeros((1, 1)), np.zeros((len(shop), 1)), [0.0], np.zeros(len(shop)))
    shown = np.tile(np.arange(4), (past.users, 1))
    impurity, reached = _reached(world, shown, SimpleNamespace(rewards=np.ones_like(shown, dtype=np.float32)))
    assert impurity == 0
    assert not reached.any()


def test_users_may_begin_with_clicks(shop):
    world = tw.World.synthetic(items=300, users=6, dim=8, seed=1)
    start = np.array([[1, 2], [5, 9], [0, 299], [7, 8], [3, 4], [11, 10]])
    for policy in (tw.HCB(), tw.PHCB(), tw.Flat(), tw.Beam()):
        began = tw.simulate(policy, world, rounds=40, reward="click", repeats=False, log=True, start=start)
        fresh = tw.simulate(policy, world, rounds=40, reward="click", repeats=False, log=True)
        rows = began.log["row"].to_numpy().reshape(6, 40)
        assert not any(np.isin(mine, known).any() for mine, known in zip(rows, start, strict=True))
        assert (rows != fresh.log["row"].to_numpy().reshape(6, 40)).any()  # they were taught
    session = tw.HCB().session(tw.ItemTree.build(world.catalogue.vectors, (4, 16)), world.catalogue, 2)
    before = session.state.posterior.theta[0].copy()
    session.update(session.met([0], [17]), [1.0])
    assert (session.state.posterior.theta[0] != before).any()
    assert (session.state.posterior.theta[1] == before).all()
    for wrong in ([[1, 2]], [1, 2, 3, 4, 5, 6], [[300]] * 6, [[0.5]] * 6):
        with pytest.raises(InvalidArgument, match="start must be 6 lists of equal length"):
            tw.simulate(tw.HCB(), world, rounds=2, start=wrong)
    with pytest.raises(InvalidArgument, match="rounds must be"):
        tw.simulate(tw.HCB(), world, rounds=299, repeats=False, start=start)
    rested = tw.simulate(tw.HCB(), world, rounds=30, repeats=5, regret=True, start=start)
    assert (rested.best >= rested.expected - 1e-6).all()
    with pytest.raises(InvalidArgument, match="start must be left out: the policy knows only what it showed itself"):
        tw.simulate(tw.ConUCB(tw.LinUCB()), tw.World.synthetic(items=300, users=6, dim=8), rounds=2, start=start)


def test_clicks_change_what_a_next_click_model_shows(shop):
    train = tastes(200)
    model = NextClick.fit("linear", train, tastes(40, 2), shop, 8, start=tw.svd_vectors(train, shop, 8).vectors)
    items = shop.with_vectors(model.vectors)
    session = NextClickPolicy(model=model).session(tw.ItemTree.flat(items.vectors), items, 3, once=True)
    first = session.select([0, 1, 2], 0)
    assert len(set(first.item.tolist())) == 1  # nobody is known: what is most likely of all
    session.update(session.met([0, 1], [2 * EACH, 3 * EACH]), [1.0, 1.0])
    for turn in range(1, 6):
        made = session.select([0, 1, 2], turn)
        assert (made.item[:2] // EACH == [2, 3]).all()
        assert made.item[0] != 2 * EACH
        assert made.item[1] != 3 * EACH
        session.update(made, [1.0, 1.0, 0.0])
    assert session.select([2], 6).item[0] not in first.item  # shown once
    assert made.work[0] > made.work[2] == 0  # only clicks give work


ARMS = ("popularity", "random", "LinTS", "LinEG", "HTS", "HEG", "pHTS", "pHEG", "Transformer")


@pytest.fixture(scope="module")
def outcome(log, tmp_path_factory):
    """A whole run, with few arms."""
    events = pl.read_csv(log)
    folder = tmp_path_factory.mktemp("loop")
    items = pl.DataFrame({"item": events["item"].unique().sort()}).with_columns(
        ("g" + (pl.col("item").str.slice(1).cast(pl.Int64) // EACH).cast(pl.String)).alias("category")
    )
    data = tw.load_dataset(str(log))
    shop = tw.Catalogue(items["item"], categories=items["category"])
    type(data)(data.name, shop, data.interactions, data.splits, source=data.source).save(folder / "data")
    call = ["experiment", "closed-loop", str(folder / "data"), "-o", str(folder / "run"), "--users", "12"]
    call += ["--rounds", "20", "--repeats", "2", "--dim", "8", "--processes", "2"]
    done = CliRunner().invoke(app, call + [word for arm in ARMS for word in ("--without", arm)])
    assert done.exit_code == 0, done.output
    return folder / "run", done.output


def test_the_closed_loop_runs_and_reports(outcome):
    folder, said = outcome
    made = load(folder)
    told = verdicts(made)
    assert [one.arm for one in told] == [BEFORE, "Linear", "GRU", "LinUCB", "HUCB", "pHUCB", "Beam"]
    for one in told[1:]:
        assert 0 < one.found.auc.mean < 1
        assert 0 < one.found.auc_world.mean < 1
        assert one.found.log_loss.mean > 0
        assert 0 < one.clicks <= 20
        assert 1 <= one.categories <= GROUPS
        assert 0 <= one.gini <= 0.75
        assert 0 < one.coverage <= 1
    assert [(claim.above, claim.below) for claim in gaps(made, "auc")] == [
        (ours, theirs) for ours in ("HUCB", "pHUCB", "Beam") for theirs in ("Linear", "GRU")
    ]
    labels = [one.label for one in made.spec.judges]
    assert labels == ["the paper's: no biases", "with biases"]
    assert verdicts(made, labels[0])[1].found.auc.mean != verdicts(made, labels[1])[1].found.auc.mean
    table = made.verdicts.filter(pl.col("collected"), judge=labels[0], arm="HUCB").sort("repeat")["auc"]
    other = made.verdicts.filter(pl.col("collected"), judge=labels[0], arm="GRU").sort("repeat")["auc"]
    [claim] = [one for one in gaps(made, "auc") if str(one) == "HUCB above GRU"]
    assert claim.gap.mean == pytest.approx((table - other).mean())
    [turned] = [one for one in gaps(made, "log_loss") if str(one) == "HUCB above GRU"]
    losses = {one.arm: one.found.log_loss.mean for one in told}
    assert turned.gap.mean == pytest.approx(losses["GRU"] - losses["HUCB"])
    assert "LogLoss" in said
    page = (folder / "report.html").read_text()
    for words in (
        "nothing collected",
        "What happened to the users",
        "HUCB above GRU",
        "recall@20",
        "NDCG@10",
        "paper, MIND, AUC",
        "0.723",
        "no biases, 4 negatives per click",
        "AUC, world labels",
    ):
        assert words in page
    table = pl.read_csv(folder / "report.csv")
    assert {"auc", "log_loss", "auc_world", "gini"} <= set(table.columns)
    reached = made.rewards.filter(pl.col("arm") == "HUCB").sort("repeat", "user", "round")["reached"].to_numpy()
    assert (np.diff(reached.reshape(24, -1), axis=1) >= 0).all()
    assert TABLE_4["MIND"]["pHUCB"] == (0.680, 0.723)


def test_the_report_shows_how_fragile_the_order_is(outcome):
    made = load(outcome[0])
    assert "How fragile" not in render(made).decode()
    assert "--judge-sensitivity shows how much" in render(made).decode()
    assert "for the same 12 users" in render(made).decode()
    more = [made.verdicts.filter(judge=made.spec.judges[0].label)] * len(SENSITIVITY)
    found = [part.with_columns(judge=pl.lit(one.label)) for part, one in zip(more, SENSITIVITY, strict=True)]
    spec = replace(made.spec, judges=made.spec.judges + SENSITIVITY)
    page = render(made._replace(spec=spec, verdicts=pl.concat([made.verdicts, *found]))).decode()
    for words in ("How fragile the order is", "10 negatives, decay 0.1", "1 negatives, decay 0.005"):
        assert words in page
    answers = [one.gap.answer for one in gaps(made, "auc") if one.above != "Beam"]
    counts = [answers.count(answer) for answer in ("yes", "no", "not distinguishable")]
    assert (outcome[0] / "report-judges.csv").exists()
    assert f"{counts[0]} yes, {counts[1]} no, {counts[2]} not distinguishable" in page


def test_a_damaged_or_missing_part_is_made_again(outcome):
    folder, _ = outcome
    before = load(folder)
    (folder / "next-gru" / "manifest.json").unlink()
    (folder / "past" / "manifest.json").write_text("rubbish")
    gone = sorted((folder / "cells").iterdir())[0]
    (gone / "manifest.json").unlink()
    done = CliRunner().invoke(app, ["experiment", "run", str(folder / "spec.toml"), "-o", str(folder)])
    assert done.exit_code == 0, done.output
    after = load(folder)
    same = [name for name in before.cells.columns if name != "seconds"]
    assert before.cells.select(same).equals(after.cells.select(same))
    assert before.rewards.equals(after.rewards)
    assert before.verdicts.equals(after.verdicts)


def test_bad_input_is_refused(log, tmp_path):
    def refusal(*more):
        done = CliRunner().invoke(app, ["experiment", "closed-loop", str(log), "-o", str(tmp_path / "x"), *more])
        assert done.exit_code != 0
        return done

    assert "--pick random" in str(refusal("--rounds", "20").exception)  # the table has no categories
    assert "has enough clicks to start from 30: begin with fewer (--start 29)" in str(
        refusal("--pick", "random", "--start", "30", "--rounds", "9").exception
    )
    tw.World.synthetic(items=50, users=10, dim=4).save(tmp_path / "world")
    done = CliRunner().invoke(app, ["experiment", "closed-loop", str(tmp_path / "world"), "-o", str(tmp_path / "y")])
    assert "data must be a log" in str(done.exception)
    with pytest.raises(InvalidArgument, match="start must be"):
        closed_loop(str(log), start=0).check()
    assert "the log has no impressions" in str(
        refusal("--pick", "random", "--samples", "impressions", "--rounds", "9").exception
    )
    assert "vectors must be one of auto, svd, gru, text, text-gru, or the path" in str(
        refusal("--vectors", "x").exception
    )
    with pytest.raises(InvalidArgument, match="labels that are all different"):
        closed_loop(str(log), judges=(PLAIN, PLAIN)).check()
    with pytest.raises(InvalidArgument, match="decay must be"):
        closed_loop(str(log), judges=(Judge("x", decay=-1.0),)).check()
    with pytest.raises(InvalidArgument, match="start must be 0: it learns only from what it showed itself"):
        Spec("mine", str(log), (Arm("HMAB", "hmab"),), start=2).check()
    assert "at most 57, the number of items less the 3" in str(refusal("--pick", "random", "--rounds", "58").exception)
    done = CliRunner().invoke(
        app, ["experiment", "rewards", str(tmp_path / "world"), "-o", str(tmp_path / "z"), "--vectors", "svd"]
    )
    assert done.exit_code == 1
    none = np.zeros(0, int)
    rows = (np.zeros(1, int), np.zeros(1, int), np.zeros(1, bool), none, none, np.arange(5), np.array([0, 5]))
    with pytest.raises(DataError, match="clicked every item"):
        draw_trial(Past(*rows, none, none, none > 0, 5), 3, 0)


def test_judges_go_to_toml_and_back():
    made = closed_loop("data", vectors="gru", judge_sensitivity=True)
    assert Spec.from_toml(made.to_toml()) == made
    with pytest.raises(InvalidArgument, match="'negativs'"):
        Spec.from_toml(made.to_toml().replace("negatives = 10", "negativs = 10"))
    with pytest.raises(InvalidArgument, match="a list of tables"):
        Spec.from_toml('name = "x"\ndata = "d"\njudges = 3\narms = []')


def test_saved_vectors_are_found_by_id(log, tmp_path):
    names = [f"i{item:02}" for item in range(GROUPS * EACH)]
    random = np.random.default_rng(3)
    vectors = random.normal(size=(len(names), 6))
    order = random.permutation(len(names))
    tw.Catalogue([names[i] for i in order], vectors[order]).save(tmp_path / "vectors")
    call = ["experiment", "bases", str(log), "--users", "4", "--rounds", "5", "--repeats", "1", "--processes", "1"]
    walks = ("{}", "CB-Category {}", "CB-Leaf {}", "H{}", "pH{}")
    gone = {walk.format(base) for walk in walks for base in ("UCB", "TS", "EG")} - {"UCB", "HUCB"}
    call += [word for label in sorted(gone) for word in ("--without", label)]
    done = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "run"), "--vectors", str(tmp_path / "vectors")])
    assert done.exit_code == 0, done.output
    made = tw.World.load(tmp_path / "run" / "world").catalogue
    numbers = [int(id[1:]) for id in made.ids.to_list()]
    np.testing.assert_allclose(made.vectors, vectors[numbers].astype(np.float32))
    assert load(tmp_path / "run").prepared["dim"] == 6
    tw.Catalogue(names[:50], vectors[:50]).save(tmp_path / "few")
    done = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "no"), "--vectors", str(tmp_path / "few")])
    assert "lacks 10 of them" in str(done.exception)
    tw.Catalogue(names).save(tmp_path / "bare")
    done = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "no"), "--vectors", str(tmp_path / "bare")])
    assert "a catalogue with vectors" in str(done.exception)


def test_several_worlds_are_fitted_and_reused(log, tmp_path):
    call = ["experiment", "bases", str(log), "--users", "4", "--rounds", "5", "--repeats", "2", "--processes", "1"]
    walks = ("{}", "CB-Category {}", "CB-Leaf {}", "H{}", "pH{}")
    gone = {walk.format(base) for walk in walks for base in ("UCB", "TS", "EG")} - {"UCB", "HUCB"}
    call += [word for label in sorted(gone) for word in ("--without", label)] + ["--dim", "4"]
    done = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "two"), "--worlds", "2"])
    assert done.exit_code == 0, done.output
    made = load(tmp_path / "two")
    assert made.rewards["repeat"].n_unique() == 4
    worlds = [tw.World.load(tmp_path / "two" / name) for name in ("world", "world-2")]
    assert (worlds[0].tastes.users != worlds[1].tastes.users).any()
    assert worlds[0].user_ids.equals(worlds[1].user_ids)
    assert "2 refitted worlds" in (tmp_path / "two" / "report.html").read_text()
    done = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "one"), "--prepared", str(tmp_path / "two")])
    assert done.exit_code == 0, done.output
    for seed in (0, 1):
        tw.load_dataset(str(log), seed=seed).save(tmp_path / f"split-{seed}")
    some = [*call[:2], str(tmp_path / "split-0"), *call[3:]]
    assert CliRunner().invoke(app, [*some, "-o", str(tmp_path / "split")]).exit_code == 0
    other = [*call[:2], str(tmp_path / "split-1"), *call[3:], "-o", str(tmp_path / "no")]
    done = CliRunner().invoke(app, [*other, "--prepared", str(tmp_path / "split")])
    assert "prepared must be a run on the same data" in str(done.exception)  # its training users are tested here
    first = made.rewards.filter(pl.col("repeat") < 2).select("arm", "repeat", "user", "round", "cumulative_reward")
    assert load(tmp_path / "one").rewards.select(first.columns).equals(first)
