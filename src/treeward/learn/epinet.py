"""Epistemic Neural Recommendation (Zhu and Van Roy, CIKM 2023): a reward model whose predictions vary with an index z.

Context and item go through one layer each, h = LayerNorm(ReLU(W x + c)). Features are x = (h_c, h_a, h_c * h_a), and

    f(context, item, z) = mean' x + bias + scale * (g(x, z) + p(x, z))' z.

g and p are perceptrons with one hidden layer; p keeps its first random weights. No gradient flows from g into x. How
much f varies over z ~ N(0, I) says how uncertain it is: Thompson sampling draws one z per decision.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.types import Floats
from treeward.learn.torch import one_thread, torch_for

_EPSILON = 1e-5
_NORM = 3
"""Multiplications per feature of a layer's normalisation."""


class Sizes(NamedTuple):
    """The size of the network."""

    context: int
    item: int
    features: int
    """Of a context or an item; x has three times as many."""
    hidden: int
    dims: int
    """Of z."""


class Steps(NamedTuple):
    """How it is trained."""

    number: int
    """Gradient steps per call."""
    batch: int
    indices: int
    """Values of z per example."""
    rate: float


class Examples(NamedTuple):
    """What was shown, and what it earned."""

    context: Floats
    row: NDArray[np.int64]
    reward: Floats


