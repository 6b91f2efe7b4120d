"""Models of the next click: a history becomes a user vector, and items are ranked by their inner product with it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from treeward.core import artefact, checks, rng
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, Positive, Seed
from treeward.core.errors import ArtefactCorrupt, DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.learn.clicks import HeldOut, clicks_of, last_clicks, padded
from treeward.learn.networks import KINDS, network
from treeward.learn.torch import device_for, torch_for, train_until_stable

FORMAT, VERSION = "treeward.next_click", 1

WINDOW = 50
"""Clicks of a history that count."""
_BATCH = 128
_SORTED = 32  # batches whose histories are sorted by length together
_DRAWN = 1_024  # items of the sampled softmax
_CHUNK = 512
_MASKED = 0.2
_LEAST_GAIN = 1e-3  # a pass must lower the validation loss by this share to count as an improvement


class Settings(NamedTuple):
    """How a model is trained."""

    rate: Positive = 0.001
    passes: Count = 60
    patience: Count = 4
    window: Count = WINDOW


class NextClick:
    """A trained model: item vectors and biases, and a network from histories to user vectors.

    Parameters
    ----------
    kind
        ``"linear"``, ``"gru"`` or ``"transformer"``.
    items, bias
        (items + 1, d) and (items,). The last vector represents a gap.
    weights
        The network's weights, flattened and concatenated.
    window
        How many of the latest clicks it reads.
    losses
        Loss on validation users after every pass.
    """

    def __init__(
        self, kind: str, items: Floats, bias: Floats, weights: Floats, window: int, losses: Sequence[float]
    ) -> None:
        self.kind = checks.one_of("NextClick", "kind", kind, KINDS)
        self.items, self.bias, self.weights, self.window = items, bias, weights, window
        self.losses = list(losses)
        self._module: Any = None

    def __repr__(self) -> str:
        return f"NextClick({self.kind}, {len(self.bias):,} items x {self.items.shape[1]})"

    @property
    def vectors(self) -> Floats:
        """The items' vectors."""
        return self.items[:-1]

    def user_vector(self, history: Sequence[int] | NDArray[np.int64]) -> Floats:
        """Return the vector of a user with these clicks (rows, oldest first); without clicks, zeros."""
        made: Floats = self.user_vectors([np.asarray(history, dtype=np.int64)])[0]
        return made

    def user_vectors(self, histories: Sequence[NDArray[np.int64]]) -> Floats:
        """Return one vector per history."""
        made = np.zeros((len(histories), self.items.shape[1]), dtype=np.float32)
        some = [i for i, mine in enumerate(histories) if len(mine)]
        if not some:
            return made
        if not all(0 <= mine.min() <= mine.max() < len(self.bias) for mine in histories if len(mine)):
            raise InvalidArgument("NextClick", "histories", f"rows from 0 to {len(self.bias) - 1}", "others")
        torch = torch_for("a model of the next click")
        net, masked = self._network(torch)
        with torch.no_grad():
            for start in range(0, len(some), _CHUNK):
                piece = some[start : start + _CHUNK]
                rows, lengths = _inputs([histories[i] for i in piece], self.window, len(self.bias), masked)
                states = net(torch.from_numpy(self.items[rows]), torch.from_numpy(lengths))
                made[piece] = states[torch.arange(len(piece)), torch.from_numpy(lengths - 1)].numpy()
        return made

    def scores(self, users: Floats) -> Floats:
        """Return (users, items): inner products plus the items' biases."""
        made: Floats = users @ self.vectors.T + self.bias
        return made

    def top(
        self, histories: Sequence[NDArray[np.int64]], count: int, *, include_clicked: bool = False
    ) -> NDArray[np.int64]:
        """Return the `count` best rows of the whole catalogue per history, best first."""
        checks.integer("NextClick.top", "count", count, low=1, high=len(self.bias))
        made = np.empty((len(histories), count), dtype=np.int64)
        for start in range(0, len(histories), _CHUNK):
            piece = histories[start : start + _CHUNK]
            scores = self.scores(self.user_vectors(piece))
            made[start : start + len(piece)] = top_rows(scores, piece, count, include_clicked=include_clicked)
        return made

    def _network(self, torch: Any) -> tuple[Any, bool]:
        if self._module is None:
            with torch.random.fork_rng(devices=[]):
                net = network(torch, self.kind, self.items.shape[1], self.window)
            torch.nn.utils.vector_to_parameters(torch.from_numpy(np.array(self.weights)), net.module.parameters())
            self._module = net.module.eval(), net.masked
        found: tuple[Any, bool] = self._module
        return found

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the model to a directory, checksummed."""
        arrays = {"items": self.items, "bias": self.bias, "weights": self.weights}
        info = {"kind": self.kind, "window": self.window, "losses": self.losses}
        artefact.write(path, FORMAT, VERSION, artefact.Contents(arrays, {}, {}, info), overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote."""
        held = artefact.read(path, FORMAT, VERSION)
        lacking = {"items", "bias", "weights"} - set(held.arrays)
        if lacking or held.info.get("kind") not in KINDS:
            raise ArtefactCorrupt(f"{path}: lacks {', '.join(sorted(lacking)) or 'a known kind'}")
        items, bias, weights = (np.array(held.arrays[name]) for name in ("items", "bias", "weights"))
        return cls(held.info["kind"], items, bias, weights, held.info["window"], held.info["losses"])

    @classmethod
    @checks.checked()
    def fit(
        cls,
        kind: str,
        train: Interactions,
        valid: Interactions,
        catalogue: Catalogue,
        dim: Count = 64,
        *,
        start: Floats | None = None,
        settings: Settings | None = None,
        seed: Seed = 0,
        device: str = "auto",
        progress: Progress | None = None,
    ) -> Self:
        """Train until the likelihood of validation users' last clicks has hardly improved for a while (needs torch).

        The loss is a softmax over the clicked item and 1,024 others, drawn by how often they are clicked and corrected
        for that. With at most 2,048 items it is over all of them.

        Parameters
        ----------
        kind
            ``"linear"``, ``"gru"`` or ``"transformer"``.
        train, valid
            Logs of training users and of validation users; only rewards above 0 count.
        catalogue
            The items.
        dim
            Dimensions of the vectors.
        start
            (items, dim): initial vectors, such as those of texts; random by default.
        settings
            Learning rate (0.001), most passes (60), patience (4) and window (50 clicks).
        seed
            Same seed, data and device: same model.
        device
            ``"auto"``: the GPU if there is one.
        progress
            Called with (stage, done, total).
        """
        owner = "NextClick.fit"
        items, chosen = len(catalogue), checks.validate(settings or Settings(), owner)
        checks.one_of(owner, "kind", kind, KINDS)
        if not len(valid):
            raise DataError(f"{owner}: there are no validation users to decide when to stop")
        if start is not None and (np.shape(start) != (items, dim) or not np.isfinite(start).all()):
            raise InvalidArgument(owner, "start", f"of shape ({items}, {dim}), and finite", f"shape {np.shape(start)}")
        held = last_clicks(clicks_of(owner, valid, catalogue))
        if not len(held.following):
            raise DataError(f"{owner}: no validation user clicked two things; give more users to validation")
        clicks = clicks_of(owner, train, catalogue)
        pieces = [piece for mine in clicks.each() for piece in _pieces(mine, chosen.window)]
        if not pieces:
            raise DataError(f"{owner}: no training user clicked two things, one after the other")
        torch = torch_for("a model of the next click")
        with torch.random.fork_rng(devices=None if torch.cuda.is_available() else []):
            torch.manual_seed(rng.stream("next click", kind, seed) >> 1)
            trainer = _Trainer(torch, kind, pieces, held, items, dim, start, chosen, seed, device)
            best, losses = trainer.run(Stage(progress or silent, f"training {kind}", chosen.passes))
        return cls(kind, *best, chosen.window, losses)


