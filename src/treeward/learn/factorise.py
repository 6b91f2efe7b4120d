"""Logistic factorisation of weighted events: P(reward) = sigmoid(user . item + user bias + item bias)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeward.core import rng
from treeward.core.progress import Stage
from treeward.core.types import Floats
from treeward.learn.torch import device_for, torch_for, train_until_stable

_BATCHES = 100
_LEAST_BATCH, _MOST_BATCH = 256, 32_768
_LEAST_GAIN = 5e-4  # a pass must lower the validation loss by this share to count as an improvement
_BIAS_DECAY = 2.0


class Events(NamedTuple):
    """Training rows: user, item, reward, and the weight of each row."""

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    reward: Floats
    weight: Floats


class Factors(NamedTuple):
    """The fitted vectors and biases."""

    users: Floats
    items: Floats
    user_bias: Floats
    item_bias: Floats
    losses: list[float]
    """Weighted log-loss on the validation rows after every pass; the factors are those of the lowest loss."""


def factorise(
    train: Events,
    valid: Events,
    users: int,
    items: int,
    dim: int,
    *,
    decay: float,
    rate: float,
    passes: int,
    patience: int,
    seed: int,
    device: str,
    stage: Stage,
    biases: bool = True,
    owner: str = "World.fit",
) -> Factors:
    """Fit by Adam on shuffled minibatches, until the validation loss has hardly fallen for `patience` passes.

    `decay` pulls vectors towards zero. At 1 it removes everything that chance alone could explain (see `_noise`).
    Without `biases` the model is sigmoid(user . item): all biases stay zero, and there is no base rate either. Every
    draw comes from the seed, so the same rows give the same factors on the same device.
    """
    torch = torch_for(owner)
    place = device_for(owner, torch, device)

    def table(name: str, rows: int, columns: int, scale: float) -> Any:
        drawn = rng.normals(seed, rng.stream("factors", name), rows * columns).reshape(rows, columns)
        made = torch.tensor(scale * drawn, dtype=torch.float32, device=place)
        return made.requires_grad_()

    scale = 0.1 / dim**0.5
    people, things = table("users", users, dim, scale), table("items", items, dim, scale)
    user_bias, item_bias = table("user bias", users, 1, 0.0), table("item bias", items, 1, 0.0)
    rows = {name: _tensors(torch, part, place) for name, part in (("train", train), ("valid", valid))}
    total = train.weight.sum(dtype=np.float64)
    chance = float((train.reward * train.weight).sum(dtype=np.float64) / total)
    first_level = np.log(chance / (1 - chance)) if biases else 0.0
    level = torch.tensor([first_level], dtype=torch.float32, device=place).requires_grad_()
    tables = [people, things, user_bias, item_bias]
    steps = torch.optim.Adam([*tables, level] if biases else [people, things], lr=rate, fused=False)

    rows_of = torch.nn.functional.embedding  # its gradient is much faster than that of indexing

    def parts(user: Any, item: Any) -> list[Any]:
        return [rows_of(user, people), rows_of(item, things), rows_of(user, user_bias), rows_of(item, item_bias)]

    def joined(person: Any, thing: Any, person_bias: Any, thing_bias: Any) -> Any:
        product = (person * thing).sum(1)
        return product + person_bias.squeeze(1) + thing_bias.squeeze(1) + level if biases else product

    loss_of = torch.nn.functional.binary_cross_entropy_with_logits

    def validated() -> float:
        user, item, reward, weight = rows["valid"]
        with torch.no_grad():
            made = joined(*parts(user, item))
            return float((loss_of(made, reward, reduction="none") * weight).sum() / weight.sum())

    strength = decay * _noise(train, users, items, chance)
    batch = max(_LEAST_BATCH, min(_MOST_BATCH, len(train.user) // _BATCHES))

    def train_pass(turn: int) -> None:
        order = torch.from_numpy(rng.sample(seed, rng.stream("pass", turn), len(train.user), len(train.user))).to(place)
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            user, item, reward, weight = (column[chosen] for column in rows["train"])
            steps.zero_grad(set_to_none=True)
            loss = (loss_of(joined(*parts(user, item)), reward, reduction="none") * weight).mean()
            pull = strength * ((people**2).sum() + (things**2).sum())
            pull = pull + _BIAS_DECAY * ((user_bias**2).sum() + (item_bias**2).sum())  # zero without biases
            (loss + pull / len(order)).backward()
            steps.step()

    best, losses = train_until_stable(
        train_pass, validated, lambda: _copies(tables, level), passes=passes, patience=patience,
        needed=lambda lowest: (1 - _LEAST_GAIN) * lowest, rate=rate, owner=owner, stage=stage,
    )  # fmt: skip
    made_people, made_things, made_user_bias, made_item_bias, made_level = best
    return Factors(made_people, made_things, made_user_bias[:, 0] + made_level, made_item_bias[:, 0].copy(), losses)


def _noise(train: Events, users: int, items: int, chance: float) -> float:
    """Return about half of the largest singular value of the log's residuals if rewards were drawn by chance alone.

    A pull of this strength removes vectors that only fit chance. What many users and items share is stronger.
    """
    rows = len(train.user)
    return float((chance * (1 - chance)) ** 0.5 * ((rows / users) ** 0.5 + (rows / items) ** 0.5) / 2)


def _tensors(torch: Any, part: Events, place: Any) -> list[Any]:
    return [torch.from_numpy(np.ascontiguousarray(column)).to(place) for column in part]


def _copies(tables: list[Any], level: Any) -> list[NDArray[np.float32]]:
    return [table.detach().cpu().numpy().copy() for table in (*tables, level)]
