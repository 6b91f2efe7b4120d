"""Estimates of what another policy would have earned, from a log: IPS, SNIPS, doubly robust, direct method."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from treeward.core import checks, rng
from treeward.core.checks import Positive, Seed, Whole
from treeward.core.errors import InvalidArgument
from treeward.data.open_bandit import checked_log

_PRIOR_EVENTS = 10
_FEW_DECISIONS = 200
_FEW_USERS = 30
_MOST_DRAWN = 4_000_000

Guess = Callable[[Any], ArrayLike]


class Estimate(NamedTuple):
    """An estimate of the mean reward per decision, with a 95 % interval from a bootstrap over users."""

    name: str
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        between = "" if np.isnan(self.low) else f" ({self.low:.4f} - {self.high:.4f})"
        return f"{self.name:24} {self.value:.4f}{between}"


class OffPolicy(NamedTuple):
    """What a log says about another policy."""

    ips: Estimate
    snips: Estimate
    dr: Estimate
    dm: Estimate
    """The direct method: what the model expects. Without an interval: a bootstrap does not see the model's error."""
    logged: Estimate
    """What the policy that made the log earned."""
    weight: Estimate
    """Mean weight of a decision. It is about 1 if the log's policy could have done everything that the target does."""
    effective: float
    """The effective sample size: as many decisions of the target itself would be worth as much. See `too_few`."""
    decisions: int
    exact: float
    """Share of the decisions whose propensity is exact, according to the log."""
    users: int
    left_out: int
    """Decisions that no policy drew, which do not count: users held out, callers' own items."""

    @property
    def supported(self) -> bool:
        """Whether the weights average 1, as they must.

        If not, the estimates are of something else: the log's policy was deterministic, or items were closed when it
        decided (shown before, earlier in a list, filtered, not yet in the catalogue).
        """
        wide = self.weight.high - self.weight.low
        return bool(np.isnan(wide) or abs(self.weight.value - 1) <= max(wide, 1e-6))

    def __repr__(self) -> str:
        lines = [str(one) for one in (self.logged, self.ips, self.snips, self.dr, self.dm)]
        lines.append(
            f"worth {self.effective:,.0f} of {self.decisions:,} decisions; mean weight {self.weight.value:.3f}"
        )
        return "\n".join([*lines, *self.notes])

    @property
    def too_few(self) -> bool:
        """Whether the effective sample size is below 200, so that no number here can be believed."""
        return self.effective < _FEW_DECISIONS

    @property
    def notes(self) -> list[str]:
        """Warnings in words; none if all is well."""
        found = []
        if self.left_out:
            found.append(f"{self.left_out:,} decisions left out: users held out, or items that the caller chose")
        if self.exact < 1:
            found.append(f"only {self.exact:.0%} of the propensities are exact: good for a look, not for a number")
        if self.too_few:
            found.append(
                f"worth only {self.effective:,.0f} decisions of the target's own, fewer than {_FEW_DECISIONS}: too few "
                "to believe any of these numbers"
            )
        if self.users < _FEW_USERS:
            found.append(f"only {self.users} users: intervals over fewer than {_FEW_USERS} are too narrow")
        if not self.supported:
            found.append(
                "the weights do not average 1: the log could not have done what the target does; believe none. Was an "
                "item shown before, filtered, later in a list, or added meanwhile? Did the policy draw at all?"
            )
        return found


