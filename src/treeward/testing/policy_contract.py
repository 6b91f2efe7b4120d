"""The contracts of a bandit and of a policy."""

import numpy as np

from treeward.bandit import Bandit, Prior
from treeward.core.types import AnyArray
from treeward.engine.explore import Belief, Candidates, Draws, best_of
from treeward.engine.layout import CrowdArrays
from treeward.engine.posterior import Posterior, learn, reset
from treeward.explorer.explorer import Explorer
from treeward.policy.base import Policy
from treeward.simulate.run import simulate
from treeward.simulate.synthetic import vivid
from treeward.simulate.world import World
from treeward.testing.contract import require
from treeward.tree.item_tree import ItemTree


def check_bandit(bandit: Bandit) -> None:
    """Check that a bandit gives a valid rule, explores, learns which arm is best, and depends only on its seed.

    Examples
    --------
    >>> from treeward.bandit import LinUCB
    >>> check_bandit(LinUCB(alpha=0.5))
    """
    dim, rule = 4, bandit.rule(4)
    require(rule.kind in range(4), "the rule's kind is one of those in treeward.bandit.rules")
    require(np.isfinite(rule.strength) and rule.strength >= 0, "the rule's strength is finite and not negative")
    require(np.isfinite(rule.ridge) and rule.ridge > 0, "the rule's ridge is finite and above 0")
    made, arms = Posterior.empty(1, 1, dim), np.eye(dim, dtype=np.float32)
    reset(made, 0, Prior().start(dim, rule.ridge))
    candidates, z = Candidates.empty(dim, dim), np.empty(dim, dtype=np.float32)
    candidates.vectors[:] = arms

    def choices(seed: int) -> list[int]:
        belief = Belief(made.inverse[0, 0], made.theta[0, 0], CrowdArrays.none().root)
        return [
            best_of(rule.kind, rule.strength, belief, candidates.vectors, candidates, Draws(seed, 0, turn << 16))
            for turn in range(1_000)
        ]

    require(set(choices(0)) == set(range(dim)), "every arm is tried while nothing is known")
    for _ in range(400):
        for arm in range(dim):
            learn(made, 0, 0, arms[arm], 1.0 if arm == 2 else 0.0, z)
            candidates.visits[arm] += 1
            candidates.rewards[arm] += 1.0 if arm == 2 else 0.0
    require(np.bincount(choices(0)).argmax() == 2, "an arm that is known to be best is taken most often")
    require(choices(1) == choices(1), "the same seed gives the same choices")


def check_policy(policy: Policy) -> None:
    """Check that a policy keeps its budget, shows existing items, learns, and depends only on its seed and the events.

    For a policy without shared state also: users do not affect each other, a batch equals single decisions, feedback
    may come late and out of order, and an `Explorer` rebuilds the same state from the events.

    Examples
    --------
    >>> from treeward.policy import HCB
    >>> check_policy(HCB())
    """
    world = World(*vivid(items=600, users=40, dim=8, seed=3))  # easy enough to learn in 120 rounds
    tree = ItemTree.build(world.catalogue.vectors, (5, 25), seed=0)
    rounds = 120

    def run(**options: object) -> AnyArray:
        result = simulate(policy, world, tree, rounds=rounds, **options)  # type: ignore[arg-type]
        if policy.budget is not None:
            allowed = policy.budget * (2 if policy.split == "authors" else 1)
            require(result.scores.max() <= allowed, f"at most {allowed} scores per round")
        return result.rewards

    rewards = run(seed=1)
    require(
        np.array_equal(rewards, run(seed=1, threads=1)), "the same seed gives the same run, on any number of threads"
    )
    require(not np.array_equal(rewards, run(seed=2)), "another seed gives another run")
    require(rewards.sum(axis=1).mean() > 1.2 * rounds * world.base_rate(), "it earns more than random items")
    session = policy.session(tree, world.catalogue, 40, once=True, seed=1)
    shown: dict[int, set[int]] = {user: set() for user in range(40)}
    for turn in range(20):
        made = session.select(range(40), turn)
        for user, item in zip(made.user.tolist(), made.item.tolist(), strict=True):
            require(0 <= item < 600, "what is chosen is an item of the catalogue")
            require(item not in shown[user], "an item is shown once, if once is asked for")
            shown[user].add(item)
        require(((made.propensity > 0) & (made.propensity <= 1)).all(), "propensities are probabilities")
        session.update(made, world.chances(made.user, made.item))
    few = [(37 * i) % 600 for i in range(60)]
    made = policy.session(tree, world.catalogue, 40, seed=1).select(range(40), 0, allow=few)
    require(set(made.item.tolist()) <= set(few), "only allowed items are shown, if there is a list of them")
    if not policy.shared_state:
        _check_users_apart(policy, world, tree)
    if policy.replayable and not policy.shared_state:
        _check_explorer(policy, world, tree)


def _check_users_apart(policy: Policy, world: World, tree: ItemTree) -> None:
    together, apart = (policy.session(tree, world.catalogue, 4, seed=5) for _ in range(2))
    for turn in range(30):
        made = together.select(range(4), turn)
        singles = [apart.select([user], turn) for user in (2, 0, 3, 1)]
        for single in singles:
            [user] = single.user.tolist()
            mine = made.take([user])
            same = all(getattr(mine, name).tobytes() == getattr(single, name).tobytes() for name in single._fields)
            require(same, "deciding for users together is deciding for them one by one")
            apart.update(single, world.chances(single.user, single.item))
        together.update(made, world.chances(made.user, made.item))


def _check_explorer(policy: Policy, world: World, tree: ItemTree) -> None:
    live = Explorer(world.catalogue, tree, policy, seed=0, crowd=False)
    waiting = []
    for turn in range(40):
        waiting.append(live.recommend(["ada"])[0])
        if turn % 3 == 2:  # late, and the last first
            rewards = {made.id: float(made.mean > 0.1 or turn % 2) for made in waiting[::-1][:2]}
            live.feedback(rewards)
            before = live.store.counts(["ada"])[0]
            live.feedback(rewards)
            require(live.store.counts(["ada"])[0] == before, "feedback given again changes nothing")
    rebuilt = Explorer(world.catalogue, tree, policy, live.store, seed=0, crowd=False)
    for one, other in zip(live.inspect.interests("ada"), rebuilt.inspect.interests("ada"), strict=True):
        require(one == other, "the state rebuilt from the events equals the live one, to the bit")
