"""The paper's experiments as specs, and its printed numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from treeward.bandit import BANDITS, strength_of
from treeward.experiment.baselines import BASELINES
from treeward.experiment.spec import SYNTHETIC, Arm, Judge, Spec, Value

TABLE_3 = {
    "MIND": {
        "LinUCB": (4.76, 158.41, 357.91), "HMAB": (4.41, 217.40, 520.97), "ICTRUCB": (5.60, 300.83, 709.05),
        "ConUCB": (7.47, 188.50, 409.23), "HUCB": (7.48, 407.82, 918.38), "pHUCB": (7.93, 419.74, 866.60),
    },
    "Taobao": {
        "LinUCB": (10.70, 106.12, 212.26), "HMAB": (10.74, 120.89, 255.22), "ICTRUCB": (10.98, 135.99, 290.33),
        "ConUCB": (13.04, 273.86, 584.84), "HUCB": (16.20, 320.68, 699.29), "pHUCB": (16.51, 391.36, 806.66),
    },
}  # fmt: skip
"""Cumulative reward of a user at rounds 100, 1000 and 2000, as printed."""

TABLE_ROUNDS = (100, 1_000, 2_000)

REWARDS = (
    Arm("LinUCB", "flat", baseline=True),
    Arm("CB-Category", "cb-category", baseline=True),
    Arm("CB-Leaf", "cb-leaf", baseline=True),
    Arm("ConUCB", "conucb", baseline=True, bandit_options={"alpha": 0.25}),
    Arm("HMAB", "hmab", baseline=True),
    Arm("ICTRUCB", "ictr", baseline=True),
    Arm("HUCB", "hcb"),
    Arm("pHUCB", "phcb"),
)
"""Table 3, and the two variants of figure 3."""

READINGS = (
    Arm("HUCB, authors' code", "hcb", options={"split": "authors", "node_vectors": "mean"}),
    Arm(
        "pHUCB, authors' code",
        "phcb",
        options={"split": "authors", "node_vectors": "mean", "start": "children", "authors": True},
    ),
    Arm("LinUCB, clicks", "flat", baseline=True, reward="click"),
    Arm("HUCB, clicks", "hcb", reward="click"),
    Arm("pHUCB, clicks", "phcb", reward="click"),
    *(
        Arm(
            f"{label}, authors' reading, {told}", "context-free", baseline=True,
            options={"groups": groups, "shared_nodes": nodes, "shared_items": items},
        )
        for label, told, groups, nodes, items in (
            ("HMAB", "per user", "categories", False, False),
            ("HMAB", "shared", "categories", True, True),
            ("ICTRUCB", "per user", "leaves", False, False),
            ("ICTRUCB", "items shared", "leaves", False, True),
        )
    ),
    Arm("ConUCB, LinUCB's alpha", "conucb", baseline=True, bandit_options={"alpha": 0.5}, options={"key_alpha": 0.5}),
)  # fmt: skip
"""Where the paper and its authors' code differ, the other reading."""

_BASES = {"UCB": ("linucb", {}), "TS": ("thompson", {}), "EG": ("epsilon", {"epsilon": 0.05})}
_WALKS = {"{}": "flat", "CB-Category {}": "cb-category", "CB-Leaf {}": "cb-leaf", "H{}": "hcb", "pH{}": "phcb"}

GRID_Q, GRID_P = (0, 5, 10, 15, 20, 25), (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)


def rewards(data: str, *, readings: bool = False, **options: Any) -> Spec:
    """Return table 3: every baseline and both of ours, with LinUCB."""
    return Spec("rewards", data, REWARDS + (READINGS if readings else ()), **options)


def bases(data: str, **options: Any) -> Spec:
    """Return figure 3: three bandits, five ways to walk."""
    arms = [
        Arm(label.format(short), policy, bandit, baseline=policy not in ("hcb", "phcb"), bandit_options=dict(more))
        for short, (bandit, more) in _BASES.items()
        for label, policy in _WALKS.items()
    ]
    return Spec("bases", data, tuple(arms), **options)


def sensitivity(data: str, **options: Any) -> Spec:
    """Return figure 4: pHUCB over a grid of q and p, at round 1000."""
    arms = [Arm(f"q {q}, p {p:g}", "phcb", options={"q": float(q), "p": p}) for q in GRID_Q for p in GRID_P]
    return Spec("sensitivity", data, tuple(arms), **{"rounds": 1_000, **options})