@checks.checked()
def off_policy(
    log: pl.DataFrame,
    target: Guess,
    model: Guess | None = None,
    *,
    clip: Positive | None = None,
    draws: Annotated[int, Whole(low=2)] = 1_000,
    seed: Seed = 0,
) -> OffPolicy:
    """Estimate the mean reward of a fixed policy from the log of another one.

    IPS weighs a decision by how much likelier the target was to make it; it is unbiased, and wide where the two
    policies differ. Self-normalised IPS divides by the weights' sum instead of the number: a little bias for much less
    variance. Doubly robust corrects a model's guess by the weighted errors of that guess: it is right if either the
    propensities or the model are. Intervals come from a bootstrap over users, because a user's decisions are not
    independent. The direct method is the model's guess alone, as good or bad as the model.

    Parameters
    ----------
    log
        What `Explorer.log` or ``simulate(..., log=True).log`` returned. Every item must have had a chance in every
        decision: one item per call, no filters, repeats allowed, and a policy that draws (epsilon-greedy or Thompson
        sampling, not LinUCB). See `OffPolicy.supported`. Adopted decisions are left out, and counted.
    target
        For a user, as the log names them, the probability of every item of the catalogue under the policy in question.
        If it depends on the place in a list: one row per slot. Items that were added while the log was made have
        columns too, after the others; give them 0.
    model
        For a user, the expected reward of every item, for the doubly robust estimate: ``world.chances_of``, say. By
        default the items' mean rewards in the log, drawn towards the mean of all.
    clip
        The largest weight; by default none is cut, and IPS is unbiased.
    draws
        Number of bootstrap samples.
    seed
        The seed of the bootstrap.

    Examples
    --------
    >>> log = pl.DataFrame({"user": [1, 1, 2, 2], "row": [0, 1, 0, 1], "slot": [0, 0, 0, 0],
    ...                     "propensity": [0.5] * 4, "reward": [1.0, 0.0, 1.0, 0.0]})
    >>> told = off_policy(log, lambda user: [0.9, 0.1])
    >>> round(told.ips.value, 3), round(told.logged.value, 3)
    (0.9, 0.5)
    """
    owner = "off_policy"
    if not callable(target) or not (model is None or callable(model)):
        raise InvalidArgument(owner, "target", "a function of a user, as `model` must be", target)
    made, left_out = checked_log(owner, log)
    rows, rewards = made["row"].to_numpy(), made["reward"].to_numpy()
    users = made["user"].unique(maintain_order=True)
    who = (
        made.select("user")
        .join(pl.DataFrame({"user": users, "who": np.arange(len(users))}), on="user", maintain_order="left")["who"]
        .to_numpy()
    )
    ours, guessed, expected = _told(owner, made, users, who, target, model)
    weight = ours / made["propensity"].to_numpy()
    if clip is not None:
        weight = np.minimum(weight, clip)

    def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(who, values, minlength=len(users)).astype(np.float64)

    one = total(np.ones(len(rows)))
    parts = {
        "ips": ("IPS", total(weight * rewards), one),
        "snips": ("self-normalised IPS", total(weight * rewards), total(weight)),
        "dr": ("doubly robust", total(expected + weight * (rewards - guessed)), one),
        "dm": ("direct method", total(expected), one),
        "logged": ("the log itself", total(rewards), one),
        "weight": ("mean weight", total(weight), one),
    }
    told = {name: _estimate(*part, draws, seed) for name, part in parts.items()}
    told["dm"] = told["dm"]._replace(low=np.nan, high=np.nan)
    exact = float(made["exact"].cast(pl.Float64).mean()) if "exact" in made.columns else 1.0  # type: ignore[arg-type]
    worth = float(weight.sum() ** 2 / max((weight**2).sum(), 1e-300))
    return OffPolicy(**told, effective=worth, decisions=len(rows), exact=exact, users=len(users), left_out=left_out)


