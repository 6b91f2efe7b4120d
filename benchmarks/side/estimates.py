"""Off-policy estimates from one log, by treeward or Open Bandit Pipeline: ``python estimates.py SIDE FOLDER OUT``.

SIDE is ours, theirs, or positions: theirs of a target with one row per position.
"""

import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

DRAWS = 1_000


def ours(log: dict[str, Any]) -> dict[str, float]:
    import polars as pl

    import treeward as tw

    names = ("user", "row", "propensity", "reward")
    table = pl.DataFrame({name: log[name] for name in names} | {"slot": np.zeros(len(log["row"]), dtype=np.int64)})
    made = tw.off_policy(table, lambda user: log["target"][user], lambda user: log["model"][user], draws=DRAWS)
    return {"ips": made.ips.value, "snips": made.snips.value, "dr": made.dr.value}


def theirs(log: dict[str, Any]) -> dict[str, float]:
    from obp.ope import (
        DoublyRobust,
        InverseProbabilityWeighting,
        OffPolicyEvaluation,
        SelfNormalizedInverseProbabilityWeighting,
    )

    many = len(log["row"])
    feedback = {
        "n_rounds": many,
        "n_actions": log["target"].shape[1],
        "action": log["row"],
        "reward": log["reward"],
        "pscore": log["propensity"],
        "position": np.zeros(many, dtype=int),
        "context": np.zeros((many, 1)),
    }
    estimators = [
        InverseProbabilityWeighting(estimator_name="ips"),
        SelfNormalizedInverseProbabilityWeighting(estimator_name="snips"),
        DoublyRobust(estimator_name="dr"),
    ]
    judge = OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=estimators)
    given = {
        "action_dist": log["target"][log["user"]][:, :, None],
        "estimated_rewards_by_reg_model": log["model"][log["user"]][:, :, None],
    }
    made = judge.estimate_policy_values(**given)
    judge.estimate_intervals(**given, n_bootstrap_samples=DRAWS, random_state=0)
    return {name: float(value) for name, value in made.items()}


def positions(log: dict[str, Any]) -> dict[str, float]:
    from obp.ope import DirectMethod, DoublyRobust, OffPolicyEvaluation
    from obp.ope import InverseProbabilityWeighting as IPS
    from obp.ope import SelfNormalizedInverseProbabilityWeighting as SNIPS

    many, (places, items) = len(log["row"]), log["target"].shape
    feedback = {
        "n_rounds": many, "n_actions": items, "action": log["row"], "reward": log["reward"],
        "pscore": log["propensity"], "position": log["position"], "context": np.zeros((many, 1)),
    }  # fmt: skip
    kinds = {"ips": IPS, "snips": SNIPS, "dr": DoublyRobust, "dm": DirectMethod}
    judge = OffPolicyEvaluation(
        bandit_feedback=feedback, ope_estimators=[kind(estimator_name=name) for name, kind in kinds.items()]
    )
    made = judge.estimate_policy_values(
        action_dist=np.repeat(log["target"].T[None], many, axis=0),
        estimated_rewards_by_reg_model=np.repeat(np.repeat(log["model"][:, None], places, axis=1)[None], many, axis=0),
    )
    return {name: float(value) for name, value in made.items()}


def main(side: str, folder: str, out: str) -> None:
    log = dict(np.load(Path(folder) / "log.npz"))
    if side == "positions":
        Path(out).write_text(json.dumps(positions(log)))
        return
    estimate, package = (ours, "treeward") if side == "ours" else (theirs, "obp")
    estimate({name: value[:20] if name not in ("target", "model") else value for name, value in log.items()})  # imports
    start = time.perf_counter()
    told = estimate(log)
    spent = time.perf_counter() - start
    Path(out).write_text(json.dumps(told | {"seconds": spent, "version": importlib.metadata.version(package)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
