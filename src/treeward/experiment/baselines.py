"""Common alternatives to exploring: a fixed list, ALS with folding in, models of the next click."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from treeward.core import artefact
from treeward.core.artefact import StrPath
from treeward.core.errors import ExtraMissing, InvalidArgument
from treeward.core.parallel import workers
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.data.item_rows import with_item_rows
from treeward.learn.networks import KINDS
from treeward.learn.next_click import NextClick
from treeward.policy.base import Policy
from treeward.policy.baselines.base import RoundPolicy, RoundSession, Setup
from treeward.policy.session import Decisions, Session, elsewhere
from treeward.tree.item_tree import ItemTree

FORMAT, VERSION = "treeward.factors", 1
NEXT_CLICK_MODELS = {f"next-{kind}": kind for kind in KINDS}
"""Policies with a model of the next click, and the kind of model."""
_REGULARIZATION = 0.05
_CONFIDENCE = 1.0


class Factors(NamedTuple):
    """Items and the mean user of a factorisation by alternating least squares."""

    items: Floats
    mean_user: Floats

    @classmethod
    def fit(cls, interactions: Interactions, catalogue: Catalogue, dim: int, seed: int) -> "Factors":
        """Factorise the matrix of users and items with `implicit`."""
        log = with_item_rows("ALS", interactions, catalogue)
        pairs = log.filter(pl.col("reward") > 0).select("user", "row").unique().sort("user", "row").collect()
        users = pairs["user"].rank("dense").to_numpy().astype(np.int64) - 1
        shape = (int(users.max()) + 1, len(catalogue))
        seen = scipy.sparse.csr_matrix((np.ones(len(users), np.float32), (users, pairs["row"].to_numpy())), shape=shape)
        people, items = factorise(seen, dim, seed)
        return cls(items, people.mean(axis=0))

    def save(self, path: StrPath) -> None:
        """Write them to a directory, checksummed."""
        artefact.write(path, FORMAT, VERSION, artefact.Contents(self._asdict(), {}, {}, {}), overwrite=True)

    @classmethod
    def load(cls, path: StrPath) -> "Factors":
        """Read what `save` wrote."""
        return cls(**artefact.read(path, FORMAT, VERSION).arrays)


def factorise(seen: scipy.sparse.csr_matrix, dim: int, seed: int) -> tuple[Floats, Floats]:
    """Return the vectors of users and items by alternating least squares on a matrix of who rewarded what."""
    try:
        from implicit.als import AlternatingLeastSquares
    except ImportError as error:
        raise ExtraMissing.of("ALS", error.name, "als") from error
    with workers(1):  # its threads and those of BLAS would be in each other's way
        model: Any = AlternatingLeastSquares(
            factors=dim, regularization=_REGULARIZATION, alpha=_CONFIDENCE, iterations=15, num_threads=1,
            use_gpu=False, random_state=seed,
        )  # fmt: skip
        model.fit(seen, show_progress=False)
    return np.asarray(model.user_factors), np.asarray(model.item_factors)


class _Baseline(RoundPolicy):
    """A policy that shows what has the highest score."""

    def session(
        self, tree: ItemTree, catalogue: Catalogue, users: int, *, once: bool = False, rest: int = 0, seed: int = 0
    ) -> Session:
        """Return the policy at work for users 0, 1, ... below `users`."""
        self.check_tree(tree, catalogue)
        if rest:
            raise InvalidArgument("experiment", "repeats", "True or False", rest)
        return self._open(catalogue, users, once, seed)

    def _open(self, catalogue: Catalogue, users: int, once: bool, seed: int) -> Session:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Listed(_Baseline):
    """The same list for everybody, from the top: what is popular, or what the mean user would like.

    Parameters
    ----------
    scores
        One per item.
    """

    scores: NDArray[Any] | None = None

    def _open(self, catalogue: Catalogue, users: int, once: bool, seed: int) -> Session:
        scores = np.zeros(len(catalogue)) if self.scores is None else np.asarray(self.scores)
        return _ScoredSession(np.repeat(scores[None].astype(np.float32), users, axis=0), once, seed)


@dataclass(frozen=True, eq=False)
class FoldedIn(_Baseline):
    """Alternating least squares: a user's factors are recomputed after every click, items stay as trained.

    Parameters
    ----------
    factors
        Items and mean user; a newcomer is taken for the latter.
    """

    factors: Factors | None = None

    def _open(self, catalogue: Catalogue, users: int, once: bool, seed: int) -> Session:
        return _FoldedInSession(
            self.factors or Factors(catalogue.vectors, catalogue.vectors.mean(axis=0)), users, once, seed
        )


@dataclass(frozen=True, eq=False)
class NextClickPolicy(_Baseline):
    """A model of the next click, asked for the likeliest item; a user's vector is recomputed after every click.

    Parameters
    ----------
    model
        As trained on others.
    """

    model: NextClick | None = None

    def _open(self, catalogue: Catalogue, users: int, once: bool, seed: int) -> Session:
        if self.model is None:
            return _ScoredSession(np.zeros((users, len(catalogue)), dtype=np.float32), once, seed)
        return _NextClickSession(self.model, users, once, seed)


class _ScoredSession(RoundSession):
    """Shows every user what has the highest score and may still be shown."""

    def __init__(self, scores: Floats, once: bool, seed: int, work: int = 0) -> None:
        users, items = scores.shape
        super().__init__(np.arange(items, dtype=np.int32), Setup(users, None, False, seed))
        self._scores, self._closes = scores, once
        self._due = np.full(users, work)
        """Multiplications since a user's last decision: only a click changes anything."""

    def select(self, users: ArrayLike, nonce: int, allow: ArrayLike | None = None) -> Decisions:
        """Take the best."""
        who = self.who(users)
        scores = self._scores[who]
        if allow is not None:
            shut = np.ones(len(self.items), dtype=np.bool_)
            shut[np.asarray(allow)] = False
            scores = np.where(shut, -np.inf, scores)
        rows = scores.argmax(axis=1)
        best = scores[np.arange(len(who)), rows]
        rows = np.where(np.isfinite(best), rows, -1)
        if self._closes:
            self._scores[who[rows >= 0], rows[rows >= 0]] = -np.inf
        one, none, work = np.ones(len(who)), np.zeros(len(who), dtype=np.int64), self._due[who]
        self._due[who] = 0
        return Decisions(
            who, np.full(len(who), nonce, dtype=np.int64), rows, rows, none - 1, best.astype(np.float32),
            np.zeros(len(who), dtype=np.float32), one, one > 0, none, work,
        )  # fmt: skip

    def met(self, users: ArrayLike, rows: ArrayLike) -> Decisions:
        """Return decisions that stand for items which users saw elsewhere."""
        who, items = self.who(users), np.asarray(rows, dtype=np.int64)
        if self._closes:
            self._scores[who, items] = -np.inf
        return elsewhere(who, items, items)

    def rescore(self, users: NDArray[np.int64], scores: Floats) -> None:
        """Replace the scores of what users may still be shown."""
        self._scores[users] = np.where(np.isfinite(self._scores[users]), scores, -np.inf)

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Learn nothing."""
        self.rewards(decisions, rewards)


class _FoldedInSession(_ScoredSession):
    def __init__(self, factors: Factors, users: int, once: bool, seed: int) -> None:
        self._items = np.asarray(factors.items, dtype=np.float32)
        scores = np.repeat((self._items @ factors.mean_user)[None].astype(np.float32), users, axis=0)
        super().__init__(scores, once, seed, self._items.size)
        self._gram = (self._items.T @ self._items).astype(np.float64)
        self._liked: list[set[int]] = [set() for _ in range(users)]

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Fold clicks in."""
        values = self.rewards(decisions, rewards)
        dim = self._items.shape[1]
        for user, row, value in zip(decisions.user.tolist(), decisions.item.tolist(), values.tolist(), strict=True):
            if value <= 0 or row in self._liked[user]:
                continue
            self._liked[user].add(row)
            # The normal equations of implicit ALS for one user, with all items' factors fixed.
            mine = self._items[sorted(self._liked[user])].astype(np.float64)
            left = self._gram + _CONFIDENCE * mine.T @ mine + _REGULARIZATION * np.eye(dim)
            theta = np.linalg.solve(left, (1 + _CONFIDENCE) * mine.sum(axis=0))
            self._due[user] += self._items.size + dim**3 // 3
            self.rescore(np.array([user]), (self._items @ theta.astype(np.float32))[None])