def _told(
    owner: str, made: pl.DataFrame, users: pl.Series, who: NDArray[np.int64], target: Guess, model: Guess | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return for every decision the target's probability, the model's guess, and its mean under the target."""
    rows, rewards = made["row"].to_numpy(), made["reward"].to_numpy()
    ours, guessed, expected = (np.zeros(len(rows)) for _ in range(3))
    order = np.argsort(who, kind="stable")
    ends = np.cumsum(np.bincount(who, minlength=len(users)))[:-1]
    plain: NDArray[np.float64] | None = None
    slots = made["slot"].to_numpy()
    for user, mine in zip(users.to_list(), np.split(order, ends), strict=True):
        chances = _checked_chances(owner, made, target(user))
        items = chances.shape[1]
        if model is None and plain is None:
            plain = _means(rows, rewards, items)
        values = np.asarray(model(user), dtype=np.float64) if model is not None else plain
        if values is None or values.shape != (items,) or not np.isfinite(values).all():
            raise InvalidArgument(owner, "model", f"a function that gives {items} finite numbers", values)
        slot = slots[mine] if len(chances) > 1 else np.zeros(len(mine), dtype=np.int64)
        ours[mine], guessed[mine], expected[mine] = (
            chances[slot, rows[mine]],
            values[rows[mine]],
            (chances @ values)[slot],
        )
    return ours, guessed, expected


def _checked_chances(owner: str, made: pl.DataFrame, given: ArrayLike) -> NDArray[np.float64]:
    """Return a target's probabilities as (1, items), or as (slots, items) if they depend on the slot."""
    chances = np.asarray(given, dtype=np.float64)
    last, deepest = (int(made[name].max()) for name in ("row", "slot"))  # type: ignore[arg-type]
    if chances.ndim == 1:
        chances = chances[None, :]
    elif chances.ndim == 2 and len(chances) <= deepest:
        rule = f"a function that gives one row of probabilities, or {deepest + 1}, one per slot"
        raise InvalidArgument(owner, "target", rule, f"{len(chances)} rows")
    if chances.ndim == 2 and chances.shape[1] <= last:
        raise InvalidArgument(owner, "target", _too_short(made, last), f"{chances.shape[1]} probabilities")
    if chances.ndim != 2 or not np.isfinite(chances).all():
        raise InvalidArgument(owner, "target", "a function that gives the probability of every item", chances)
    sums = chances.sum(axis=1)
    if (chances < 0).any() or (abs(sums - 1) > 1e-3).any():
        raise InvalidArgument(owner, "target", "a function whose probabilities sum to 1", float(sums[0]))
    return chances


def _too_short(made: pl.DataFrame, last: int) -> str:
    """Return how many items a target must know, and the item of the log that shows it."""
    named = made.filter(row=last)["item"][0] if "item" in made.columns else None
    shown = f"row {last}" if named is None else f"row {last}, item {named!r}"
    return (
        f"a function that gives a probability for at least {last + 1} items, because the log shows {shown}; an item "
        "that was added while the log was made has a row too: give it 0 unless it was there from the start"
    )


def _means(rows: NDArray[np.int64], rewards: NDArray[np.float64], items: int) -> NDArray[np.float64]:
    counts, sums = np.bincount(rows, minlength=items), np.bincount(rows, rewards, minlength=items)
    means: NDArray[np.float64] = (sums + _PRIOR_EVENTS * rewards.mean()) / (counts + _PRIOR_EVENTS)
    return means


def _estimate(name: str, up: NDArray[np.float64], down: NDArray[np.float64], draws: int, seed: int) -> Estimate:
    """Return the ratio of two sums over users, with its interval from a bootstrap over users."""
    users, made = len(up), []
    if users < 2:  # no bootstrap without other users
        value = float(up.sum() / down.sum()) if down.sum() > 0 else float("nan")
        return Estimate(name, value, float("nan"), float("nan"))
    size = max(1, min(draws, _MOST_DRAWN // users))
    for first in range(0, draws, size):
        count = min(size, draws - first)
        coins = rng.uniforms(seed, rng.stream("bootstrap", first), count * users)
        drawn = (coins * users).astype(np.int64).reshape(count, users)
        below = down[drawn].sum(axis=1)
        made.append(up[drawn].sum(axis=1) / np.where(below > 0, below, np.nan))
    low, high = np.nanquantile(np.concatenate(made), [0.025, 0.975]) if down.sum() > 0 else (np.nan, np.nan)
    return Estimate(name, float(up.sum() / down.sum()) if down.sum() > 0 else float("nan"), float(low), float(high))