class Epinet:
    """The network with its optimiser (needs torch).

    Parameters
    ----------
    sizes
        See `Sizes`.
    items
        (items, dim): the vectors of all items.
    scale
        How much g and p count.
    steps
        See `Steps`.
    seed
        Initial weights, minibatches and indices come from here.
    """

    def __init__(self, sizes: Sizes, items: Floats, scale: float, steps: Steps, seed: int) -> None:
        self.torch = torch_for("ENR")
        self.sizes, self.scale, self.steps, self.seed = sizes, scale, steps, seed
        self.items = self.torch.from_numpy(np.array(items, dtype=np.float32))
        self.fixed = {name: self._tensor(one) for name, one in self._drawn("fixed").items()}
        self.weights = {name: self._tensor(one).requires_grad_() for name, one in self._first_weights().items()}
        self.optimiser = self.torch.optim.Adam(list(self.weights.values()), lr=steps.rate)
        self.taken = 0
        """Gradient steps so far."""
        self.examples = self._room(0)
        self.count = 0
        self._catalogue: tuple[Any, Any, Any] | None = None

    def _room(self, count: int) -> Examples:
        contexts = np.zeros((count, self.sizes.context), dtype=np.float32)
        return Examples(contexts, np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.float32))

    def _tensor(self, one: Floats) -> Any:
        return self.torch.from_numpy(one)

    def _glorot(self, name: str, rows: int, columns: int) -> Floats:
        drawn = rng.uniforms(self.seed, rng.stream("epinet", name), rows * columns).reshape(rows, columns)
        made: Floats = ((2 * drawn - 1) * (6 / (rows + columns)) ** 0.5).astype(np.float32)
        return made

    def _drawn(self, name: str) -> dict[str, Floats]:
        """Return a perceptron from (x, z) to the index's dimensions."""
        _, _, features, hidden, index = self.sizes
        return {
            f"{name}_in": self._glorot(f"{name} in", 3 * features + index, hidden),
            f"{name}_in_bias": np.zeros(hidden, dtype=np.float32),
            f"{name}_out": self._glorot(f"{name} out", hidden, index),
            f"{name}_out_bias": np.zeros(index, dtype=np.float32),
        }

    def _first_weights(self) -> dict[str, Floats]:
        made: dict[str, Floats] = {}
        for name, width in (("context", self.sizes.context), ("item", self.sizes.item)):
            made[name] = self._glorot(name, width, self.sizes.features)
            made[f"{name}_bias"] = np.zeros(self.sizes.features, dtype=np.float32)
            made[f"{name}_gain"] = np.ones(self.sizes.features, dtype=np.float32)
            made[f"{name}_shift"] = np.zeros(self.sizes.features, dtype=np.float32)
        made["mean"] = self._glorot("mean", 3 * self.sizes.features, 1)[:, 0].copy()
        made["bias"] = np.zeros(1, dtype=np.float32)
        return made | self._drawn("learned")

    def arrays(self) -> dict[str, Floats]:
        """Return copies of all weights."""
        return {name: one.detach().numpy().copy() for name, one in (self.weights | self.fixed).items()}

    def _layer(self, name: str, x: Any) -> Any:
        w = self.weights
        raised = self.torch.relu(x @ w[name] + w[f"{name}_bias"])
        shape = (self.sizes.features,)
        return self.torch.nn.functional.layer_norm(raised, shape, w[f"{name}_gain"], w[f"{name}_shift"], _EPSILON)

    def _varying(self, name: str, weights: dict[str, Any], x: Any, z: Any) -> Any:
        """Return what a perceptron adds: (indices, examples)."""
        split = 3 * self.sizes.features
        first = weights[f"{name}_in"]
        hidden = self.torch.relu(x @ first[:split] + (z @ first[split:])[:, None] + weights[f"{name}_in_bias"])
        out = hidden @ weights[f"{name}_out"] + weights[f"{name}_out_bias"]
        return (out * (self.scale * z)[:, None]).sum(-1)

    def logits(self, context: Any, item: Any, z: Any) -> Any:
        """Return f: (indices, examples), before the sigmoid."""
        left, right = self._layer("context", context), self._layer("item", item)
        x = self.torch.cat((left, right, left * right), 1)
        apart = x.detach()
        added = self._varying("learned", self.weights, apart, z) + self._varying("fixed", self.fixed, apart, z)
        return x @ self.weights["mean"] + self.weights["bias"] + added

    def loss(self, examples: Examples, z: Floats) -> Any:
        """Return the cross-entropy, averaged over examples and indices."""
        torch = self.torch
        logits = self.logits(torch.from_numpy(examples.context), self.items[examples.row], torch.from_numpy(z))
        told = torch.from_numpy(examples.reward).expand_as(logits)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, told)

    def add(self, examples: Examples) -> None:
        """Remember examples."""
        start, end = self.count, self.count + len(examples.row)
        if end > len(self.examples.row):
            held, self.examples = self.examples, self._room(max(1_024, 2 * end))
            self._write(slice(0, start), Examples(held.context[:start], held.row[:start], held.reward[:start]))
        self._write(slice(start, end), examples)
        self.count = end

    def _write(self, where: slice, examples: Examples) -> None:
        self.examples.context[where], self.examples.row[where] = examples.context, examples.row
        self.examples.reward[where] = examples.reward

    def drawn_batch(self, step: int) -> tuple[Examples, Floats]:
        """Return the minibatch and the indices of a gradient step, counted from 0."""
        sizes, steps = self.sizes, self.steps
        batch = rng.uniforms(self.seed, rng.stream("epinet", "batch", step), steps.batch)
        which = (batch * self.count).astype(np.int64)
        z = rng.normals(self.seed, rng.stream("epinet", "z", step), steps.indices * sizes.dims)
        held = self.examples
        made = Examples(held.context[which], held.row[which], held.reward[which])
        return made, z.reshape(steps.indices, sizes.dims).astype(np.float32)

    def train(self) -> None:
        """Take gradient steps on minibatches of all examples so far."""
        with one_thread(self.torch):
            for _ in range(self.steps.number):
                self.optimiser.zero_grad(set_to_none=True)
                self.loss(*self.drawn_batch(self.taken)).backward()
                self.optimiser.step()
                self.taken += 1
        self._catalogue = None

    @property
    def stale(self) -> bool:
        """Whether the next prediction first takes all items through the network."""
        return self._catalogue is None

    def known(self) -> tuple[Any, Any, Any]:
        """Return what does not depend on contexts, per item: h_a, its part of the mean, and of both hidden layers."""
        if self._catalogue is None:
            split = self.sizes.features
            right = self._layer("item", self.items)
            first = self.torch.cat((self.weights["learned_in"], self.fixed["fixed_in"]), 1)
            self._catalogue = (
                right, right @ self.weights["mean"][split : 2 * split], right @ first[split : 2 * split]
            )  # fmt: skip
        return self._catalogue

    def means(self, contexts: Floats) -> Floats:
        """Return (contexts, items): the part of f that does not depend on z."""
        with one_thread(self.torch), self.torch.no_grad():
            right, alone, _ = self.known()
            left, split = self._layer("context", self._tensor(contexts)), self.sizes.features
            weight = self.weights["mean"]
            own = left @ weight[:split] + self.weights["bias"]
            made: Floats = ((left * weight[2 * split :]) @ right.T + alone + own[:, None]).numpy()
            return made

    def varying(self, contexts: Floats, z: Floats, rows: list[NDArray[np.int64] | None]) -> list[Floats]:
        """Return the part of f that depends on z, for each context with its z and its items (None: all)."""
        with one_thread(self.torch), self.torch.no_grad():
            right, _, shared = self.known()
            left, split, torch = self._layer("context", self._tensor(contexts)), self.sizes.features, self.torch
            drawn = self._tensor(z)
            w = self.weights | self.fixed
            first = torch.cat((w["learned_in"], w["fixed_in"]), 1)
            bias = torch.cat((w["learned_in_bias"], w["fixed_in_bias"]))
            own = left @ first[:split] + drawn @ first[3 * split :] + bias
            scaled = self.scale * drawn
            out = torch.cat((scaled @ w["learned_out"].T, scaled @ w["fixed_out"].T), 1)
            level = scaled @ (w["learned_out_bias"] + w["fixed_out_bias"])
            both, made = first[2 * split : 3 * split], []
            for i, mine in enumerate(rows):
                some = slice(None) if mine is None else torch.from_numpy(mine)
                hidden = torch.addmm(shared[some], right[some], left[i][:, None] * both)
                hidden += own[i]
                made.append((torch.relu_(hidden) @ out[i] + level[i]).numpy())
            return made

    def catalogue_work(self) -> int:
        """Return how many multiplications it takes to bring all items through the network."""
        _, item, features, hidden, _ = self.sizes
        return len(self.items) * (item * features + _NORM * features + features + 2 * features * hidden)

    def decision_work(self, varied: int) -> int:
        """Return how many multiplications one context takes: the means of all items, and all of f for `varied`."""
        context, _, features, hidden, index = self.sizes
        means = context * features + _NORM * features + 2 * features + len(self.items) * features
        first = 2 * hidden * (2 * features + index)
        return means + first + 2 * hidden * index + 2 * index + varied * 2 * hidden * (features + 1)

    def training_work(self) -> int:
        """Return how many multiplications `train` takes: three times those of a prediction, one for what is fixed."""
        context, item, features, hidden, index = self.sizes
        count, batch, indices, _ = self.steps
        layers = batch * ((context + item) * features + (2 * _NORM + 4) * features)
        perceptron = batch * (3 * features * hidden + indices * (hidden + 1) * index) + indices * index * hidden
        return count * (3 * layers + 4 * perceptron)
