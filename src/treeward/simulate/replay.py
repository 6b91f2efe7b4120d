"""`replay`: a policy chooses among the items that a log shows together, and gets the reward that the log has."""

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import artefact, checks, rng
from treeward.core.checks import Count, Seed
from treeward.core.errors import DataError
from treeward.core.progress import Progress, Stage, silent
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.data.item_rows import with_item_rows
from treeward.policy.base import Policy
from treeward.tree.item_tree import ItemTree


class Replayed(NamedTuple):
    """What a policy earned on a log."""

    policy: str
    log: pl.DataFrame
    """Every choice: user, round, item, row, slot, propensity, reward; random and best: what the whole slate held."""
    settings: dict[str, Any]

    @property
    def mean(self) -> float:
        """Mean reward of a choice: over a user's choices, then over users."""
        return float(self._by_user()["reward"].mean())  # type: ignore[arg-type]

    @property
    def random(self) -> float:
        """The same for a random choice."""
        return float(self._by_user()["random"].mean())  # type: ignore[arg-type]

    @property
    def best(self) -> float:
        """The same for the best choice."""
        return float(self._by_user()["best"].mean())  # type: ignore[arg-type]

    @property
    def error(self) -> float:
        """Standard error, over users, of what the policy earned beyond random."""
        gains = self._by_user().select(pl.col("reward") - pl.col("random")).to_series()
        return float(gains.std()) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")  # type: ignore[arg-type]

    def _by_user(self) -> pl.DataFrame:
        return self.log.group_by("user").agg(pl.col("reward", "random", "best").mean()).sort("user")

    def __repr__(self) -> str:
        return (
            f"{self.policy}: {self.mean:.4f} per choice (random {self.random:.4f}, best {self.best:.4f}), "
            f"{self.mean - self.random:+.4f} ± {1.96 * self.error:.4f} beyond random"
        )


@checks.checked()
def replay(
    policy: Policy,
    interactions: Interactions,
    catalogue: Catalogue,
    tree: ItemTree | None = None,
    *,
    users: Count = 1_000,
    seed: Seed = 0,
    progress: Progress | None = None,
) -> Replayed:
    """Try a policy on a log, with no model of users in between.

    What a user was shown at one time is a slate. The policy chooses one item of each slate, in the order of the log,
    gets the reward that the log has for it, learns, and does not choose it again. It only sees what the log's own
    system has shown: a replay compares ways to choose among that, not ways to explore the catalogue.

    Parameters
    ----------
    policy
        The policy.
    interactions
        A log with skips. Rows of one user at one time are a slate; without times, all rows of a user are, and items are
        taken from it one after another until half of it is gone.
    catalogue
        The items, with vectors.
    tree
        The tree to walk; by default one is built from the catalogue's vectors.
    users
        At most this number of the log's users, drawn at random.
    seed
        The seed of all draws.
    progress
        Called with (stage, done, total).
    """
    names, slates = _slates(interactions, catalogue, users, seed)
    grown = ItemTree.build(catalogue.vectors, seed=seed) if tree is None else tree
    session = policy.session(grown, catalogue, len(names), once=True, seed=seed)
    made: dict[str, list[float]] = {name: [] for name in ("who", "row", "propensity", "reward", "random", "best")}
    rounds: list[int] = []
    gone: list[set[int]] = [set() for _ in names]
    longest = max(len(mine) for mine in slates)
    stage = Stage(progress or silent, f"{policy.name}: replay", longest)
    for turn in range(longest):  # round by round, so that a policy may share what it learns
        for who, mine in enumerate(slates):
            if turn >= len(mine):  # this user has no more slates
                continue
            rows, rewards = _left(mine[turn], gone[who])
            if not len(rows):  # all of it was chosen from earlier slates
                continue
            chosen = session.select([who], turn, allow=rows)
            row = int(chosen.item[0])
            reward = float(rewards[np.flatnonzero(rows == row)[0]])
            session.update(chosen, [reward])
            gone[who].add(row)
            random, top = _untouched(mine, turn)
            told = (who, row, float(chosen.propensity[0]), reward, random, top)
            for name, value in zip(made, told, strict=True):
                made[name].append(value)
            rounds.append(turn)
        stage.step()
    chose = np.array(made.pop("row"), dtype=np.int64)
    user = names[np.array(made.pop("who"), dtype=np.int64)]
    places = {"user": user, "round": rounds, "item": catalogue.ids[chose], "row": chose, "slot": np.zeros_like(chose)}
    settings = {
        "policy": repr(policy), "users": len(names), "seed": seed, "treeward": __version__,
        "vectors_sha256": artefact.digest(catalogue.vectors), "tree_sha256": artefact.digest(grown.items),
    }  # fmt: skip
    return Replayed(policy.name, pl.DataFrame({**places, **made}), settings)


Slate = tuple[NDArray[np.int64], NDArray[np.float64]]


def _left(slate: Slate, gone: set[int]) -> Slate:
    """Return a slate without the items that were chosen before."""
    rows, rewards = slate
    if not gone:
        return slate
    open = np.array([row not in gone for row in rows.tolist()])
    return rows[open], rewards[open]


def _untouched(mine: list[Slate], turn: int) -> tuple[float, float]:
    """Return what a random and the best choice would earn, whatever the policy chose before."""
    _, rewards = mine[turn]
    before = turn if len(mine) > 1 and mine[0] is mine[1] else 0  # one slate for all rounds: its best go first
    return float(rewards.mean()), float(np.sort(rewards)[-1 - before])


def _slates(log: Interactions, catalogue: Catalogue, users: int, seed: int) -> tuple[pl.Series, list[list[Slate]]]:
    """Return some users of a log, and their slates in order: rows of items, and the rewards of those."""
    timed = "time" in log.table.columns and log.table["time"].null_count() < log.table.height
    keys = ["user", "time"] if timed else ["user"]
    slates = (
        with_item_rows("replay", log, catalogue)
        .group_by(*keys, "row", maintain_order=True)
        .agg(pl.col("reward").max())
        .group_by(keys, maintain_order=True)
        .agg("row", "reward")
        .filter(pl.col("row").list.len() > 1)
        .sort(keys, maintain_order=True)
        .collect()
    )
    if not slates.height or slates["reward"].list.min().min() > 0:  # type: ignore[operator]
        raise DataError("the log has no slates of two items and more with one that was skipped: nothing to choose")
    names = slates["user"].unique(maintain_order=True)
    names = names[rng.subset(seed, rng.stream("replayed users"), len(names), users)]
    slates = slates.filter(pl.col("user").is_in(names.implode()))
    made: dict[Any, list[Slate]] = {user: [] for user in names}
    for user, row, reward in zip(slates["user"], slates["row"], slates["reward"], strict=True):
        made[user] += [(row.to_numpy(), reward.to_numpy())] * (1 if timed else len(row) // 2)
    return names, list(made.values())
