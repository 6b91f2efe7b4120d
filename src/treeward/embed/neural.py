"""`NeuralLinear`: features from a network that was trained on a log. Policies and posteriors stay linear in them."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.core import artefact, checks, rng
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, NotNegative, Positive, Seed, Whole
from treeward.core.errors import ArtefactCorrupt, DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.data.item_rows import with_item_rows
from treeward.embed.features import LEVEL, Context, Contexts, Features, context_value, context_values, unit
from treeward.learn.neural import OWNER, Network, Samples, Training, train

_CHUNK = 65_536
_LEAST_USERS = 10
_MOST_EVENTS = 200
_MOST_VALUES = 1_000


@dataclass(frozen=True, eq=False, repr=False)
class NeuralLinear(Features):
    """h(item): a small network of the item's vector; g(context): a learned factor per dimension. Make one with `fit`.

    Training needs torch. Using it does not: it is a few matrix products in numpy.

    Parameters
    ----------
    weights, biases
        (in, out) and (out,) per layer; ReLU between layers. The input is an item's vector at length 1, and its length.
    gates
        (values of all contexts, dim): what each value adds to a gate of 1.
    contexts
        Names of contexts, and their values in the order of `gates`.
    provenance
        How it was made.
    """

    FORMAT: ClassVar[str] = "treeward.neural"

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    gates: Floats
    contexts: Contexts = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def dim_in(self) -> int:
        """Dimensions of the items' own vectors."""
        return len(self.weights[0]) - 1

    @property
    def dim(self) -> int:
        """Dimensions of the features; the last is the same for all items."""
        return int(self.weights[-1].shape[1]) + 1

    def mapped(self, vectors: Floats) -> Floats:
        """Return the features of items, (items, dim), from their own vectors."""
        given = checks.vectors("NeuralLinear", vectors)
        self._check_dim("vectors", given.shape[1])
        made = np.full((len(given), self.dim), LEVEL, dtype=np.float32)
        for first in range(0, len(given), _CHUNK):
            x = _inputs(given[first : first + _CHUNK])
            for at, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
                x = x @ weights + biases
                if at + 1 < len(self.weights):
                    np.maximum(x, 0, out=x)
            made[first : first + _CHUNK, :-1] = x
        return made

    def gate(self, context: Context | None) -> Floats:
        """Return the gate of a context, (dim,): features are multiplied by it. Ones for unknown values."""
        made, first = np.ones(self.dim, dtype=np.float32), 0
        given = self._known(context)
        for name, values in self.contexts.items():
            now = context_value("NeuralLinear", given[name]) if name in given else None
            if now in values:
                made += self.gates[first + values.index(now)]
            first += len(values)
        return made

    @classmethod
    @checks.checked(OWNER)
    def fit(
        cls,
        interactions: Interactions,
        catalogue: Catalogue,
        *,
        dim: Annotated[int, Whole(low=2)] = 32,
        hidden: Sequence[Count] = (128, 64),
        contexts: pl.DataFrame | None = None,
        negatives: Count = 4,
        users: Annotated[int, Whole(low=_LEAST_USERS)] = 20_000,
        passes: Count = 60,
        patience: Count = 8,
        rate: Positive = 0.002,
        decay: NotNegative = 0.1,
        seed: Seed = 0,
        device: str = "cpu",
        progress: Progress | None = None,
    ) -> Self:
        """Learn the features in which the bandit's own posterior explains a log best (needs torch).

        A user's rewards are modelled as r = z' theta + noise with theta ~ N(mean, I), and theta is integrated out. The
        network maximises the likelihood of all rewards, as `Crowd` does for given features. A tenth of the users, held
        out, decides when to stop. Then features are scaled to a mean squared length of 1.

        Parameters
        ----------
        interactions
            The log; give it training users only. Rewards above 0 count, others are skips.
        catalogue
            The items, with vectors.
        dim
            Dimensions of the features, one of which is the same for all items.
        hidden
            Widths of the hidden layers; without any, features are linear in the item's vector.
        contexts
            One row per event, one column per context (time, device, place): texts or numbers that recur.
        negatives
            Skips per reward: those that the log lacks are drawn from all items.
        users
            The most users of the log to use, with at most 200 events of each.
        passes
            The most passes over the users.
        patience
            Passes without improvement before training stops.
        rate
            Learning rate of AdamW.
        decay
            Weight decay of AdamW.
        seed
            The same seed, log and device give the same network.
        device
            ``"cpu"``, ``"cuda"``, or ``"auto"``: the GPU if there is one.
        progress
            Called with (stage, done, total).
        """
        if not catalogue.dim:
            raise InvalidArgument(OWNER, "catalogue", "one with vectors", "none")
        known = _encoded(contexts, len(interactions))
        log = _samples(interactions, catalogue, known, negatives, users, seed)
        inputs = _inputs(catalogue.vectors)
        mean = inputs.mean(axis=0, dtype=np.float64)
        spread = np.maximum(inputs.std(axis=0, dtype=np.float64), 1e-6)
        standard = ((inputs - mean) / spread).astype(np.float32)
        settings = Training([*hidden], dim - 1, rate, decay, passes, patience, seed, device)
        stage = Stage(progress or silent, "training the network", passes)
        made = train(standard, log, sum(map(len, known.values.values())), settings, stage)
        provenance = {
            "users": log.users,
            "events": len(log.row),
            "hidden": [*hidden],
            "passes": int(np.argmin(made.losses)),
            "loss_before": made.losses[0],
            "loss": min(made.losses),
            "seed": seed,
            "treeward": __version__,
            "vectors_sha256": artefact.digest(catalogue.vectors),
        }
        weights, biases = _folded(made, standard, mean, spread, centred=not known.values)
        return cls(weights, biases, made.gates[1:], known.values, provenance)

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the network to a directory, checksummed."""
        arrays: dict[str, Any] = {"gates": self.gates}
        for at, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays |= {_name("weights", at): weights, _name("biases", at): biases}
        known = {"contexts": [[name, list(values)] for name, values in self.contexts.items()]}
        contents = artefact.Contents(arrays, {}, known, {**self.provenance, "layers": len(self.weights)})
        artefact.write(path, self.FORMAT, self.VERSION, contents, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote."""
        held = artefact.read(path, cls.FORMAT, cls.VERSION)
        info = dict(held.info)
        try:
            layers = range(checks.integer("NeuralLinear", "layers", info.pop("layers"), low=1))
            weights, biases = (
                tuple(np.array(held.arrays[_name(kind, at)]) for at in layers) for kind in ("weights", "biases")
            )
            contexts = {str(name): tuple(map(str, values)) for name, values in held.documents["contexts"]}
            made = cls(weights, biases, np.array(held.arrays["gates"]), contexts, info)
            made._check()
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactCorrupt(f"{path}: does not hold a network: {error}") from error
        return made

    def _check(self) -> None:
        """Raise an error if the arrays do not fit each other."""
        for at, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            before = self.weights[at - 1].shape[1] if at else len(weights)
            if weights.ndim != 2 or len(weights) != before or biases.shape != weights.shape[1:]:
                raise InvalidArgument("NeuralLinear", "weights", "layers that fit each other", f"layer {at}")
            if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
                raise InvalidArgument("NeuralLinear", "weights", "finite", f"layer {at}")
        wanted = (sum(map(len, self.contexts.values())), self.dim)
        if self.gates.shape != wanted or not np.isfinite(self.gates).all():
            raise InvalidArgument("NeuralLinear", "gates", f"finite, of shape {wanted}", f"shape {self.gates.shape}")