FRONTIER = (
    Arm("random", "flat", baseline=True, options={"budget": 1}),
    Arm("popularity", "popularity", baseline=True),
    Arm("mean user", "mean-user", baseline=True),
    Arm("ALS, folded in", "als", baseline=True),
    Arm("HUCB", "hcb", baseline=True),
    Arm("pHUCB", "phcb", baseline=True),
    Arm("HUCB + shortlist", "hcb", options={"shortlist": 8}),
    Arm("pHUCB + shortlist", "phcb", options={"shortlist": 8}),
    Arm("pHUCB + prior", "phcb", prior=True),
    Arm("LinUCB, exact", "flat", options={"budget": 0}),
    Arm("LinUCB, exact + prior", "flat", options={"budget": 0}, prior=True),
    Arm("Beam, no prior", "beam", options={"budget": 0}),
    Arm("Beam", "beam", options={"budget": 0}, prior=True),
    Arm("Beam, small", "beam", options={"budget": 2, "means": 250}, prior=True),
    Arm("Beam, large", "beam", options={"budget": 16, "means": 2400}, prior=True),
    Arm("Beam, Thompson", "beam", "thompson", options={"budget": 0}, bandit_options={"v": 0.1}, prior=True),
    Arm("Beam, epsilon-greedy", "beam", "epsilon", options={"budget": 0}, prior=True),
)
"""Reward against work: common alternatives, the paper's policies, exact bandits, and ours."""


def frontier(data: str, **options: Any) -> Spec:
    """Return reward against work, in clicks: each item once in 300 rounds, or repeats in 1,000."""
    once = options.get("once", True)
    return Spec("frontier", data, FRONTIER, **{"rounds": 300 if once else 1_000, "reward": "click", **options})


_WITH_PRIOR: tuple[tuple[str, str, str, dict[str, Value]], ...] = (
    ("LinUCB, exact", "flat", "linucb", {"budget": 0}),
    ("pHUCB", "phcb", "linucb", {}),
    ("XCB", "xcb", "linucb", {"budget": 0}),
    ("MIPS-LinUCB", "mips", "linucb", {"budget": 0}),
    ("MIPS-TS", "mips", "thompson", {"budget": 0}),
    ("SpannerGreedy", "spanner-greedy", "linucb", {"budget": 0}),
    ("SpannerIGW", "spanner-igw", "linucb", {"budget": 0}),
)

RIVALS = (
    Arm("popularity", "popularity", baseline=True),
    Arm("Diag-LinUCB", "diag-linucb", baseline=True, options={"budget": 0}),
    Arm("ENR", "enr", "thompson", baseline=True, options={"budget": 0}),
    *(
        Arm(f"{label}{' + prior' * prior}", policy, bandit, baseline=True, options=dict(options), prior=prior)
        for prior in (False, True)
        for label, policy, bandit, options in _WITH_PRIOR
    ),
    Arm("Beam, no prior", "beam", options={"budget": 0}),
    Arm("Beam", "beam", options={"budget": 0}, prior=True),
)
"""Methods published since 2021, next to exact LinUCB, pHUCB and Beam; each that can take the prior, with it too."""


def rivals(data: str, **options: Any) -> Spec:
    """Return reward against work for methods published since 2021, in clicks, each item once."""
    return Spec("rivals", data, RIVALS, **_newcomers(data, options, items=100_000, users=20_200, dim=32))


def _newcomers(data: str, options: Mapping[str, Any], **world: Value) -> dict[str, Any]:
    """Return how new users are tried, in clicks, each item once.

    In a synthetic world, whose usual size is `world`, other users have seen random items: arms may learn from them.
    """
    given: dict[str, Any] = {"users": 200, "rounds": 300, "repeats": 5, "reward": "click", "once": True, **options}
    if data == SYNTHETIC:
        given = {"shown": 100, **given, "loader_options": world | dict(given.get("loader_options", {}))}
    return given


CLOSED_LOOP = (
    Arm("Linear", "next-linear", baseline=True),
    Arm("GRU", "next-gru", baseline=True),
    Arm("Transformer", "next-transformer", baseline=True),
    Arm("popularity", "popularity", baseline=True),
    Arm("random", "flat", baseline=True, options={"budget": 1}),
    *(
        Arm(label.format(short), policy, bandit, bandit_options=dict(more))
        for label, policy in (("Lin{}", "flat"), ("H{}", "hcb"), ("pH{}", "phcb"))
        for short, (bandit, more) in _BASES.items()
    ),
    Arm("Beam", "beam", options={"budget": 0}, prior=True),
)
"""Table 4: models that exploit, bandits that explore, and two that learn nothing."""


JUDGES = (Judge("the paper's: no biases"), Judge("with biases", biases=True, decay=0.5))
"""Of table 4: sigmoid(u'v) as the paper has it, and a factorisation that knows popularity before it learns anything."""

SENSITIVITY = tuple(
    Judge(f"{negatives} negatives, decay {decay:g}", negatives=negatives, decay=decay)
    for negatives in (1, 4, 10)
    for decay in (0.005, 0.02, 0.1)
    if (negatives, decay) != (JUDGES[0].negatives, JUDGES[0].decay)
)
"""Other choices of what the paper does not give: the number of negatives per click, and the decay."""


