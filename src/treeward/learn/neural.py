"""Trains a network so that the bandit's own posterior, over the network's features, explains a log.

The model is the one that policies use: a user's rewards are r = z' theta + noise with theta ~ N(mean, I) and
z = tower(item) * gate(context). Theta is integrated out, so no user vectors are fitted. Users held out, who are new to
the model as users are to a policy, decide when to stop.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.progress import Stage
from treeward.core.types import Floats
from treeward.learn.torch import device_for, torch_for, train_until_stable

OWNER = "NeuralLinear.fit"

_BATCH = 32
_SORTED = 16  # batches whose users are sorted by length together
_LEAST_GAIN = 1e-4  # a pass must lower the validation loss by this much to count as an improvement
_FIRST_LEVEL = 0.3


class Samples(NamedTuple):
    """Events, one user after another."""

    ends: NDArray[np.int64]
    """(users + 1,): the events of user i are [ends[i] : ends[i + 1]]."""
    row: NDArray[np.int64]
    """Row of the item in the matrix of items."""
    context: NDArray[np.int64]
    """(events, contexts): the number of each context's value, counted over all contexts from 1; 0: unknown."""
    reward: Floats

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.ends) - 1


class Training(NamedTuple):
    """Size of the network, and how it is trained."""

    hidden: Sequence[int]
    dim: int
    """Dimensions of an item's features, without the level."""
    rate: float
    decay: float
    passes: int
    patience: int
    seed: int
    device: str


class Network(NamedTuple):
    """The trained network as plain arrays."""

    weights: list[Floats]
    """(in, out) per layer; ReLU between layers, none after the last."""
    biases: list[Floats]
    gates: Floats
    """(values of contexts + 1, dim + 1): what each value adds to a gate of 1; the last column is the level's."""
    losses: list[float]
    """Loss per event of users held out, after every pass; the network is that of the lowest loss."""


def train(items: Floats, samples: Samples, values: int, settings: Training, stage: Stage) -> Network:
    """Fit by AdamW until the loss of users held out has hardly fallen for a while; every draw comes from the seed."""
    torch = torch_for(OWNER)
    model = _Model(torch, device_for(OWNER, torch, settings.device), items, samples, values, settings)
    people = rng.sample(settings.seed, rng.stream("neural", "users"), samples.users, samples.users)
    tenth = max(1, len(people) // 10)
    held, known = people[:tenth], people[tenth:]

    def train_pass(turn: int) -> None:
        for batch in _batches(samples, known, settings.seed, turn):
            model.learn(batch)

    best, losses = train_until_stable(
        train_pass, lambda: model.mean_loss(held), model.copies, passes=settings.passes, patience=settings.patience,
        needed=lambda lowest: lowest - _LEAST_GAIN, rate=settings.rate, owner=OWNER, stage=stage,
    )  # fmt: skip
    return Network(*best, losses)


def _batches(samples: Samples, users: NDArray[np.int64], seed: int, turn: int) -> Iterator[NDArray[np.int64]]:
    """Shuffle users, then batch those with similar numbers of events, so that there is little padding."""
    order = users[rng.sample(seed, rng.stream("neural", "pass", turn), len(users), len(users))]
    many, lengths = _BATCH * _SORTED, np.diff(samples.ends)
    for first in range(0, len(order), many):
        some = order[first : first + many]
        some = some[np.argsort(lengths[some], kind="stable")]
        for at in range(0, len(some), _BATCH):
            yield some[at : at + _BATCH]


class _Model:
    """The tensors that are trained."""

    def __init__(self, torch: Any, place: Any, items: Floats, samples: Samples, values: int, how: Training) -> None:
        self.torch, self.place, self.samples = torch, place, samples
        self.items = torch.from_numpy(np.ascontiguousarray(items)).to(place)
        widths = [items.shape[1], *how.hidden, how.dim]

        def tensor(values: Any) -> Any:
            return torch.tensor(values, dtype=torch.float32, device=place).requires_grad_()

        self.layers = []
        for at, (before, after) in enumerate(pairwise(widths)):
            drawn = rng.normals(how.seed, rng.stream("neural", "layer", at), before * after).reshape(before, after)
            scale = (2 / before) ** 0.5 if at < len(widths) - 2 else (1 / (before * after)) ** 0.5
            self.layers += [tensor(scale * drawn), tensor(np.zeros(after))]
        self.gates = tensor(np.zeros((values + 1, how.dim + 1)))
        self.level, self.noise = tensor(_FIRST_LEVEL), tensor(0.0)
        self.mean = tensor(np.zeros(how.dim + 1))
        groups = [
            {"params": [*self.layers, self.gates], "weight_decay": how.decay},
            {"params": [self.level, self.noise, self.mean], "weight_decay": 0.0},
        ]
        self.steps = torch.optim.AdamW(groups, lr=how.rate, fused=False)

    def tower(self, rows: Any) -> Any:
        """Return the features of items, by row."""
        made = self.items[rows]
        for at in range(0, len(self.layers), 2):
            made = made @ self.layers[at] + self.layers[at + 1]
            if at + 2 < len(self.layers):
                made = made.relu()
        return made

    def loss(self, users: NDArray[np.int64]) -> Any:
        """Return -ln P(rewards) per event of each user, with theta integrated out, up to a constant.

        With Z of a user's events, A = I + Z'Z / s and b = Z'(r - Z mean) / s, it is half of
        |r - Z mean|^2 / s - b' A^-1 b + ln det A + n ln s.
        """
        torch, rows_of = self.torch, self.torch.nn.functional.embedding  # its gradient is summed in order
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
        """Take one optimiser step."""
        self.steps.zero_grad(set_to_none=True)
        self.loss(users).mean().backward()
        self.gates.grad[0] = 0  # an unknown value changes nothing
        self.steps.step()

    def mean_loss(self, users: NDArray[np.int64]) -> float:
        """Return the mean loss of users."""
        total = 0.0
        with self.torch.no_grad():
            for start in range(0, len(users), 8 * _BATCH):
                total += float(self.loss(users[start : start + 8 * _BATCH]).sum())
        return total / len(users)

    def copies(self) -> tuple[list[Floats], list[Floats], Floats]:
        """Return weights, biases and gates as arrays."""
        held = [one.detach().cpu().numpy().copy() for one in (*self.layers, self.gates)]
        return held[:-1:2], held[1:-1:2], held[-1]

    def _sent(self, array: NDArray[Any]) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.place)