class _NextClickSession(_ScoredSession):
    def __init__(self, model: NextClick, users: int, once: bool, seed: int) -> None:
        nowhere = np.zeros((users, model.items.shape[1]), dtype=np.float32)
        super().__init__(model.scores(nowhere), once, seed, model.vectors.size)
        self._model = model
        self._histories = [np.zeros(0, dtype=np.int64) for _ in range(users)]

    def update(self, decisions: Decisions, rewards: ArrayLike) -> None:
        """Recompute the vectors of users who clicked."""
        liked = np.flatnonzero(self.rewards(decisions, rewards) > 0)
        if not len(liked):
            return
        for user, row in zip(decisions.user[liked].tolist(), decisions.item[liked].tolist(), strict=True):
            self._histories[user] = np.append(self._histories[user], row)[-self._model.window :]
        who = np.unique(decisions.user[liked])
        self.rescore(who, self._model.scores(self._model.user_vectors([self._histories[user] for user in who])))
        steps = np.array([len(self._histories[user]) for user in who])
        self._due[who] += self._model.vectors.size + len(self._model.weights) * steps


BASELINES: dict[str, type[Policy]] = {
    "popularity": Listed,
    "mean-user": Listed,
    "als": FoldedIn,
    **dict.fromkeys(NEXT_CLICK_MODELS, NextClickPolicy),
}
"""Policies that arms may name besides those of `POLICIES`."""
