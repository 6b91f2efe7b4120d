"""What came of an experiment, in numbers: means, intervals, and differences paired by user."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from treeward.core.types import AnyArray
from treeward.experiment.presets import TABLE_3, TABLE_ROUNDS
from treeward.experiment.run import Outcome
from treeward.experiment.spec import Arm


@dataclass(frozen=True)
class Score:
    """One arm at one round."""

    arm: str
    round: int
    mean: float
    half: float | None
    """Half the 95 % interval; None where there is nothing to tell it from (see `estimate`)."""
    regret: float
    gain: float | None
    """How much more than the best baseline with the same kind of reward, user by user; None for that one itself ..."""
    gain_half: float | None
    p_value: float | None
    """... and how likely so much of a difference would be by chance (two-sided)."""


def rounds_of(outcome: Outcome) -> list[int]:
    """Return the rounds to tell of: the paper's, as far as they were played, and the last."""
    return sorted({*(one for one in TABLE_ROUNDS if one <= outcome.spec.rounds), outcome.spec.rounds})


def by_user(outcome: Outcome, round: int, what: str = "reward") -> dict[str, NDArray[np.float64]]:
    """Return every arm's cumulative reward (or regret): (users, repeats)."""
    table = outcome.rewards.filter(pl.col("round") == round).sort("arm", "repeat", maintain_order=True)
    return {
        arm.label: table.filter(arm=arm.label)[what].to_numpy().astype(np.float64).reshape(outcome.spec.repeats, -1).T
        for arm in outcome.spec.arms
    }


class Estimate(NamedTuple):
    """A mean and what is known of its error."""

    mean: float
    half: float | None
    """Half the 95 % interval."""
    p_value: float | None
    """How likely a mean so far from 0 would be by chance."""


def estimate(values: NDArray[np.float64], shared: bool) -> Estimate:
    """Return the mean of (users, repeats), with its error over users, whose repeats are averaged.

    Where users learn from each other (`shared`), those of one repeat are not independent: then users and repeats both
    count as drawn, and the degrees of freedom are Satterthwaite's.
    """
    mean = float(values.mean())
    count, repeats = values.shape
    if count < 2 or (shared and repeats < 2):
        return Estimate(mean, None, None)
    variance = by_users = float(values.mean(axis=1).var(ddof=1)) / count
    freedom = float(count - 1)
    if shared:
        by_repeats = float(values.mean(axis=0).var(ddof=1)) / repeats
        variance = max(by_users, by_users + by_repeats - float(values.var(ddof=1)) / values.size)
        parts = by_users**2 / (count - 1) + by_repeats**2 / (repeats - 1)
        freedom = max(1.0, (by_users + by_repeats) ** 2 / parts) if parts > 0 else freedom
    error = variance**0.5
    p_value = 2 * float(stdtr(freedom, -abs(mean) / error)) if error > 0 else float(mean == 0)
    return Estimate(mean, float(stdtrit(freedom, 0.975)) * error, p_value)


def shares(*arms: Arm) -> bool:
    """Tell whether users of one of the arms learn from each other."""
    return any(arm.kind.shared_state for arm in arms)


def scores(outcome: Outcome, round: int) -> list[Score]:
    """Return the scores of all arms at a round."""
    earned, lost = by_user(outcome, round), by_user(outcome, round, "regret")
    best: dict[str, Arm] = {}
    for arm in outcome.spec.arms:
        kind = arm.reward or outcome.spec.reward
        if arm.baseline and (kind not in best or earned[arm.label].mean() > earned[best[kind].label].mean()):
            best[kind] = arm
    made = []
    for arm in outcome.spec.arms:
        mine, rival = estimate(earned[arm.label], shares(arm)), best.get(arm.reward or outcome.spec.reward)
        gain = Estimate(0.0, None, None)
        if rival is not None and rival is not arm:
            gain = estimate(earned[arm.label] - earned[rival.label], shares(arm, rival))
        told = gain.mean if rival is not None and rival is not arm else None
        regret = float(lost[arm.label].mean())
        made.append(Score(arm.label, round, mine.mean, mine.half, regret, told, gain.half, gain.p_value))
    return made


