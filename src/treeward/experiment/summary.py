"""Results of an experiment in numbers: means, intervals, and differences paired by user."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from treeward.core.types import AnyArray
from treeward.experiment.presets import TABLE_3, TABLE_ROUNDS
from treeward.experiment.profile_quality import Verdict
from treeward.experiment.run import Outcome
from treeward.experiment.spec import Arm


@dataclass(frozen=True)
class Score:
    """One arm at one round."""

    arm: str
    round: int
    mean: float
    half: float | None
    """Half of the 95 % interval; None where it cannot be estimated (see `estimate`)."""
    regret: float
    gain: float | None
    """Gain over the best baseline with the same kind of reward, paired by user; None for that baseline itself ..."""
    gain_half: float | None
    p_value: float | None
    """... and how likely such a difference would be by chance (two-sided)."""


def rounds_of(outcome: Outcome) -> list[int]:
    """Return the rounds to report: the paper's, as far as they were played, and the last."""
    return sorted({*(one for one in TABLE_ROUNDS if one <= outcome.spec.rounds), outcome.spec.rounds})


def by_user(outcome: Outcome, round: int, what: str = "cumulative_reward") -> dict[str, NDArray[np.float64]]:
    """Return every arm's cumulative reward (or regret): (users, repeats), the repeats of the first world first."""
    table = outcome.rewards.filter(pl.col("round") == round).sort("arm", "repeat", maintain_order=True)
    return {
        arm.label: table.filter(arm=arm.label)[what].to_numpy().astype(np.float64).reshape(outcome.spec.runs, -1).T
        for arm in outcome.spec.arms
    }


def interval_text(mean: float, half: float | None, form: str = ".2f") -> str:
    """Return a mean and half of its interval as text.

    Examples
    --------
    >>> interval_text(1.25, 0.5), interval_text(-2, None, "+.1f"), interval_text(3, 0.25, "+.1f")
    ('1.25 ± 0.50', '-2.0', '+3.0 ± 0.2')
    """
    return f"{mean:{form}}" + ("" if half is None else f" ± {half:{form.lstrip('+')}}")


class Estimate(NamedTuple):
    """A mean and its error."""

    mean: float
    half: float | None = None
    """Half of the 95 % interval; None if it is not known."""
    p_value: float | None = None
    """How likely a mean so far from 0 would be by chance."""

    @property
    def answer(self) -> str:
        """Whether it is above 0: ``"yes"`` or ``"no"`` if its interval says so, else ``"not distinguishable"``."""
        if self.half is None:
            return "not distinguishable"
        return "yes" if self.mean > self.half else "no" if self.mean < -self.half else "not distinguishable"

    def text(self, form: str = ".3f") -> str:
        """Return the mean and its interval as text."""
        return interval_text(self.mean, self.half, form)

    def answer_text(self, form: str = "+.1f") -> str:
        """Return the answer with the difference and its interval."""
        return f"{self.answer}: {self.text(form)}"


def estimate(values: NDArray[np.float64], shared: bool) -> Estimate:
    """Return the mean of (users, repeats), with its error over users, whose repeats are averaged.

    Where users learn from each other (`shared`), those of one repeat are not independent: then users and repeats both
    count as drawn, and the degrees of freedom are Satterthwaite's.
    """
    mean = float(values.mean())
    count, repeats = values.shape
    if count < 2 or (shared and repeats < 2):
        return Estimate(mean)
    variance = by_users = float(values.mean(axis=1).var(ddof=1)) / count
    freedom = float(count - 1)
    if shared:
        by_repeats = float(values.mean(axis=0).var(ddof=1)) / repeats
        # Both contain what is left when users and repeats are accounted for: it counts once.
        left = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + mean
        both = float((left**2).sum()) / ((count - 1) * (repeats - 1)) / values.size
        variance = max(by_users, by_users + by_repeats - both)  # an estimate of a variance may come out negative
        parts = by_users**2 / (count - 1) + by_repeats**2 / (repeats - 1)
        freedom = max(1.0, (by_users + by_repeats) ** 2 / parts) if parts > 0 else freedom
    error = variance**0.5
    p_value = 2 * float(stdtr(freedom, -abs(mean) / error)) if error > 0 else float(mean == 0)
    return Estimate(mean, float(stdtrit(freedom, 0.975)) * error, p_value)


def estimated(outcome: Outcome, values: NDArray[np.float64], *arms: Arm) -> Estimate:
    """Return the mean of (users, repeats) of some arms, or of their difference.

    With several worlds, users and worlds both count as drawn, each world's repeats averaged: the interval then also
    covers that another fit of the world gives another result.
    """
    worlds = outcome.spec.worlds
    if worlds > 1:
        return estimate(values.reshape(len(values), worlds, -1).mean(axis=2), True)
    return estimate(values, shares(outcome, *arms))


