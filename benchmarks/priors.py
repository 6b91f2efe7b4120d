"""Measure how well `try_prior` judges priors, and what a tree built with one is worth: ``python benchmarks/priors.py``.

Shops: 2,000 products, 2,700 visitors in the log and 300 new users, whose real clicks are known; with categories and
without. Worlds: those of `vivid`, 600 users in the log and 300 new users.
"""

import argparse
from collections.abc import Callable
from itertools import product

import numpy as np
import polars as pl

import treeward as tw
from treeward.simulate.synthetic import vivid

ITEMS, VISITORS, LOGGED, ROUNDS, DIM = 2_000, 3_000, 2_700, 30, 16
SEEDS = range(3, 6)
"""On 0 to 2 it was chosen how far behind the list a prior must be to be called worse."""
WEIGHTS = {
    "every event 1": {"view": 1.0, "cart": 1.0, "buy": 1.0},
    "0.1, 0.5, 1": {"view": 0.1, "cart": 0.5, "buy": 1.0},
    "views are skips": {"view": 0.0, "cart": 1.0, "buy": 1.0},
    "views left out": {"cart": 1.0, "buy": 1.0},
}
Chances = Callable[[np.ndarray, np.ndarray], np.ndarray]


def shop(seed: int, kinds: int, likes: int, named: bool) -> tuple[tw.Catalogue, tw.Interactions, Chances]:
    """Return products, a log of views, carts and purchases, and the chance that a visitor clicks a product."""
    draw = np.random.default_rng(seed)
    kind, popular = draw.integers(0, kinds, ITEMS), 1 / (1 + draw.permutation(ITEMS)) ** 0.7
    liked = np.array([draw.choice(kinds, likes, replace=False) for _ in range(VISITORS)])
    events = []
    for visitor in range(LOGGED):
        weight = popular * np.where(np.isin(kind, liked[visitor]), 15, 1)
        for row in draw.choice(ITEMS, draw.integers(4, 14), replace=False, p=weight / weight.sum()):
            luck = draw.random()
            did = ["view"] + ["cart"] * int(luck < 0.18) + ["buy"] * int(luck < 0.08)
            events += [(visitor, f"SKU-{row}", one) for one in did]
    titles = [f"kind{one} style{row % 37} make{row % 11}" for row, one in enumerate(kind)]
    names = [f"kind{one}" for one in kind] if named else None
    products = tw.Catalogue([f"SKU-{row}" for row in range(ITEMS)], titles=titles, categories=names)
    who, what, did = zip(*events, strict=True)

    def chances(visitors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        drawn = np.where((kind[rows][:, None] == liked[visitors]).any(axis=1), 8, 1)
        return np.clip(0.04 * (popular[rows] / popular.mean()) ** 0.3 * drawn, 0, 0.9)

    return products, tw.Interactions(who, what, actions=did), chances


def clicks(policy: tw.Beam, tree: tw.ItemTree, items: tw.Catalogue, chances: Chances, worth: dict[str, float]) -> float:
    """Return the real clicks per recommendation; the policy gets them by the log's weights."""
    draw, new = np.random.default_rng(5), np.arange(LOGGED, VISITORS)
    session, total = policy.session(tree, items, len(new), once=True, seed=0), 0.0
    for turn in range(ROUNDS):
        made = session.select(np.arange(len(new)), turn)
        chance = chances(new, made.item)
        total += float(chance.mean())
        clicked, luck = draw.random(len(new)) < chance, draw.random(len(new))
        reward = np.where(luck < 0.08, worth["buy"], np.where(luck < 0.18, worth["cart"], worth.get("view", 0)))
        session.update(made, clicked * reward if worth.get("view") else clicked.astype(float))
    return total / ROUNDS


def warned() -> None:
    """Compare what `try_prior` says of 192 priors with what they really earn, next to a list of the most popular."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed, (kinds, likes), named in product(SEEDS, ((20, 2), (8, 1)), (True, False)):
        products, log, chances = shop(seed, kinds, likes, named)
        train, held = pl.Series(range(2_000)), pl.Series(range(2_000, LOGGED))
        fixed = {
            "texts": tw.text_vectors(products, DIM, model="static"),
            "all clicks": tw.svd_vectors(log.of_users(train), products, DIM),
            "noise": products.with_vectors(np.random.default_rng(0).normal(size=(ITEMS, DIM))),
        }
        for name, worth in WEIGHTS.items():
            mine = log.weighed(worth)
            own = tw.svd_vectors(mine.of_users(train), products, DIM)
            for how, items in {**fixed, "own clicks": own}.items():
                prior = tw.Crowd.fit(mine.of_users(train), items, seed=0)
                policy, best = tw.Beam(prior=prior), np.argsort(-prior.rates, kind="stable")[:ROUNDS]
                new = np.arange(LOGGED, VISITORS)
                by_list = float(np.mean([chances(new, np.full(len(new), row)).mean() for row in best]))
                real = clicks(policy, policy.grow(items), items, chances, worth) / by_list
                tried = tw.try_prior(prior, mine.of_users(held), items)
                found[tried.worse].append(real)
                said = "warned of" if tried.worse else ""
                where = f"{seed} {kinds:2} {'categories' if named else 'none':10}"
                print(f"{where} {name:16} {how:11} earns {real:.2f} of the list  {said}", flush=True)
    for worse, shares in found.items():
        told = ", ".join(f"{one:.2f}" for one in sorted(shares)[:12])
        behind = sum(one < 0.95 for one in shares)
        print(f"{'warned of' if worse else 'not'}: {len(shares)}, {behind} of them below 0.95; lowest {told}")


def trees() -> None:
    """Compare clicks through a tree built with the prior and one built without, and what `health` says of them."""
    for items in (2_000, 20_000, 100_000):
        for seed in range(2):
            world = tw.World(*vivid(items=items, users=900, dim=DIM, seed=seed))
            prior = tw.Crowd.fit(tw.random_log(world, range(600), shown=200, seed=seed), world.catalogue, seed=0)
            policy, plain = tw.Beam(prior=prior), tw.ItemTree.build(world.catalogue.vectors, seed=0)
            earned = [
                tw.simulate(
                    policy, world, tree, rounds=100, users=range(600, 900), seed=1, reward="click", repeats=False
                )
                for tree in (plain, policy.grow(world.catalogue))
            ]
            gain, usual = earned[1].per_user - earned[0].per_user, earned[0].per_user.mean()
            half = 1.96 * gain.std(ddof=1) / len(gain) ** 0.5
            health = tw.Explorer(world.catalogue, plain, policy, seed=0).inspect.health(users=100)
            told = f"clicks won {gain.mean() / usual:+.1%} ± {half / usual:.1%}"
            print(
                f"{items:,} items, seed {seed}: {told}, by health {health.lost - health.lost_rebuilt:+.1%}", flush=True
            )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    warned()
    trees()