def _arm(outcome: Outcome, label: str) -> Arm:
    return next(arm for arm in outcome.spec.arms if arm.label == label)


def paired(outcome: Outcome, one: str, other: str, round: int) -> Estimate:
    """Return how much more one arm earned than another, user by user."""
    earned = by_user(outcome, round)
    return estimate(earned[one] - earned[other], shares(_arm(outcome, one), _arm(outcome, other)))


class Deepened(NamedTuple):
    """An arm with learned features beside the same arm without."""

    arm: str
    plain: str
    earned: float
    earned_plain: float
    gap: Estimate

    @property
    def ratio(self) -> float:
        """How many times as much it earned."""
        return self.earned / self.earned_plain if self.earned_plain else float("nan")

    @property
    def within(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, what the plain arm earned taken as known."""
        if self.gap.half is None or not self.earned_plain:
            return None
        return self.ratio - self.gap.half / self.earned_plain, self.ratio + self.gap.half / self.earned_plain


def deepened(outcome: Outcome, round: int) -> list[Deepened]:
    """Return every arm with learned features that has a twin without, and by how much it earned more, user by user."""
    earned = {label: float(values.mean()) for label, values in by_user(outcome, round).items()}
    twins = [arm for arm in outcome.spec.arms if not arm.features]
    made = []
    for arm in outcome.spec.arms:
        plain = next((one.label for one in twins if _plain(one) == _plain(arm)), None)
        if arm.features and plain is not None:
            gap = paired(outcome, arm.label, plain, round)
            made.append(Deepened(arm.label, plain, earned[arm.label], earned[plain], gap))
    return made


def _plain(arm: Arm) -> Arm:
    return replace(arm, label="", baseline=False, features=False)


def curves(outcome: Outcome, what: str = "reward") -> dict[str, tuple[AnyArray, AnyArray, AnyArray]]:
    """Return of every arm the checkpoints, the means there, and half the intervals (0 where there is none)."""
    turns = outcome.rewards["round"].unique().sort().to_numpy()
    made: dict[str, tuple[AnyArray, AnyArray, AnyArray]] = {}
    for arm in outcome.spec.arms:
        mine = outcome.rewards.filter(arm=arm.label)[what].to_numpy().astype(np.float64)
        each = mine.reshape(outcome.spec.repeats, -1, len(turns)).transpose(2, 1, 0)
        told = [estimate(one, shares(arm)) for one in each]
        made[arm.label] = turns, np.array([one.mean for one in told]), np.array([one.half or 0.0 for one in told])
    return made


def order_kept(outcome: Outcome, round: int) -> list[tuple[str, bool, Estimate]]:
    """Return the paper's claims about who earns more, whether each holds here, and by how much."""
    labels = {arm.label for arm in outcome.spec.arms}
    claims = [(above, below) for above in ("HUCB", "pHUCB") for below in ("CB-Leaf", "CB-Category")]
    claims += [(above, "LinUCB") for above in ("CB-Leaf", "CB-Category")]
    claims += [(above, below) for above in ("pHUCB", "HUCB") for below in ("HMAB", "ICTRUCB", "ConUCB")]
    made = []
    for above, below in claims:
        if above in labels and below in labels:
            gap = paired(outcome, above, below, round)
            made.append((f"{above} above {below}", gap.mean > 0, gap))
    return made


def ratios(outcome: Outcome, round: int) -> dict[str, float]:
    """Return pHUCB / LinUCB here and, at the paper's last round, in the paper."""
    earned = {one.arm: one.mean for one in scores(outcome, round)}
    made = {}
    if {"pHUCB", "LinUCB"} <= set(earned):
        made["here"] = earned["pHUCB"] / earned["LinUCB"]
        for name, table in TABLE_3.items():
            if round in TABLE_ROUNDS:
                at = TABLE_ROUNDS.index(round)
                made[f"paper, {name}"] = table["pHUCB"][at] / table["LinUCB"][at]
    return made


def tidy(outcome: Outcome) -> pl.DataFrame:
    """Return one row an arm and round, with everything there is to say of it: what the CSV holds."""
    judged = [name for name in ("log_loss", "auc", "gini") if name in outcome.cells.columns]
    rows = [vars(one) for round in rounds_of(outcome) for one in scores(outcome, round)]
    cells = outcome.cells.group_by("arm").agg(
        pl.col("scores", "multiplications", "coverage", "questions", *judged).mean(),
        pl.col("most_scores").max(),
        (pl.col("seconds").mean() / (len(outcome.prepared["users"]) * outcome.spec.rounds) * 1e6).alias("us_a_round"),
    )
    return pl.DataFrame(rows).join(cells, on="arm", how="left", maintain_order="left")


class Repeated(NamedTuple):
    """A mean over repeats, and how far they are apart."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: pl.Series) -> "Repeated":
        """Summarise one number a repeat."""
        given = values.drop_nulls().to_numpy()
        return cls(float(given.mean()), float(given.std(ddof=1)) if len(given) > 1 else 0.0)


class Learned(NamedTuple):
    """What can be learned from what an arm collected, and what its users saw."""

    arm: str
    log_loss: Repeated
    auc: Repeated
    clicks: float | None = None
    """Of a user, in all."""
    categories: float | None = None
    """In which a user clicked something."""
    gini: float | None = None
    """Impurity of the categories a user was shown."""
    coverage: float | None = None


BEFORE = "nothing collected"


def verdicts(outcome: Outcome) -> list[Learned]:
    """Return what was judged, arm by arm; the first row is what the clicks that users began with tell alone."""
    cells = outcome.cells
    last = outcome.rewards.filter(pl.col("round") == outcome.spec.rounds)
    means = last.group_by("arm").agg(pl.col("reward", "reached").mean())
    made = [Learned(BEFORE, Repeated.of(cells["log_loss_before"]), Repeated.of(cells["auc_before"]))]
    for arm in outcome.spec.arms:
        mine, told = cells.filter(arm=arm.label), means.filter(arm=arm.label).row(0, named=True)
        by_repeat = {name: Repeated.of(mine[name]) for name in ("log_loss", "auc", "gini", "coverage")}
        loss, auc, gini, coverage = by_repeat.values()
        made.append(Learned(arm.label, loss, auc, told["reward"], told["reached"], gini.mean, coverage.mean))
    return made


def gaps(outcome: Outcome, name: str) -> list[tuple[str, str, float, float | None]]:
    """Return by how much HUCB, pHUCB and Beam are ahead of each model that exploits, with half the 95 % interval.

    `name` is ``"auc"`` (more is better) or ``"log_loss"`` (less is better: the difference is turned around). The
    interval is over repeats, each of which tries everybody on the same samples.
    """
    labels = [arm.label for arm in outcome.spec.arms]
    sign = 1.0 if name == "auc" else -1.0
    made: list[tuple[str, str, float, float | None]] = []
    for ours in ("HUCB", "pHUCB", "Beam"):
        for theirs in ("Linear", "GRU", "Transformer"):
            if ours in labels and theirs in labels:
                one, other = (outcome.cells.filter(arm=arm).sort("repeat")[name].to_numpy() for arm in (ours, theirs))
                gap = sign * (one - other)
                half = None
                if len(gap) > 1:
                    half = float(stdtrit(len(gap) - 1, 0.975) * gap.std(ddof=1) / len(gap) ** 0.5)
                made.append((ours, theirs, float(gap.mean()), half))
    return made
