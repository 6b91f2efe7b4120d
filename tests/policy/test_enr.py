"""ENR against a slow twin in float64: what the network predicts, what is chosen, and how it learns."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import treeward as tw
from treeward.core import rng
from treeward.core.errors import ExtraMissing
from treeward.experiment.presets import RIVALS
from treeward.experiment.spec import Spec
from treeward.learn.epinet import Epinet, Examples, Sizes, Steps
from treeward.policy.baselines.base import ROUND
from treeward.simulate.synthetic import vivid

USERS, ROUNDS = 4, 12
SMALL = {"width": 6, "hidden": 5, "index": 3, "steps": 3, "batch": 16, "indices": 2}


@pytest.fixture(scope="module")
def world():
    return tw.World.synthetic(items=120, users=USERS, dim=6, seed=7)


@pytest.fixture(scope="module")
def tree(world):
    return tw.ItemTree.build(world.catalogue.vectors, (5, 25), seed=0)


def layer(weights, name, x):
    raised = np.maximum(x @ weights[name] + weights[f"{name}_bias"], 0)
    apart = raised - raised.mean(axis=-1, keepdims=True)
    scaled = apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}_gain"] + weights[f"{name}_shift"]


def features(weights, context, item):
    left, right = layer(weights, "context", context), layer(weights, "item", item)
    return np.concatenate([left, right, left * right], axis=-1)


def perceptron(weights, name, x, z):
    """One pair of context and item at a time."""
    hidden = np.maximum(np.concatenate([x, z]) @ weights[f"{name}_in"] + weights[f"{name}_in_bias"], 0)
    return float((hidden @ weights[f"{name}_out"] + weights[f"{name}_out_bias"]) @ z)


def predicted(weights, scale, context, item, z, apart=None):
    """The mean and what z adds; `apart` are the weights of features through which no gradient flows."""
    x = features(weights, context, item)
    seen = x if apart is None else features(apart, context, item)
    added = perceptron(weights, "learned", seen, z) + perceptron(weights, "fixed", seen, z)
    return float(x @ weights["mean"] + weights["bias"][0]), scale * added


def in_double(net):
    return {name: one.astype(np.float64) for name, one in net.arrays().items()}


class Twin:
    """ENR in plain Python, with the weights that the session has at the time."""

    def __init__(self, session, once, budget=None):
        self.session, self.once, self.budget = session, once, budget
        vectors = np.array(session.vectors, dtype=np.float64)
        self.x = vectors / np.sqrt((vectors**2).mean())
        self.events = [[] for _ in range(USERS)]
        self.owed = self.catalogue()

    def sizes(self):
        return *self.session.net.sizes, len(self.x)

    def catalogue(self):
        _, item, width, hidden, _, items = self.sizes()
        return items * (item * width + 3 * width + width + width * 2 * hidden)

    def training(self):
        context, item, width, hidden, index, _ = self.sizes()
        count, batch, indices, _ = self.session.net.steps
        layers = batch * (context * width + item * width + 2 * 3 * width + width + 3 * width)
        net = batch * (3 * width * hidden + indices * (hidden * index + index)) + indices * index * hidden
        return count * (3 * layers + 3 * net + net)

    def deciding(self, varied):
        context, _, width, hidden, index, items = self.sizes()
        means = context * width + 3 * width + width + width + items * width
        ready = 2 * hidden * width + 2 * hidden * (width + index) + 2 * hidden * index + 2 * index
        return means + ready + varied * (2 * hidden * width + 2 * hidden)

    def context(self, user):
        mine = self.events[user]
        shown = [self.x[place] for place, _ in mine]
        earned = sum(reward for _, reward in mine)
        liked = sum((reward * self.x[place] for place, reward in mine), np.zeros(6))
        return np.concatenate([
            np.mean(shown, axis=0) if mine else np.zeros(6), liked / earned if earned else np.zeros(6),
            [len(mine) / (len(mine) + 10), earned / len(mine) if mine else 0],
        ])  # fmt: skip

    def choose(self, weights, user, turn):
        """Return the values of the places that are compared."""
        stream, seed = int(self.session.streams[user]), self.session.seed
        z = np.array([rng.normal(seed, stream, turn * ROUND + k) for k in range(3)])
        gone = {place for place, _ in self.events[user]} if self.once else set()
        left = [place for place in range(len(self.x)) if place not in gone]
        context = self.context(user)
        both = {place: predicted(weights, self.session.net.scale, context, self.x[place], z) for place in left}
        if self.budget is not None and self.budget < len(left):
            best = sorted(left, key=lambda place: -both[place][0])[: (self.budget + 1) // 2]
            rest = [place for place in left if place not in best]
            lane = rng.lane(seed, stream, turn * ROUND + (1 << 10))
            drawn = rng.sample(seed, lane, len(rest), self.budget - len(best))
            left = best + [rest[at] for at in drawn]
        return {place: both[place] for place in left}

    def play(self, world):
        who, share = np.arange(USERS), -(-self.owed // USERS)
        for turn in range(ROUNDS):
            weights = in_double(self.session.net)
            made = self.session.select(who, turn)
            for user, place in enumerate(made.place.tolist()):
                values = self.choose(weights, user, turn)
                best = max(sum(both) for both in values.values())
                assert sum(values[place]) == pytest.approx(best, abs=2e-4), turn
                assert made.mean[user] == pytest.approx(1 / (1 + np.exp(-values[place][0])), abs=1e-4)
                assert made.scores[user] == len(values)
                varied = len(self.x) if self.budget is None else len(values)
                assert made.work[user] == share + self.deciding(varied)
            rewards = world.chances(who, made.item) * (made.item % 3 > 0)
            told = [self.context(user) for user in range(USERS)]
            self.session.update(made, rewards)
            kept = self.session.net.examples
            np.testing.assert_allclose(kept.context[turn * USERS : (turn + 1) * USERS], told, rtol=1e-4, atol=1e-6)
            for user, place in enumerate(made.place.tolist()):
                self.events[user].append((place, float(rewards[user])))
            share = -(-(self.training() + self.catalogue()) // USERS)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("options", [{}, {"budget": 11}, {"strength": 2.0}])
def test_enr_follows_its_equations(world, tree, options, once):
    session = tw.ENR(**SMALL, **options).session(tree, world.catalogue, USERS, once=once, seed=3)
    Twin(session, once, options.get("budget")).play(world)


def test_every_decision_draws_an_index_of_its_own(world, tree):
    """Two users of whom nothing is known differ only in z, and one user differs from decision to decision."""
    session = tw.ENR(**SMALL).session(tree, world.catalogue, USERS, seed=3)
    shown = np.array([session.select(np.arange(USERS), turn).place for turn in range(30)])
    assert all(len(set(mine)) > 3 for mine in shown.T)
    assert any(len(set(together)) > 1 for together in shown)


ONE = Steps(1, 8, 3, 0.01)


def small_net(steps=ONE):
    items = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    net = Epinet(Sizes(5, 4, 6, 7, 3), items, 0.7, steps, seed=5)
    random = np.random.default_rng(1)
    net.add(Examples(random.standard_normal((40, 5)).astype(np.float32), random.integers(0, 20, 40),
                     random.random(40).astype(np.float32)))  # fmt: skip
    return net


def loss_of(weights, apart, scale, items, examples, z):
    total = 0.0
    for context, row, reward in zip(*examples, strict=True):
        for one in z:
            logit = sum(predicted(weights, scale, context, items[row], one, apart))
            total += np.log1p(np.exp(logit)) - reward * logit
    return total / len(z) / len(examples.row)


def test_loss_and_gradient_are_those_of_the_equations():
    net = small_net()
    examples, z = net.drawn_batch(0)
    weights, items = in_double(net), net.items.numpy().astype(np.float64)
    wide, z = Examples(examples.context.astype(float), examples.row, examples.reward.astype(float)), z.astype(float)

    def loss(changed):
        return loss_of(changed, weights, 0.7, items, wide, z)

    assert net.loss(examples, z.astype(np.float32)).item() == pytest.approx(loss(weights), rel=1e-5)
    net.items = torch.from_numpy(items)
    net.fixed = {name: one.double() for name, one in net.fixed.items()}
    net.weights = {name: one.detach().double().requires_grad_() for name, one in net.weights.items()}
    made = net.loss(wide, z)
    assert made.item() == pytest.approx(loss(weights), rel=1e-9)
    made.backward()
    for name, one in net.weights.items():
        told = one.grad.numpy().ravel()
        for at in {0, len(told) // 2, int(np.abs(told).argmax())}:
            ends = []
            for step in (1e-6, -1e-6):
                moved = weights[name].copy()
                moved.ravel()[at] += step
                ends.append(loss(weights | {name: moved}))
            assert told[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7), (name, at)
    assert all(one.grad is None for one in net.fixed.values())


def test_a_step_is_adams_and_the_fixed_network_stays():
    net, other = small_net(), small_net()
    before = net.arrays()
    other.loss(*other.drawn_batch(0)).backward()
    net.train()
    after = net.arrays()
    assert net.taken == 1
    for name, one in other.weights.items():
        gradient = one.grad.numpy()  # Adam's first step has the length of the rate, wherever there is a gradient
        expected = before[name] - 0.01 * gradient / (np.abs(gradient) + 1e-8)
        np.testing.assert_allclose(after[name], expected, rtol=1e-4, atol=1e-6, err_msg=name)
    for name in net.fixed:
        np.testing.assert_array_equal(after[name], before[name])


def test_minibatches_are_drawn_from_everything_seen():
    net = small_net(Steps(1, 400, 3, 0.01))
    first, z = net.drawn_batch(0)
    assert z.shape == (3, 3)
    assert len({tuple(one) for one in first.context.tolist()}) == 40
    assert (net.drawn_batch(1)[0].row != first.row).any()
    big = Examples(np.zeros((3_000, 5), dtype=np.float32), np.zeros(3_000, dtype=np.int64), np.ones(3_000, np.float32))
    net.add(big)  # more than there was room for
    assert net.count == 3_040
    np.testing.assert_array_equal(net.examples.row[40:3_040], 0)
    assert net.examples.row[:40].any()


def test_what_was_seen_often_varies_less_than_before():
    net = small_net(Steps(300, 32, 8, 0.01))
    random, context = np.random.default_rng(3), np.ones((1, 5), dtype=np.float32)
    z = random.standard_normal((200, 3)).astype(np.float32)

    def spread():
        everyone = np.repeat(context, len(z), axis=0)
        return np.std(net.varying(everyone, z, [None] * len(z)), axis=0)

    before = spread()
    net.count = 0
    net.add(
        Examples(np.repeat(context, 50, axis=0), np.repeat(np.arange(5), 10), np.tile([1, 0], 25).astype(np.float32))
    )
    net.train()
    after = spread()
    assert (after[:5] < 0.5 * before[:5]).all()
    assert after[:5].mean() < 0.5 * after[5:].mean()


def test_enr_learns_where_tastes_are_strong():
    easy = tw.World(*vivid(items=600, users=20, dim=8, seed=3))
    tree = tw.ItemTree.build(easy.catalogue.vectors, seed=0)
    made = tw.simulate(tw.ENR(), easy, tree, rounds=60, reward="click", repeats=False, seed=1)
    chance = tw.simulate(tw.Flat(budget=1), easy, tree, rounds=60, reward="click", repeats=False, seed=1)
    assert made.rewards.sum() > 1.5 * chance.rewards.sum()


def test_the_number_of_threads_does_not_change_the_result(world, tree):
    def run():
        return tw.simulate(tw.ENR(), world, tree, rounds=15, seed=2).rewards

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = run()
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        np.testing.assert_array_equal(run(), two)
    finally:
        torch.set_num_threads(before)


def test_enr_says_that_it_needs_torch_before_anything_is_computed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExtraMissing, match="ENR needs torch"):
        tw.ENR()
    arms = tuple(arm for arm in RIVALS if arm.label == "ENR")
    with pytest.raises(ExtraMissing, match="ENR needs torch: pip install 'treeward.train.'"):
        Spec("rivals", "synthetic", arms, reward="click").check()


def test_enr_is_imported_without_torch():
    line = "import sys, treeward as tw; tw.ENR(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", line], check=True)


def test_enr_refuses_what_it_cannot_use(world, tree):
    with pytest.raises(tw.InvalidArgument, match="bandit must be Thompson"):
        tw.ENR(tw.LinUCB()).session(tree, world.catalogue, 2)
    with pytest.raises(tw.InvalidArgument, match="prior must be None: it has no such thing"):
        tw.ENR(prior=tw.Prior()).session(tree, world.catalogue, 2)
    session = tw.ENR(**SMALL).session(tree, world.catalogue, 2)
    made = session.select([0, 1], 0)
    for bad in (-0.1, 1.5):
        with pytest.raises(tw.InvalidArgument, match="rewards must be from 0 to 1"):
            session.update(made, [bad, 0.5])
    assert session.net.count == session.net.taken == 0
    session.update(made, [1.0, 0.0])
    assert session.net.count == 2


@pytest.mark.parametrize(
    "name", ["width", "hidden", "index", "steps", "batch", "indices", "rate", "strength", "budget"]
)
def test_limits_of_enr(world, tree, name):
    lowest, below = {"rate": (1e-6, 0), "strength": (0, -0.1), "budget": (2, 1)}.get(name, (1, 0))
    session = tw.ENR(**{name: lowest}).session(tree, world.catalogue, 2)
    made = session.select([0, 1], 0)
    session.update(made, [1.0, 0.0])
    assert session.select([0, 1], 1).item.min() >= 0
    for value in (below, "1"):
        with pytest.raises(tw.InvalidArgument, match=rf": {name} must be"):
            tw.ENR(**{name: value}).session(tree, world.catalogue, 2)


def test_more_users_than_are_decided_at_once(world, tree):
    """Users come in groups, which must not change what each of them gets."""
    session = tw.ENR(**SMALL).session(tree, world.catalogue, 150, seed=3)
    other = tw.ENR(**SMALL).session(tree, world.catalogue, 150, seed=3)
    together = session.select(np.arange(150), 0).place
    np.testing.assert_array_equal(together[100:110], other.select(np.arange(100, 110), 0).place)