def top_rows(
    scores: Floats, histories: Sequence[NDArray[np.int64]], count: int, *, include_clicked: bool
) -> NDArray[np.int64]:
    """Return the rows of the highest scores, best first. Changes `scores`."""
    if not include_clicked:
        for i, mine in enumerate(histories):
            scores[i, mine] = -np.inf
    some = np.argpartition(-scores, min(count, scores.shape[1] - 1), axis=1)[:, :count]
    order = np.take_along_axis(scores, some, axis=1).argsort(axis=1, kind="stable")[:, ::-1]
    return np.take_along_axis(some, order, axis=1)


def _inputs(
    histories: Sequence[NDArray[np.int64]], window: int, gap: int, masked: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return histories, padded, and their lengths; a masked network gets a gap at the end."""
    rows, lengths = padded(histories, window, gap)
    if not masked:
        return rows, lengths
    return np.concatenate([rows, np.full((len(rows), 1), gap)], axis=1), lengths + 1


def _pieces(mine: NDArray[np.int64], window: int) -> list[NDArray[np.int64]]:
    """Cut a user's clicks so that each is predicted once, from at most `window` others."""
    return [mine[at : at + window + 1] for at in range(0, max(len(mine) - 1, 0), window)]


class _Trainer:
    """The state of one fit."""

    def __init__(
        self,
        torch: Any,
        kind: str,
        pieces: list[NDArray[np.int64]],
        held: HeldOut,
        items: int,
        dim: int,
        start: Floats | None,
        settings: Settings,
        seed: int,
        device: str,
    ) -> None:
        self.torch, self.pieces, self.held, self.count, self.settings = torch, pieces, held, items, settings
        self.seed, self.kind = seed, kind
        self.place = device_for("NextClick.fit", torch, device)
        net = network(torch, kind, dim, settings.window)
        self.net, self.masked = net.module.to(self.place), net.masked
        first = rng.normals(seed, rng.stream("next click", "items"), (items + 1) * dim).reshape(items + 1, dim)
        first = (first / dim**0.5).astype(np.float32)
        if start is not None:
            first[:-1] = start * (1 / max(float(np.linalg.norm(start, axis=1).mean()), 1e-12))
        self.table = torch.tensor(first, device=self.place).requires_grad_()
        seen = np.bincount(np.concatenate(pieces), minlength=items).astype(np.float64)
        level = np.log((seen + 1) / (seen + 1).sum())
        self.bias = torch.tensor((level - level.mean()).astype(np.float32), device=self.place).requires_grad_()
        likely = (seen + 1) ** 0.75
        self.likely = likely / likely.sum()
        self.cumulated = np.cumsum(self.likely)
        self.steps = torch.optim.Adam([self.table, self.bias, *self.net.parameters()], lr=settings.rate)

    def run(self, stage: Stage) -> tuple[tuple[Floats, Floats, Floats], list[float]]:
        """Train, and return the best items, biases and weights, and the losses."""
        settings = self.settings
        return train_until_stable(
            self._train, self._validate, self._copies, passes=settings.passes, patience=settings.patience,
            needed=lambda lowest: (1 - _LEAST_GAIN) * lowest, rate=settings.rate, owner="NextClick.fit", stage=stage,
        )  # fmt: skip

    def _train(self, turn: int) -> None:
        self.net.train()
        for step, batch in enumerate(self._batches(turn)):
            self.steps.zero_grad(set_to_none=True)
            self._loss(batch, turn, step).backward()
            self.steps.step()

    def _batches(self, turn: int) -> list[list[NDArray[np.int64]]]:
        """Shuffle, then batch histories of similar length, so that there is little padding."""
        order = self._shuffled(len(self.pieces), turn)
        many, batches = _BATCH * _SORTED, []
        for first in range(0, len(order), many):
            some = sorted(order[first : first + many].tolist(), key=lambda i: len(self.pieces[i]))
            batches += [[self.pieces[i] for i in some[at : at + _BATCH]] for at in range(0, len(some), _BATCH)]
        return [batches[i] for i in self._shuffled(len(batches), turn, "batches").tolist()]

    def _shuffled(self, count: int, *what: str | int) -> NDArray[np.int64]:
        return rng.sample(self.seed, rng.stream("next click", self.kind, *what), count, count)

    def _loss(self, batch: list[NDArray[np.int64]], turn: int, step: int) -> Any:
        torch = self.torch
        drawn = rng.uniforms(self.seed, rng.stream("next click", self.kind, turn, step), _DRAWN)
        rows, lengths = padded(batch, self.settings.window + 1, self.count)
        if self.masked:
            inputs, wanted = self._gaps(rows, lengths, turn, step)
        else:
            inputs, wanted, lengths = rows[:, :-1], np.where(rows[:, 1:] < self.count, rows[:, 1:], -1), lengths - 1
        at = torch.from_numpy(np.flatnonzero(wanted.ravel() >= 0)).to(self.place)
        target = torch.from_numpy(wanted.ravel()[wanted.ravel() >= 0]).to(self.place)
        vectors = torch.nn.functional.embedding(torch.from_numpy(inputs).to(self.place), self.table)
        states = self.net(vectors, torch.from_numpy(lengths).to(self.place))
        return self._softmax(states.reshape(-1, states.shape[-1])[at], target, drawn)

    def _gaps(
        self, rows: NDArray[np.int64], lengths: NDArray[np.int64], turn: int, step: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hide a fifth of the clicks; in every second history only the last, as in a query."""
        coins = rng.uniforms(self.seed, rng.stream("gaps", turn, step), rows.size + len(rows))
        hidden = coins[: rows.size].reshape(rows.shape) < _MASKED
        hidden[coins[rows.size :] < 0.5] = False
        hidden &= np.arange(rows.shape[1]) < lengths[:, None]
        hidden[np.arange(len(rows)), lengths - 1] |= ~hidden.any(axis=1)
        return np.where(hidden, self.count, rows), np.where(hidden, rows, -1)

    def _softmax(self, states: Any, target: Any, drawn: NDArray[np.float64]) -> Any:
        torch, rows_of = self.torch, self.torch.nn.functional.embedding
        if self.count <= 2 * _DRAWN:
            return torch.nn.functional.cross_entropy(states @ self.table[:-1].T + self.bias, target)
        others = np.unique(np.searchsorted(self.cumulated, drawn, side="right").clip(max=self.count - 1))
        # An item is in the sample with probability 1 - (1 - q)^draws.
        chance = -np.expm1(_DRAWN * np.log1p(-self.likely[others]))
        sampled = torch.from_numpy(others).to(self.place)
        logits = states @ rows_of(sampled, self.table).T + self.bias[sampled]
        logits = logits - torch.from_numpy(np.log(chance).astype(np.float32)).to(self.place)
        logits = logits.masked_fill(sampled[None] == target[:, None], float("-inf"))
        own = (states * rows_of(target, self.table)).sum(1) + self.bias[target]
        return (torch.logsumexp(torch.cat([own[:, None], logits], 1), 1) - own).mean()

    def _validate(self) -> float:
        """Return the mean loss of validation users' last clicks, over all items."""
        torch, total = self.torch, 0.0
        self.net.eval()
        with torch.no_grad():
            for start in range(0, len(self.held.following), _CHUNK):
                some = self.held.histories[start : start + _CHUNK]
                rows, lengths = _inputs(some, self.settings.window, self.count, self.masked)
                vectors = self.table[torch.from_numpy(rows).to(self.place)]
                states = self.net(vectors, torch.from_numpy(lengths).to(self.place))
                last = states[torch.arange(len(rows)), torch.from_numpy(lengths - 1)]
                target = torch.from_numpy(self.held.following[start : start + _CHUNK]).to(self.place)
                logits = last @ self.table[:-1].T + self.bias
                total += float(torch.nn.functional.cross_entropy(logits, target, reduction="sum"))
        return total / len(self.held.following)

    def _copies(self) -> tuple[Floats, Floats, Floats]:
        weights = self.torch.nn.utils.parameters_to_vector(self.net.parameters())
        items, bias, flat = (one.detach().cpu().numpy().copy() for one in (self.table, self.bias, weights))
        return items, bias, flat
