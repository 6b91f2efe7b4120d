"""What came of an experiment, in numbers: means, intervals, and differences paired by user."""

from dataclasses import dataclass
from math import erfc

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeward.experiment.presets import TABLE_3, TABLE_ROUNDS
from treeward.experiment.run import Outcome


@dataclass(frozen=True)
class Score:
    """One arm at one round."""

    arm: str
    round: int
    mean: float
    half: float
    """Half the 95 % interval over users, whose repeats are averaged."""
    regret: float
    gain: float | None
    """How much more than the best baseline, user by user; None for that one itself, and where there is none ..."""
    gain_half: float | None
    p_value: float | None
    """... and how likely so much of a difference would be by chance (two-sided, normal)."""


def rounds_of(outcome: Outcome) -> list[int]:
    """Return the rounds to tell of: the paper's, as far as they were played, and the last."""
    return sorted({*(one for one in TABLE_ROUNDS if one <= outcome.spec.rounds), outcome.spec.rounds})


def by_user(outcome: Outcome, round: int, what: str = "reward") -> dict[str, NDArray[np.float64]]:
    """Return every arm's cumulative reward (or regret) of each user, averaged over repeats."""
    table = (
        outcome.rewards.filter(pl.col("round") == round)
        .group_by("arm", "user")
        .agg(pl.col(what).cast(pl.Float64).mean())
        .sort("arm", "user")
    )
    parts = {str(name): part[what].to_numpy() for (name,), part in table.partition_by("arm", as_dict=True).items()}
    return {arm.label: parts[arm.label] for arm in outcome.spec.arms}


def scores(outcome: Outcome, round: int) -> list[Score]:
    """Return the scores of all arms at a round."""
    earned, lost = by_user(outcome, round), by_user(outcome, round, "regret")
    baselines = [arm.label for arm in outcome.spec.arms if arm.baseline]
    best = max(baselines, key=lambda label: earned[label].mean()) if baselines else None
    made = []
    for arm in outcome.spec.arms:
        mine = earned[arm.label]
        gain = gain_half = p_value = None
        if best is not None and arm.label != best:
            gain, gain_half, p_value = paired(mine, earned[best])
        made.append(
            Score(arm.label, round, float(mine.mean()), _half(mine), float(lost[arm.label].mean()), gain, gain_half,
                  p_value)
        )  # fmt: skip
    return made


def paired(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean difference, half its 95 % interval, and how likely it would be by chance."""
    gap = one - other
    half = _half(gap)
    mean = float(gap.mean())
    error = half / 1.96
    return mean, half, float(erfc(abs(mean) / error / 2**0.5)) if error > 0 else float(mean == 0)


def _half(values: NDArray[np.float64]) -> float:
    return float(1.96 * values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def curves(outcome: Outcome, what: str = "reward") -> pl.DataFrame:
    """Return arm, round, mean and half the interval, at every checkpoint."""
    return (
        outcome.rewards.group_by("arm", "round", "user")
        .agg(pl.col(what).cast(pl.Float64).mean())
        .group_by("arm", "round")
        .agg(
            pl.col(what).mean().alias("mean"),
            (1.96 * pl.col(what).std() / pl.len().sqrt()).fill_null(0.0).alias("half"),
        )
        .sort("arm", "round")
    )


def order_kept(outcome: Outcome, round: int) -> list[tuple[str, bool]]:
    """Return the paper's claims about who earns more, and whether each holds here."""
    earned = {one.arm: one.mean for one in scores(outcome, round)}
    claims = [(above, below) for above in ("HUCB", "pHUCB") for below in ("CB-Leaf", "CB-Category")]
    claims += [(above, "LinUCB") for above in ("CB-Leaf", "CB-Category")]
    claims += [(above, below) for above in ("pHUCB", "HUCB") for below in ("HMAB", "ICTRUCB", "ConUCB")]
    return [
        (f"{above} above {below}", earned[above] > earned[below])
        for above, below in claims
        if above in earned and below in earned
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
    """Return one row an arm and round, with everything there is to say of it: what the CSV holds."""
    rows = [vars(one) for round in rounds_of(outcome) for one in scores(outcome, round)]
    cells = outcome.cells.group_by("arm").agg(
        pl.col("scores", "most_scores", "coverage", "questions").mean(),
        (pl.col("seconds").mean() / (len(outcome.prepared["users"]) * outcome.spec.rounds) * 1e6).alias("us_a_round"),
    )
    return pl.DataFrame(rows).join(cells, on="arm", how="left", maintain_order="left")
