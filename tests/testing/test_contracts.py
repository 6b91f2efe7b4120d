"""Everything registered keeps its promises, and the checks notice when one does not."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import treeward as tw
from treeward.bandit import BANDITS
from treeward.bandit.rules import Rule
from treeward.policy import HCB, POLICIES
from treeward.policy.session import Decisions, TreeSession
from treeward.store import STORES, MemoryStore
from treeward.store.opening import open_store
from treeward.testing import ContractBroken, check_bandit, check_policy, check_store


@pytest.mark.parametrize("name", BANDITS)
def test_registered_bandits_keep_their_promises(name):
    check_bandit(BANDITS[name]())


@pytest.mark.parametrize("bandit", BANDITS)
@pytest.mark.parametrize("name", POLICIES)
def test_registered_policies_keep_their_promises(name, bandit):
    made = POLICIES[name](BANDITS[bandit]())
    known = getattr(made, "families", None)
    if known is not None and made.bandit.rule(8).kind not in known:
        with pytest.raises(tw.InvalidArgument, match="bandit must be"):
            check_policy(made)
    else:
        check_policy(made)


@pytest.mark.parametrize("name", [name for name in STORES if name != "postgresql"])  # tests/store has a server
def test_registered_stores_keep_their_promises(name, tmp_path):
    address = name if name == "memory" else f"{name}:{tmp_path / 'events'}"
    check_store(lambda: open_store(address), durable=name != "memory")


def test_bandit_with_an_invalid_strength_is_noticed():
    class Stubborn:
        def rule(self, dim):
            return Rule(0, float("nan"), 1.0)

    with pytest.raises(ContractBroken, match="strength is finite"):
        check_bandit(Stubborn())


@dataclass(frozen=True)
class Popular(tw.HCB):
    """Everybody gets what earned most so far, from anybody: the smallest policy that shares state."""

    shared_state: ClassVar[bool] = True

    def session(self, tree, catalogue, users, *, once=False, seed=0):
        return PopularSession(len(catalogue), users, self.budget, once, seed)


class PopularSession:
    def __init__(self, items, users, budget, once, seed):
        self.items, self.budget, self.seed = items, budget, seed
        self.shown = np.zeros((users, items), dtype=bool) if once else None
        self.sums, self.counts = np.zeros(items), np.zeros(items)

    def select(self, users, nonce, allow=None):
        users, rows = np.asarray(users), []
        for user in users.tolist():
            drawn = np.random.default_rng((self.seed, user, nonce)).choice(self.items, self.budget, replace=False)
            known = np.flatnonzero(self.counts)[-self.budget // 2 :]
            arms = np.concatenate([drawn[: self.budget - len(known)], known])
            if allow is not None:
                arms = np.asarray(allow)[: self.budget]
            if self.shown is not None:
                arms = arms[~self.shown[user, arms]]
            best = arms[np.argmax((self.sums[arms] + 1) / (self.counts[arms] + 2))]
            if self.shown is not None:
                self.shown[user, best] = True
            rows.append(best)
        k = len(users)
        whole, real = np.zeros(k, dtype=np.int64), np.ones(k)
        return Decisions(
            users, whole + nonce, np.array(rows), np.array(rows), whole, real, real, real / self.items, real > 2,
            whole + self.budget,
        )  # fmt: skip

    def update(self, decisions, rewards):
        np.add.at(self.sums, decisions.item, rewards)
        np.add.at(self.counts, decisions.item, 1)


def test_policy_with_shared_state_runs_in_simulations_only():
    check_policy(Popular())
    shop = tw.Catalogue(range(20), np.eye(20, dtype=np.float32))
    with pytest.raises(tw.InvalidArgument, match="Popular.LinUCB., which shares state between users"):
        tw.Explorer(shop, policy=Popular())


@dataclass(frozen=True)
class ByRounds(tw.HCB):
    shared_state: ClassVar[bool] = True


@pytest.mark.parametrize("options", [{}, {"reward": "click", "repeats": False, "users": [3, 9, 4]}])
def test_running_round_by_round_equals_running_user_by_user(options):
    world = tw.World.synthetic(items=400, users=12, dim=8, seed=0)
    tree = tw.ItemTree.build(world.catalogue.vectors, (4, 16), seed=0)
    apart = tw.simulate(HCB(), world, tree, rounds=70, seed=5, regret=True, **options)
    together = tw.simulate(ByRounds(), world, tree, rounds=70, seed=5, regret=True, **options)
    for name in ("rewards", "expected", "best", "scores", "shown"):
        np.testing.assert_array_equal(getattr(apart, name), getattr(together, name), err_msg=name)


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (lambda made: made._replace(item=made.item + 600), "what is chosen is an item of the catalogue"),
        (lambda made: made._replace(item=made.item * 0), "shown once|another seed"),
        (lambda made: made._replace(propensity=made.propensity * 0), "propensities are probabilities"),
    ],
)
def test_a_policy_that_breaks_a_promise_is_noticed(change, promise):
    class Broken(TreeSession):
        def select(self, users, nonce):
            return change(super().select(users, nonce))

    class Policy(HCB):
        def session(self, tree, catalogue, users, *, once=False, seed=0):
            return Broken(self.plan(tree, catalogue, once=once), users, seed)

    with pytest.raises(ContractBroken, match=promise):
        check_policy(Policy())


class Forgetful(MemoryStore):
    def append(self, users, events, known=None, *, within=None, epoch=None):
        super().extend(users, np.ones(len(users), dtype=np.int64), events)
        return np.ones(len(users), dtype=bool)


class Shuffled(MemoryStore):
    def read(self, users, after=None, nonces=None):
        return [events[::-1] for events in super().read(users, after, nonces)]


class Clinging(MemoryStore):
    def move(self, source, target):
        return super().move(source, target) if target is not None else self.read([source])[0]


@pytest.mark.parametrize(
    ("store", "promise"),
    [
        (Forgetful, "is not added twice"),
        (Shuffled, "in the order they came"),
        (Clinging, "nothing is added for users of another epoch"),
    ],
)
def test_a_store_that_breaks_a_promise_is_noticed(store, promise):
    with pytest.raises(ContractBroken, match=promise):
        check_store(store)