def _name(kind: str, at: int) -> str:
    return f"{kind}_{'abcdefghijklmnopqrstuvwxyz'[at]}"


def _inputs(vectors: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    return np.concatenate([unit(vectors), lengths[:, None].astype(np.float32)], axis=1)


def _folded(
    made: Network, standard: Floats, mean: NDArray[np.float64], spread: NDArray[np.float64], *, centred: bool
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Return the layers with the standardisation folded into the first, and the scale of features into the last.

    With contexts, features are not centred: a gate must act on them as it was learned.
    """
    x = standard
    for at, (layer, bias) in enumerate(zip(made.weights, made.biases, strict=True)):
        x = x @ layer + bias
        x = np.maximum(x, 0) if at + 1 < len(made.weights) else x
    middle = x.mean(axis=0, dtype=np.float64) if centred else np.zeros(x.shape[1])
    squares = float(np.mean(((x - middle) ** 2).sum(axis=1)))
    scale = ((1 - float(LEVEL) ** 2) / max(squares, 1e-12)) ** 0.5
    weights = [layer.astype(np.float64) for layer in made.weights]
    biases = [bias.astype(np.float64) for bias in made.biases]
    weights[-1], biases[-1] = weights[-1] * scale, (biases[-1] - middle) * scale
    weights[0] = weights[0] / spread[:, None]
    biases[0] = biases[0] - mean @ weights[0]
    return tuple(one.astype(np.float32) for one in weights), tuple(one.astype(np.float32) for one in biases)


class _Encoded(NamedTuple):
    """The contexts of a log's requests, as numbers."""

    values: Contexts
    codes: NDArray[np.int64]
    """(events, contexts): numbers of values, counted over all contexts from 1; 0: no value."""


def _encoded(contexts: pl.DataFrame | None, events: int) -> _Encoded:
    if contexts is None:
        return _Encoded({}, np.zeros((events, 0), dtype=np.int64))
    if not isinstance(contexts, pl.DataFrame) or contexts.height != events:
        got = f"{contexts.height} rows" if isinstance(contexts, pl.DataFrame) else type(contexts).__name__
        raise InvalidArgument(OWNER, "contexts", f"a DataFrame of {events} rows, one per event", got)
    values: Contexts = {}
    codes, first = np.zeros((events, contexts.width), dtype=np.int64), 1
    for at, name in enumerate(contexts.columns):
        kept = [None if one is None else context_value(OWNER, one) for one in contexts[name].to_list()]
        values[name] = context_values(OWNER, (one for one in kept if one is not None))
        if len(values[name]) > _MOST_VALUES:
            rule = f"of at most {_MOST_VALUES} values per column; group numbers into a few classes first"
            raise InvalidArgument(OWNER, "contexts", rule, f"{len(values[name])} in {name!r}")
        number = {one: first + place for place, one in enumerate(values[name])}
        codes[:, at] = [0 if one is None else number[one] for one in kept]
        first += len(values[name])
    return _Encoded(values, codes)


def _samples(
    interactions: Interactions, catalogue: Catalogue, known: _Encoded, negatives: int, users: int, seed: int
) -> Samples:
    """Return the log as numbers, user by user, with drawn skips if it has too few."""
    marked = copy(interactions)
    marked.table = interactions.table.with_row_index("at")
    found = with_item_rows(OWNER, marked, catalogue).select("user", "row", "reward", "at").collect()
    found = found.with_columns((pl.col("user").rank("dense") - 1).alias("user"))
    if not found.height or float(found["reward"].max()) <= 0:  # type: ignore[arg-type]
        raise DataError(f"{OWNER}: the log rewards no item of the catalogue")
    user, row, at = (found[name].to_numpy().astype(np.int64) for name in ("user", "row", "at"))
    reward = found["reward"].to_numpy().astype(np.float64)
    if int(user.max()) + 1 < _LEAST_USERS:
        raise DataError(f"{OWNER}: the log has {int(user.max()) + 1} users; at least {_LEAST_USERS} are needed")
    liked = np.flatnonzero(reward > 0)
    lacking = round(negatives - (len(reward) - len(liked)) / len(liked))
    if lacking > 0:
        seen, items = np.unique(user * len(catalogue) + row), len(catalogue)
        again = np.repeat(liked, lacking)
        drawn = (rng.uniforms(seed, rng.stream("neural", "negatives"), len(again)) * items).astype(np.int64)
        fresh = ~np.isin(user[again] * items + drawn, seen)
        user, at = np.concatenate([user, user[again][fresh]]), np.concatenate([at, at[again][fresh]])
        row, reward = np.concatenate([row, drawn[fresh]]), np.concatenate([reward, np.zeros(int(fresh.sum()))])
    chosen = _some(user, users, seed)
    user, row, at, reward = user[chosen], row[chosen], at[chosen], reward[chosen]
    ends = np.concatenate([[0], np.flatnonzero(np.diff(user)) + 1, [len(user)]]).astype(np.int64)
    scale = max(float(reward.std()), 1e-6)
    return Samples(ends, row, known.codes[at], (reward / scale).astype(np.float32))


def _some(user: NDArray[np.int64], users: int, seed: int) -> NDArray[np.int64]:
    """Return the events to use, in order of users: at most `users` users, and 200 events of each."""
    count = int(user.max()) + 1
    people = rng.sample(seed, rng.stream("neural", "people"), count, min(users, count))
    order = rng.sample(seed, rng.stream("neural", "events"), len(user), len(user))
    order = order[np.isin(user[order], people)]
    order = order[np.argsort(user[order], kind="stable")]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(user[order])) + 1])
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(order)]])))
    chosen: NDArray[np.int64] = order[place < _MOST_EVENTS]
    return chosen
