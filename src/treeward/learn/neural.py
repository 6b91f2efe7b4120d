"""A network learned so that the bandit's own posterior, in what the network makes of items, explains a log.

Every user's rewards are taken for r = z' theta + noise with theta ~ N(mean, I), z = tower(item) * gate(context): the
model that policies count with. Theta is integrated out, so there is nothing to fit a user with, and users who are held
out, newcomers as a policy meets them, tell when to stop.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.errors import InvalidArgument
from treeward.core.progress import Stage
from treeward.core.types import Floats
from treeward.learn.torch import device_for, torch_for

OWNER = "NeuralLinear.fit"

_USERS_A_BATCH = 32
_SORTED = 16
_WORTH = 1e-4
_FIRST_LEVEL = 0.3


class Samples(NamedTuple):
    """Events, user by user."""

    ends: NDArray[np.int64]
    """(users + 1,): user i's are [ends[i] : ends[i + 1]]."""
    row: NDArray[np.int64]
    """Of the items' matrix."""
    context: NDArray[np.int64]
    """(events, contexts): which value each context had, counted through all contexts from 1 on; 0: none known."""
    reward: Floats

    @property
    def users(self) -> int:
        """How many."""
        return len(self.ends) - 1


class Training(NamedTuple):
    """How large, how long and how fast to learn."""

    hidden: Sequence[int]
    dim: int
    """Of what the tower makes of an item, without the level."""
    rate: float
    decay: float
    passes: int
    patience: int
    seed: int
    device: str


class Network(NamedTuple):
    """What was learned, as plain arrays."""

    weights: list[Floats]
    """(in, out) of every layer; ReLU between layers, nothing behind the last."""
    biases: list[Floats]
    gates: Floats
    """(values of contexts + 1, dim + 1): what each adds to a gate of 1; the last column is the level's."""
    losses: list[float]
    """Of an event of a user held out, after every pass; the network is that of the lowest."""


