"""Features from a network that was trained on a log."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import treeward as tw
from treeward.cli.app import app
from treeward.core.errors import ArtefactCorrupt, ArtefactMissing, ArtefactVersion, InvalidArgument
from treeward.embed.features import LEVEL, unit

FAST = {"hidden": (24,), "dim": 8, "passes": 2, "users": 200}


@pytest.fixture(scope="module")
def world():
    return tw.World.synthetic(items=3_000, users=1_540, dim=16, seed=0, nonlinear=2.0)


@pytest.fixture(scope="module")
def log(world):
    return tw.random_log(world, range(40, 1_540), 100, seed=0)


@pytest.fixture(scope="module")
def network(world, log):
    return tw.NeuralLinear.fit(log, world.catalogue, hidden=(64, 32), dim=16, passes=12, seed=0)


def devices(count, seed=0):
    """Events of users who want the first half of the items on a phone and the second half at a desk."""
    random = np.random.default_rng(seed)
    vectors = np.concatenate([np.eye(2)[[0]].repeat(30, 0), np.eye(2)[[1]].repeat(30, 0)])
    shop = tw.Catalogue(np.arange(60), vectors + random.normal(0, 0.1, vectors.shape))
    users, items = random.integers(0, 60, count), random.integers(0, 60, count)
    device = random.choice(["phone", "desk"], count)
    rewards = ((items < 30) == (device == "phone")) & (random.random(count) < 0.8)
    return shop, tw.Interactions(users, items, rewards=rewards.astype(float)), pl.DataFrame({"device": device})


def test_the_network_earns_more_than_a_linear_map(world, log, network):
    """Newcomers: it foresees them better than a linear map, and the same policy earns more at the same budget."""
    linear = tw.NeuralLinear.fit(log, world.catalogue, hidden=(), dim=16, passes=12, seed=0)
    assert len(linear.weights) == 1
    assert network.provenance["loss"] < linear.provenance["loss"] < linear.provenance["loss_before"]
    earned = [
        tw.simulate(tw.HCB(features=features), world, rounds=200, users=40, seed=1, reward="click").cumulative[-1]
        for features in (None, network)
    ]
    assert earned[1] > 1.05 * earned[0], earned


def test_numpy_gives_the_same_features_as_torch(world, network):
    import torch

    x = np.column_stack([unit(world.catalogue.vectors), np.linalg.norm(world.catalogue.vectors, axis=1)])
    made = torch.from_numpy(x.astype(np.float32))
    for at, (weights, biases) in enumerate(zip(network.weights, network.biases, strict=True)):
        made = torch.nn.functional.linear(made, torch.from_numpy(weights.T.copy()), torch.from_numpy(biases))
        made = made.relu() if at + 1 < len(network.weights) else made
    mapped = network.mapped(world.catalogue.vectors)
    np.testing.assert_allclose(mapped[:, :-1], made.numpy(), atol=1e-5)
    assert (mapped[:, -1] == LEVEL).all()
    assert float((mapped**2).sum(axis=1).mean()) == pytest.approx(1.0, abs=1e-3)


def test_folding_changes_only_centre_and_scale_of_features(world, log, monkeypatch):
    """Standardisation, centring and scale, folded into the layers, change nothing but centre and scale."""
    from treeward.embed import neural

    kept = []

    def watched(items, *rest):
        kept.append((items, made := neural_train(items, *rest)))
        return made

    neural_train = neural.train
    monkeypatch.setattr(neural, "train", watched)
    made = tw.NeuralLinear.fit(log, world.catalogue, seed=2, **{**FAST, "passes": 1})
    items, trained = kept[0]
    x = np.maximum(items @ trained.weights[0] + trained.biases[0], 0) @ trained.weights[1] + trained.biases[1]
    x = x - x.mean(axis=0)
    x *= np.sqrt((1 - float(LEVEL) ** 2) / (x**2).sum(axis=1).mean())
    np.testing.assert_allclose(made.mapped(world.catalogue.vectors)[:, :-1], x, atol=1e-5)


def test_the_loss_is_the_likelihood_of_a_normal(world):
    """The batched, padded likelihood is the plain one: r ~ N(Z mean, s I + Z Z'), user by user."""
    import torch

    from treeward.learn.neural import Samples, Training, _Model

    random = np.random.default_rng(0)
    ends, codes = np.array([0, 3, 10, 11]), random.integers(0, 4, (11, 2))
    samples = Samples(ends, random.integers(0, 40, 11), codes, random.random(11).astype(np.float32))
    items = random.normal(size=(40, 5)).astype(np.float32)
    model = _Model(torch, torch.device("cpu"), items, samples, 3, Training((7,), 4, 0.1, 0.0, 1, 1, 0, "cpu"))
    for _ in range(5):
        model.learn(np.arange(3))
    found = model.loss(np.arange(3)).detach().numpy()
    weights, biases, gates = model.copies()
    h = np.maximum(items @ weights[0] + biases[0], 0) @ weights[1] + biases[1]
    level, spread, mean = model.level.item(), model.noise.exp().item(), model.mean.detach().numpy()
    assert (gates[0] == 0).all()
    for user in range(3):
        mine = slice(ends[user], ends[user + 1])
        z = np.column_stack([h[samples.row[mine]], np.full(ends[user + 1] - ends[user], level)])
        z = z * (1 + gates[codes[mine]].sum(axis=1))
        covariance, error = spread * np.eye(len(z)) + z @ z.T, samples.reward[mine] - z @ mean
        wanted = (error @ np.linalg.solve(covariance, error) + np.linalg.slogdet(covariance)[1]) / (2 * len(z))
        assert found[user] == pytest.approx(wanted, rel=1e-3)


def test_the_same_seed_gives_the_same_network(world, log):
    first, again, other = (tw.NeuralLinear.fit(log, world.catalogue, seed=seed, **FAST) for seed in (1, 1, 2))
    for one, two in zip(first.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first.weights[0], other.weights[0])


def test_loaded_features_work_without_torch(world, network, tmp_path):
    network.save(tmp_path / "features")
    again = tw.load_features(tmp_path / "features")
    np.testing.assert_array_equal(again.mapped(world.catalogue.vectors), network.mapped(world.catalogue.vectors))
    assert again.provenance == network.provenance
    assert repr(again) == "NeuralLinear(16 -> 16 dimensions)"
    world.catalogue.save(tmp_path / "items")
    code = f"""
import sys
from dataclasses import replace
sys.modules["torch"] = None
import treeward as tw
shop = tw.Catalogue.load({str(tmp_path / "items")!r})
features = tw.load_features({str(tmp_path / "features")!r})
explorer = tw.Explorer(shop, policy=tw.HCB(features=features), seed=0)
[made] = explorer.recommend(["ada"])
explorer.feedback({{made.id: 1.0}})
[more] = explorer.recommend(["ada"])
print(features.transform(shop).dim, made.item in shop.ids, explorer.tree.dim)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["16", "True", "16"]


def test_damaged_and_unknown_features_are_refused(world, network, tmp_path):
    world.catalogue.save(tmp_path / "items")
    with pytest.raises(ArtefactVersion, match=r"treeward\.catalogue"):
        tw.load_features(tmp_path / "items")
    with pytest.raises(ArtefactMissing):
        tw.load_features(tmp_path / "nowhere")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "manifest.json").write_text("{")
    with pytest.raises(ArtefactCorrupt):
        tw.load_features(tmp_path / "torn")
    broken = tw.NeuralLinear((network.weights[0],) * 3, network.biases, network.gates)
    broken.save(tmp_path / "broken")
    with pytest.raises(ArtefactCorrupt, match="layers that fit"):
        tw.load_features(tmp_path / "broken")
    wild = tw.NeuralLinear(network.weights, (network.biases[0] * np.nan, *network.biases[1:]), network.gates)
    wild.save(tmp_path / "wild")
    with pytest.raises(ArtefactCorrupt, match="finite"):
        tw.NeuralLinear.load(tmp_path / "wild")
    crossed = tw.Crossed(np.zeros(3, dtype=np.float32), np.zeros((2, 1), dtype=np.float32))
    crossed.save(tmp_path / "crossed")
    with pytest.raises(ArtefactCorrupt, match="shapes"):
        tw.load_features(tmp_path / "crossed")


def test_transform_is_idempotent_and_checks_dimensions(world, network, log):
    shop = world.catalogue
    seen = network.transform(shop)
    assert network.transform(seen) is seen
    assert seen.ids.equals(shop.ids)
    with pytest.raises(InvalidArgument, match="catalogue must be of 16 dimensions"):
        network.transform(tw.Catalogue([1, 2], np.eye(2)))
    with pytest.raises(InvalidArgument, match="vectors must be of 16 dimensions"):
        network.mapped(np.eye(2))
    prior = tw.Crowd.fit(log, seen, users=100)
    policy = tw.Beam(features=network, prior=prior)
    both = policy.catalogue_for(shop)
    assert both.dim == network.dim + 2
    assert policy.catalogue_for(both) is both
    tree = policy.grow(shop, 0)
    assert (tree.dim, tree.normalized) == (both.dim, False)
    plain = tw.ItemTree.build(shop.vectors, (4, 40), seed=0)
    for one in (tw.HCB(features=network), tw.PHCB(features=network), tw.Flat(features=network), policy):
        walked, catalogue = one.fitted(plain, shop)  # a tree over the items' own vectors is taken over
        assert walked.dim == catalogue.dim == one.catalogue_for(shop).dim
    with pytest.raises(InvalidArgument, match="features"):
        tw.HMAB(features=network).session(plain, shop, 1)


def test_a_context_changes_which_items_are_good():
    shop, log, contexts = devices(6_000)
    made = tw.NeuralLinear.fit(log, shop, contexts=contexts, **{**FAST, "passes": 30})
    assert made.contexts == {"device": ("desk", "phone")}
    np.testing.assert_array_equal(made.gate(None), np.ones(made.dim))
    np.testing.assert_array_equal(made.gate({"device": "watch"}), made.gate({}))
    seen = made.transform(shop).vectors

    def taught(gates):
        """Ridge regression of the rewards in gated features: what a posterior of one user for all would think."""
        z = seen[log.items.to_numpy()] * gates
        return np.linalg.solve(z.T @ z + np.eye(made.dim), z.T @ log.rewards.to_numpy())

    told = {name: made.gate({"device": name}) for name in ("phone", "desk")}
    theta = taught(np.array([told[name] for name in contexts["device"]]))
    phone, desk = (seen @ (theta * told[name]) for name in ("phone", "desk"))
    assert phone[:30].mean() > phone[30:].mean() + 0.4
    assert desk[30:].mean() > desk[:30].mean() + 0.4
    with pytest.raises(InvalidArgument, match="context must be of device"):
        made.gate({"place": "home"})
    with pytest.raises(InvalidArgument, match="texts and numbers"):
        made.gate({"device": None})


def test_saved_contexts_are_loaded(tmp_path):
    shop, log, contexts = devices(400)
    contexts = contexts.with_columns(pl.Series("hour", np.arange(400) % 3 + 8.0), pl.Series("none", [None] * 400))
    made = tw.NeuralLinear.fit(log, shop, contexts=contexts, **{**FAST, "passes": 2})
    made.save(tmp_path / "f")
    again = tw.NeuralLinear.load(tmp_path / "f")
    assert again.contexts == {"device": ("desk", "phone"), "hour": ("10", "8", "9"), "none": ()}
    context = {"device": "desk", "hour": 9}
    np.testing.assert_array_equal(again.gate(context), made.gate(context))
    np.testing.assert_array_equal(again.gate({"hour": 9}), again.gate({"hour": "9"}))
    assert not np.array_equal(again.gate({"hour": 9}), again.gate({"hour": 8}))


def test_bad_logs_are_refused(world, log):
    shop = world.catalogue
    fit = tw.NeuralLinear.fit
    with pytest.raises(InvalidArgument, match="with vectors"):
        fit(log, tw.Catalogue(shop.ids))
    with pytest.raises(InvalidArgument, match="rows, one per event"):
        fit(log, shop, contexts=pl.DataFrame({"a": [1]}))
    with pytest.raises(InvalidArgument, match="values per column"):
        fit(log, shop, contexts=pl.DataFrame({"a": np.arange(len(log))}))
    with pytest.raises(tw.DataError, match="at least 10"):
        fit(tw.Interactions([1, 2], [0, 1]), shop)
    with pytest.raises(tw.DataError, match="rewards no item"):
        fit(tw.Interactions([1, 2], [0, 1], rewards=[0, 0]), shop)
    for bad in ({"dim": 1}, {"hidden": (0,)}, {"passes": 0}, {"rate": 0}, {"negatives": 0}, {"seed": -1}):
        with pytest.raises(InvalidArgument, match=next(iter(bad))):
            fit(log, shop, **bad)


def test_missing_skips_are_drawn(world):
    from treeward.embed.neural import _encoded, _samples

    random = np.random.default_rng(0)
    users, items = np.repeat(np.arange(30), 5), random.integers(0, 3_000, 150)
    drawn = _samples(tw.Interactions(users, items), world.catalogue, _encoded(None, 150), 3, 20, 0)
    assert drawn.users == 20
    rewarded = drawn.reward > 0
    assert rewarded.sum() == 100
    assert 290 <= (~rewarded).sum() <= 300
    own = tw.Interactions(users, items, rewards=np.arange(150) % 2)  # a skip a reward
    assert len(_samples(own, world.catalogue, _encoded(None, 150), 1, 30, 0).row) == 150
    assert 280 <= len(_samples(own, world.catalogue, _encoded(None, 150), 3, 30, 0).row) <= 300
    busy = tw.Interactions(
        np.repeat(np.arange(12), 500), random.integers(0, 3_000, 6_000), rewards=np.arange(6_000) % 2
    )
    many = _samples(busy, world.catalogue, _encoded(None, 6_000), 3, 100, 0)
    assert np.diff(many.ends).tolist() == [200] * 12


def test_embed_neural_on_the_command_line(world, log, tmp_path):
    run = CliRunner().invoke
    log.table.write_parquet(tmp_path / "events.parquet")
    world.catalogue.save(tmp_path / "items")
    arguments = [
        "embed", "neural", str(tmp_path / "events.parquet"), "--items", str(tmp_path / "items"), "-o",
        str(tmp_path / "features"), "--save-items", str(tmp_path / "seen"), "--dim", "8", "--hidden", "16",
        "--passes", "2",
    ]  # fmt: skip
    told = run(app, arguments)
    assert told.exit_code == 0, told.output
    features = tw.load_features(tmp_path / "features")
    seen = tw.Catalogue.load(tmp_path / "seen")
    np.testing.assert_array_equal(seen.vectors, features.mapped(world.catalogue.vectors))
    assert isinstance(run(app, arguments).exception, tw.TreewardError)  # it is there already
    bad = run(app, [*arguments, "--force", "--hidden", "wide"])
    assert "--hidden must be integers separated by commas, got 'wide'" in str(bad.exception)