def closed_loop(data: str, *, judge_sensitivity: bool = False, **options: Any) -> Spec:
    """Return table 4: from three clicks, 200 recommendations, and what can be learned from what they collect.

    `judge_sensitivity`: also judge with other numbers of negatives and other decays.
    """
    given = {
        "users": 200, "rounds": 200, "repeats": 5, "reward": "click", "once": True, "start": 3, "pick": "diverse",
        "judges": JUDGES + (SENSITIVITY if judge_sensitivity else ()),
    }  # fmt: skip
    return Spec("closed-loop", data, CLOSED_LOOP, **{**given, **options})


_DEEP: tuple[tuple[str, str, dict[str, Value]], ...] = (
    ("LinUCB, exact", "flat", {"budget": 0}),
    ("HUCB", "hcb", {}),
    ("pHUCB", "phcb", {}),
    ("Beam", "beam", {"budget": 0}),
)

DEEP = tuple(
    Arm(
        f"{label}{', deep' * features}{' + prior' * prior}", policy, baseline=not features, options=dict(options),
        prior=prior, features=features,
    )
    for prior in (False, True)
    for label, policy, options in _DEEP
    for features in (False, True)
)  # fmt: skip
"""Linear against neural-linear: the same policies, in items' own vectors and in what a network makes of them."""


def deep(data: str, **options: Any) -> Spec:
    """Return linear against neural-linear, in clicks, each item once; both know the same log of training users."""
    return Spec("deep", data, DEEP, **_newcomers(data, options, items=10_000, users=20_200, dim=16, nonlinear=2.0))


TABLE_4 = {
    "MIND": {
        "Linear": (1.679, 0.703), "GRU": (1.759, 0.686), "Transformer": (1.377, 0.695), "HUCB": (0.681, 0.720),
        "pHUCB": (0.680, 0.723),
    },
    "Taobao": {
        "Linear": (0.693, 0.530), "GRU": (0.688, 0.535), "Transformer": (0.683, 0.546), "HUCB": (0.660, 0.649),
        "pHUCB": (0.661, 0.647),
    },
}  # fmt: skip
"""LogLoss and AUC as printed."""

PRESETS = {
    "rewards": rewards,
    "closed-loop": closed_loop,
    "bases": bases,
    "sensitivity": sensitivity,
    "frontier": frontier,
    "rivals": rivals,
    "deep": deep,
}

_STRENGTHS = {"alpha": (0.1, 0.25, 0.5, 1.0), "v": (0.05, 0.1, 0.2, 0.5)}
_FIELDS = tuple({"q": q, "p": p} for q in (5.0, 10.0, 20.0) for p in (0.05, 0.1, 0.2))
_OWN_STRENGTHS: dict[str, tuple[str, tuple[float, ...]]] = {
    "enr": ("strength", (0.1, 0.3, 1.0)),
    "xcb": ("strength", (30.0, 100.0, 1_000.0)),
    "spanner-greedy": ("epsilon", (0.0, 0.02, 0.05)),
    "spanner-igw": ("strength", (3.0, 10.0, 100.0)),
}
"""What `tune` tries: the bandit's strength (alpha, v or epsilon), pHCB's q and p, and how much a rival explores that
has its own rule for it."""


def tuning(spec: Spec) -> Spec:
    """Return the spec that tries every arm's grid on validation users; arms that do not explore have no grid."""
    arms = tuple(made for arm in spec.arms for made in _grid(arm))
    return replace(spec, name="tune", split="validation", arms=arms)


def _grid(arm: Arm) -> list[Arm]:
    strength = strength_of(BANDITS[arm.bandit])
    if arm.policy in _OWN_STRENGTHS:
        name, values = _OWN_STRENGTHS[arm.policy]
        steps: list[dict[str, dict[str, float]]] = [{"options": {name: value}} for value in values]
    elif arm.policy in BASELINES or strength is None:
        steps = [{}]
    else:
        openings: tuple[dict[str, float], ...] = _FIELDS if arm.policy == "phcb" else ({},)
        steps = [{"bandit_options": {strength: strong}, "options": opening}
                 for strong, opening in product(_STRENGTHS.get(strength, _STRENGTHS["alpha"]), openings)]  # fmt: skip
    made = []
    for step in steps:
        said = ", ".join(f"{name} {value:g}" for options in step.values() for name, value in options.items())
        label = f"{arm.label} | {said}" if said else arm.label
        more = {kind: {**getattr(arm, kind), **options} for kind, options in step.items()}
        made.append(replace(arm, label=label, **more))  # type: ignore[arg-type]
    return made


def tuned(spec: Spec, best: Sequence[Arm]) -> Spec:
    """Return the spec with each arm as it did best."""
    chosen = {arm.label.split(" | ")[0]: arm for arm in best}
    arms = tuple(replace(chosen[arm.label], label=arm.label) for arm in spec.arms)
    return replace(spec, name=f"{spec.name}-tuned", arms=arms)