def train(items: Floats, samples: Samples, values: int, told: Training, stage: Stage) -> Network:
    """Fit by Adam until users held out have hardly become more likely for a while; every draw comes from the seed."""
    torch = torch_for(OWNER)
    model = _Model(torch, device_for(OWNER, torch, told.device), items, samples, values, told)
    people = rng.sample(told.seed, rng.stream("neural", "users"), samples.users, samples.users)
    held, known = people[: max(1, len(people) // 10)], people[max(1, len(people) // 10) :]
    losses, best, waited = [model.tried(held)], model.copies(), 0
    lowest = losses[0]
    for turn in range(told.passes):
        for batch in _batches(samples, known, told.seed, turn):
            model.learn(batch)
        losses.append(model.tried(held))
        stage.step()
        if not np.isfinite(losses[-1]):
            raise InvalidArgument(OWNER, "rate", "small enough to converge", told.rate)
        waited = 0 if losses[-1] < lowest - _WORTH else waited + 1
        if losses[-1] < lowest:
            best, lowest = model.copies(), losses[-1]
        if waited >= told.patience:
            break
    stage.finish()
    return Network(*best, losses)


def _batches(samples: Samples, users: NDArray[np.int64], seed: int, turn: int) -> Iterator[NDArray[np.int64]]:
    """Shuffle users, then put those with about as many events together, so that little is filled up."""
    order = users[rng.sample(seed, rng.stream("neural", "pass", turn), len(users), len(users))]
    many, lengths = _USERS_A_BATCH * _SORTED, np.diff(samples.ends)
    for first in range(0, len(order), many):
        some = order[first : first + many]
        some = some[np.argsort(lengths[some], kind="stable")]
        for at in range(0, len(some), _USERS_A_BATCH):
            yield some[at : at + _USERS_A_BATCH]


class _Model:
    """The tensors of a fit."""

    def __init__(self, torch: Any, place: Any, items: Floats, samples: Samples, values: int, told: Training) -> None:
        self.torch, self.place, self.samples = torch, place, samples
        self.items = torch.from_numpy(np.ascontiguousarray(items)).to(place)
        widths = [items.shape[1], *told.hidden, told.dim]

        def tensor(values: Any) -> Any:
            return torch.tensor(values, dtype=torch.float32, device=place).requires_grad_()

        self.layers = []
        for at, (before, after) in enumerate(pairwise(widths)):
            drawn = rng.normals(told.seed, rng.stream("neural", "layer", at), before * after).reshape(before, after)
            scale = (2 / before) ** 0.5 if at < len(widths) - 2 else (1 / (before * after)) ** 0.5
            self.layers += [tensor(scale * drawn), tensor(np.zeros(after))]
        self.gates = tensor(np.zeros((values + 1, told.dim + 1)))
        self.level, self.noise = tensor(_FIRST_LEVEL), tensor(0.0)
        self.mean = tensor(np.zeros(told.dim + 1))
        groups = [
            {"params": [*self.layers, self.gates], "weight_decay": told.decay},
            {"params": [self.level, self.noise, self.mean], "weight_decay": 0.0},
        ]
        self.steps = torch.optim.AdamW(groups, lr=told.rate, fused=False)

    def tower(self, rows: Any) -> Any:
        """Return what the network makes of some items."""
        made = self.items[rows]
        for at in range(0, len(self.layers), 2):
            made = made @ self.layers[at] + self.layers[at + 1]
            if at + 2 < len(self.layers):
                made = made.relu()
        return made

    def surprise(self, users: NDArray[np.int64]) -> Any:
        """Return -ln P(rewards) of some users, by event, theta integrated out; up to a constant.

        With Z of a user's events, A = I + Z'Z / s and b = Z'(r - Z mean) / s, it is half of
        |r - Z mean|^2 / s - b' A^-1 b + ln det A + n ln s.
        """
        torch, rows_of = self.torch, self.torch.nn.functional.embedding  # whose gradient is summed in order
        ends, lengths = self.samples.ends, np.diff(self.samples.ends)[users]
        at = np.minimum(ends[users][:, None] + np.arange(max(1, lengths.max())), len(self.samples.row) - 1)
        there = self._sent((np.arange(at.shape[1]) < lengths[:, None]).astype(np.float32))
        each, back = np.unique(self.samples.row[at], return_inverse=True)
        made = rows_of(self._sent(back.reshape(at.shape)), self.tower(self._sent(each)))
        level = self.level.expand(*at.shape, 1)
        gate = 1 + rows_of(self._sent(self.samples.context[at]), self.gates).sum(2)
        z = torch.cat([made, level], 2) * gate * there[..., None]
        error = (self._sent(self.samples.reward[at]) - z @ self.mean) * there
        spread, count = self.noise.exp(), self._sent(lengths.astype(np.float32))
        across = z.transpose(1, 2)
        root = torch.linalg.cholesky(torch.eye(z.shape[2], device=self.place) + across @ z / spread)
        pulled = torch.linalg.solve_triangular(root, across @ error[..., None] / spread, upper=False)
        fitted = (error**2).sum(1) / spread - (pulled**2).sum((1, 2))
        volume = 2 * torch.diagonal(root, dim1=1, dim2=2).log().sum(1) + count * self.noise
        return (fitted + volume) / (2 * count.clamp(min=1))

    def learn(self, users: NDArray[np.int64]) -> None:
        """Take one step."""
        self.steps.zero_grad(set_to_none=True)
        self.surprise(users).mean().backward()
        self.gates.grad[0] = 0  # of what is not known
        self.steps.step()

    def tried(self, users: NDArray[np.int64]) -> float:
        """Return the mean surprise at some users."""
        total = 0.0
        with self.torch.no_grad():
            for start in range(0, len(users), 8 * _USERS_A_BATCH):
                total += float(self.surprise(users[start : start + 8 * _USERS_A_BATCH]).sum())
        return total / len(users)

    def copies(self) -> tuple[list[Floats], list[Floats], Floats]:
        """Return weights, biases and gates as arrays."""
        held = [one.detach().cpu().numpy().copy() for one in (*self.layers, self.gates)]
        return held[:-1:2], held[1:-1:2], held[-1]

    def _sent(self, array: NDArray[Any]) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.place)