def shares(outcome: Outcome, *arms: Arm) -> bool:
    """Return whether users of one of the arms learn from each other, as recorded when they ran."""
    mine = outcome.cells.filter(pl.col("arm").is_in([arm.label for arm in arms]))
    return bool(mine["shared"].any())


def scores(outcome: Outcome, round: int) -> list[Score]:
    """Return the scores of all arms at a round."""
    earned, lost = by_user(outcome, round), by_user(outcome, round, "cumulative_regret")
    best: dict[str, Arm] = {}
    for arm in outcome.spec.arms:
        kind = arm.reward or outcome.spec.reward
        if arm.baseline and (kind not in best or earned[arm.label].mean() > earned[best[kind].label].mean()):
            best[kind] = arm
    made = []
    for arm in outcome.spec.arms:
        mine, rival = estimated(outcome, earned[arm.label], arm), best.get(arm.reward or outcome.spec.reward)
        gain = Estimate(0.0)
        if rival is not None and rival is not arm:
            gain = estimated(outcome, earned[arm.label] - earned[rival.label], arm, rival)
        told = gain.mean if rival is not None and rival is not arm else None
        regret = float(lost[arm.label].mean())
        made.append(Score(arm.label, round, mine.mean, mine.half, regret, told, gain.half, gain.p_value))
    return made


def _arm(outcome: Outcome, label: str) -> Arm:
    return next(arm for arm in outcome.spec.arms if arm.label == label)


def paired(outcome: Outcome, one: str, other: str, round: int) -> Estimate:
    """Return how much more one arm earned than another, paired by user."""
    earned = by_user(outcome, round)
    return estimated(outcome, earned[one] - earned[other], _arm(outcome, one), _arm(outcome, other))


