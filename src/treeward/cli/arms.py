"""`--without` and `--policy` of an experiment: fewer arms, or more."""

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treeward.experiment import Spec


def without_arms(spec: "Spec", labels: list[str] | None) -> "Spec":
    """Return a spec without some of its arms."""
    from treeward.core import checks

    gone = {checks.one_of("experiment", "--without", label, [arm.label for arm in spec.arms]) for label in labels or []}
    return replace(spec, arms=tuple(arm for arm in spec.arms if arm.label not in gone))


def with_policies(spec: "Spec", policies: list[str] | None, bandit: str) -> "Spec":
    """Return a spec with more arms, each called after its class or, if there are several of a name, as it was given."""
    from treeward.experiment import Arm

    last = [name.rpartition(":")[2] for name in policies or []]
    also = "" if bandit == "linucb" else f" {bandit.rpartition(':')[2]}"
    taken = [*(arm.label for arm in spec.arms), *(name + also for name in last)]
    labels = [(short if taken.count(short + also) == 1 else name) + also
              for short, name in zip(last, policies or [], strict=True)]  # fmt: skip
    arms = tuple(Arm(label, name, bandit) for label, name in zip(labels, policies or [], strict=True))
    return replace(spec, arms=(*spec.arms, *arms))
