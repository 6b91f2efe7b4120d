"""`try_prior`: what a prior is expected to earn with users it was not fitted to, compared with no prior."""

from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.bandit.crowd import Crowd
from treeward.core import checks, rng
from treeward.core.checks import Count, Seed, Whole
from treeward.core.errors import DataError
from treeward.core.progress import Progress, Stage, silent
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.data.item_rows import with_item_rows
from treeward.policy.beam import Beam
from treeward.policy.session import Decisions
from treeward.tree.item_tree import ItemTree

_LEAST = 20
_MARGIN = 0.1
"""A log favours what was popular: by less than this share of the list's reward, a prior is not called worse."""


class Compared(NamedTuple):
    """What an alternative earns per recommendation, and what the prior earns beyond that, paired by user."""

    earned: float
    gain: float
    half: float
    """Half of the gain's 95 % interval."""

    @property
    def worse(self) -> bool:
        """Whether the prior earns less: by a tenth or more, and not by chance."""
        return self.gain < -_MARGIN * self.earned and self.gain + self.half < 0

    @property
    def better(self) -> bool:
        """Whether it earns more, and not by chance."""
        return self.gain - self.half > 0

    def said(self, name: str) -> str:
        """Return the comparison in words."""
        word = "more than" if self.better else "less than" if self.worse else "about as much as"
        return f"{word} {name} ({self.earned:.4f}; difference {self.gain:+.4f} ± {self.half:.4f})"


class PriorTrial(NamedTuple):
    """What a prior earns per recommendation, compared with a list of the most popular items and with no prior."""

    users: int
    rounds: int
    prior: float
    popularity: Compared
    nothing: Compared

    @property
    def worse(self) -> bool:
        """Whether the prior earns clearly less than either of the others."""
        return self.popularity.worse or self.nothing.worse

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        others = f"{self.popularity.said('a list of the most popular items')}, {self.nothing.said('no prior')}"
        begins = "This prior may do harm: it earns" if self.worse else "This prior is expected to earn"
        return f"{begins} {self.prior:.4f} per recommendation, {others}."

    def __repr__(self) -> str:
        return f"{self.verdict} {self.users:,} users, {self.rounds} recommendations each."

    def told(self) -> dict[str, Any]:
        """Return the figures, for a prior's provenance."""
        return {
            "users": self.users, "rounds": self.rounds, "prior": self.prior, "popularity": self.popularity.earned,
            "nothing": self.nothing.earned, "worse": self.worse,
        }  # fmt: skip


@checks.checked()
def try_prior(
    prior: Crowd,
    interactions: Interactions,
    catalogue: Catalogue,
    *,
    users: Annotated[int, Whole(low=_LEAST)] = 1_000,
    rounds: Count = 20,
    seed: Seed = 0,
    progress: Progress | None = None,
) -> PriorTrial:
    """Compare a prior with none, and with a list of the most popular items, on users it was not fitted to.

    Every user is a newcomer and gets `rounds` items of the whole catalogue, none twice: from `Beam` with the prior,
    from `Beam` without one, and from the list. An item earns the reward that the log has for this user and item;
    without one it earns 0 and teaches nothing. So all three earn less than in service, and the list has an advantage,
    because users of the log saw popular items most often. A prior that equals the list here is usually better in
    service; one that is a tenth worse may do harm.

    Parameters
    ----------
    prior
        What `Crowd.fit` made.
    interactions
        The log of users it was not fitted to: ``dataset.part("test")``, with the same rewards.
    catalogue
        The items, with the vectors it was fitted to.
    users
        At most this number of the log's users, drawn at random.
    rounds
        Recommendations per user.
    seed
        The seed of all draws.
    progress
        Called with (stage, done, total).
    """
    told, rounds = progress or silent, min(rounds, len(catalogue))
    answers = _Answers.of(interactions, catalogue, users, seed)
    popular = np.argsort(-prior.transform(catalogue).vectors[:, -1], kind="stable")[:rounds]
    by_list = np.stack([answers.rewards(np.full(answers.users, row)) for row in popular]).mean(axis=0)
    earned = []
    for name, policy in (("with the prior", Beam(prior=prior)), ("without", Beam())):
        tree = policy.grow(catalogue, seed, told)
        earned.append(_earned(policy, tree, catalogue, answers, rounds, seed, Stage(told, f"trying {name}", rounds)))
    mine, bare = earned
    return PriorTrial(answers.users, rounds, float(mine.mean()), _compared(mine, by_list), _compared(mine, bare))


class _Answers(NamedTuple):
    """The rewards of the log, by user and item."""

    users: int
    items: int
    keys: NDArray[np.int64]
    """Of every pair: user * items + row, sorted."""
    values: NDArray[np.float64]

    @classmethod
    def of(cls, log: Interactions, catalogue: Catalogue, users: int, seed: int) -> "_Answers":
        pairs = with_item_rows("try_prior", log, catalogue).group_by("user", "row").agg(pl.max("reward")).collect()
        liked = pairs.filter(pl.col("reward") > 0)["user"].unique().sort()
        if len(liked) < _LEAST:
            raise DataError(f"{len(liked)} users of the log reward an item of the catalogue; {_LEAST} are needed")
        liked = liked[rng.subset(seed, rng.stream("newcomers"), len(liked), users)]
        who = pl.DataFrame({"user": liked}).with_row_index("at")
        mine = pairs.join(who, on="user").with_columns(key=pl.col("at").cast(pl.Int64) * len(catalogue) + pl.col("row"))
        mine = mine.sort("key")
        return cls(len(liked), len(catalogue), mine["key"].to_numpy(), mine["reward"].cast(pl.Float64).to_numpy())

    def known(self, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return for each user whether the log has a reward for their row."""
        wanted, at = self._at(rows)
        found: NDArray[np.bool_] = self.keys[at] == wanted
        return found

    def rewards(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return for each user what their row earns."""
        wanted, at = self._at(rows)
        return np.where(self.keys[at] == wanted, self.values[at], 0.0)

    def _at(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        wanted = np.arange(self.users, dtype=np.int64) * self.items + rows
        return wanted, np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)


def _earned(
    policy: Beam, tree: ItemTree, catalogue: Catalogue, answers: _Answers, rounds: int, seed: int, stage: Stage
) -> NDArray[np.float64]:
    """Return for each user what a policy earns per recommendation."""
    session = policy.session(tree, catalogue, answers.users, once=True, seed=seed)
    total, everybody = np.zeros(answers.users), np.arange(answers.users)
    for turn in range(rounds):
        made = session.select(everybody, turn)
        rewards, known = answers.rewards(made.item), answers.known(made.item)
        total += rewards
        if known.any():
            session.update(Decisions._make(part[known] for part in made), rewards[known])
        stage.step()
    return total / rounds


def _compared(mine: NDArray[np.float64], other: NDArray[np.float64]) -> Compared:
    gaps = mine - other
    return Compared(float(other.mean()), float(gaps.mean()), 1.96 * float(gaps.std(ddof=1)) / len(gaps) ** 0.5)