class FeatureGain(NamedTuple):
    """An arm with learned features, compared with the same arm without."""

    arm: str
    plain: str
    earned: float
    earned_plain: float
    gap: Estimate

    @property
    def ratio(self) -> float:
        """What it earned, as a multiple of what the plain arm earned."""
        return self.earned / self.earned_plain if self.earned_plain else float("nan")

    @property
    def within(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, with what the plain arm earned taken as exact."""
        if self.gap.half is None or not self.earned_plain:
            return None
        return self.ratio - self.gap.half / self.earned_plain, self.ratio + self.gap.half / self.earned_plain


def feature_gains(outcome: Outcome, round: int) -> list[FeatureGain]:
    """Return every arm with learned features that has a twin without, and the gain, paired by user."""
    earned = {label: float(values.mean()) for label, values in by_user(outcome, round).items()}
    twins = [arm for arm in outcome.spec.arms if not arm.features]
    made = []
    for arm in outcome.spec.arms:
        plain = next((one.label for one in twins if _plain(one) == _plain(arm)), None)
        if arm.features and plain is not None:
            gap = paired(outcome, arm.label, plain, round)
            made.append(FeatureGain(arm.label, plain, earned[arm.label], earned[plain], gap))
    return made


def _plain(arm: Arm) -> Arm:
    return replace(arm, label="", baseline=False, features=False)


def curves(outcome: Outcome, what: str = "cumulative_reward") -> dict[str, tuple[AnyArray, AnyArray, AnyArray]]:
    """Return for every arm the checkpoints, the means there, and half the intervals (0 where there is none)."""
    turns = outcome.rewards["round"].unique().sort().to_numpy()
    made: dict[str, tuple[AnyArray, AnyArray, AnyArray]] = {}
    for arm in outcome.spec.arms:
        mine = outcome.rewards.filter(arm=arm.label)[what].to_numpy().astype(np.float64)
        each = mine.reshape(outcome.spec.runs, -1, len(turns)).transpose(2, 1, 0)
        told = [estimated(outcome, one, arm) for one in each]
        made[arm.label] = turns, np.array([one.mean for one in told]), np.array([one.half or 0.0 for one in told])
    return made


class Claim(NamedTuple):
    """The paper says that one arm earns more than another."""

    above: str
    below: str
    gap: Estimate
    """How much more it earned here, paired by user."""

    def __str__(self) -> str:
        return f"{self.above} above {self.below}"


def paper_claims() -> list[tuple[str, str]]:
    """Return the paper's claims, (arm that earns more, arm that earns less), by labels of `rewards` and `bases`."""
    others = ("HMAB", "ICTRUCB", "ConUCB")
    made = [(above, below) for above in ("HUCB", "pHUCB") for below in ("LinUCB", *others, "CB-Leaf", "CB-Category")]
    made += [(above, "LinUCB") for above in (*others, "CB-Leaf", "CB-Category")]
    for base in ("UCB", "TS", "EG"):
        variants = (f"CB-Category {base}", f"CB-Leaf {base}")
        made += [(f"{kind}{base}", below) for kind in ("H", "pH") for below in (base, *variants)]
        made += [(above, base) for above in variants]
        made.append((f"pH{base}", f"H{base}"))
    return made


def claims(outcome: Outcome, round: int) -> list[Claim]:
    """Return the paper's claims about arms that were run here, with the difference found."""
    labels = {arm.label for arm in outcome.spec.arms}
    return [
        Claim(above, below, paired(outcome, above, below, round))
        for above, below in paper_claims()
        if above in labels and below in labels
    ]


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
    """Return one row per arm and round with all its figures, for the CSV."""
    judged = [name for name in ("gini",) if name in outcome.cells.columns]
    rows = [vars(one) for round in rounds_of(outcome) for one in scores(outcome, round)]
    cells = outcome.cells.group_by("arm").agg(
        pl.col("scores", "multiplications", "coverage", "questions", *judged).mean(),
        pl.col("most_scores").max(),
        (pl.col("seconds").mean() / (len(outcome.prepared["users"]) * outcome.spec.rounds) * 1e6).alias("us_per_round"),
    )
    made = pl.DataFrame(rows).join(cells, on="arm", how="left", maintain_order="left")
    if outcome.spec.judges:
        first = outcome.verdicts.filter(pl.col("collected"), judge=outcome.spec.judges[0].label)
        found = first.group_by("arm").agg(pl.col(*VERDICT).mean())
        made = made.join(found, on="arm", how="left", maintain_order="left")
    return made


VERDICT = Verdict._fields
"""What a judge finds: on the users' other clicks, and on uniformly drawn items that the world labelled."""


class Repeated(NamedTuple):
    """A mean over repeats, and their standard deviation."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: pl.Series) -> "Repeated":
        """Summarise one number per repeat."""
        given = values.drop_nulls().to_numpy()
        return cls(float(given.mean()), float(given.std(ddof=1)) if len(given) > 1 else 0.0)


class Found(NamedTuple):
    """What a judge found over the repeats; see `VERDICT`."""

    log_loss: Repeated
    auc: Repeated
    log_loss_world: Repeated
    auc_world: Repeated


class ProfileResult(NamedTuple):
    """What a judge learned from what an arm collected, and what the arm's users saw."""

    arm: str
    found: Found
    clicks: float | None = None
    """Per user, in all."""
    categories: float | None = None
    """In which a user clicked something."""
    gini: float | None = None
    """Impurity of the categories a user was shown."""
    coverage: float | None = None


BEFORE = "nothing collected"


def verdicts(outcome: Outcome, judge: str = "") -> list[ProfileResult]:
    """Return what a judge found for each arm; the first row is for the clicks that users began with alone.

    `judge`: its label; by default the first one's.
    """
    label = judge or outcome.spec.judges[0].label
    mine = outcome.verdicts.filter(judge=label)
    last = outcome.rewards.filter(pl.col("round") == outcome.spec.rounds)
    means = last.group_by("arm").agg(pl.col("cumulative_reward", "reached").mean())
    bare = mine.filter(~pl.col("collected"))
    made = [ProfileResult(BEFORE, _found(bare))]
    for arm in outcome.spec.arms:
        found, told = mine.filter(pl.col("collected"), arm=arm.label), means.filter(arm=arm.label).row(0, named=True)
        seen = outcome.cells.filter(arm=arm.label)
        gini, coverage = (Repeated.of(seen[name]).mean for name in ("gini", "coverage"))
        made.append(ProfileResult(arm.label, _found(found), told["cumulative_reward"], told["reached"], gini, coverage))
    return made


def _found(table: pl.DataFrame) -> Found:
    return Found(*(Repeated.of(table[name]) for name in VERDICT))


def gaps(outcome: Outcome, name: str, judge: str = "") -> list[Claim]:
    """Return by how much HUCB, pHUCB and Beam are ahead of each model that exploits.

    `name` is one of `VERDICT`; for a LogLoss, less is better, so the difference is turned around. The interval is over
    repeats, each of which tests every arm on the same samples; with several worlds over these, their repeats averaged.
    """
    labels, label = [arm.label for arm in outcome.spec.arms], judge or outcome.spec.judges[0].label
    table = outcome.verdicts.filter(pl.col("collected"), judge=label).sort("repeat")
    sign = 1.0 if name.startswith("auc") else -1.0
    made = []
    for ours in ("HUCB", "pHUCB", "Beam"):
        for theirs in ("Linear", "GRU", "Transformer"):
            if ours in labels and theirs in labels:
                one, other = (table.filter(arm=arm)[name].to_numpy() for arm in (ours, theirs))
                gap = sign * (one - other)
                each = gap.reshape(outcome.spec.worlds, -1).mean(axis=1) if outcome.spec.worlds > 1 else gap
                made.append(Claim(ours, theirs, estimate(each[:, None], False)))
    return made
