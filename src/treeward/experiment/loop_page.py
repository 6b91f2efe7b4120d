"""Table 4's part of a report: what can be learned from what each arm collected, and what became of the users."""

import numpy as np
import polars as pl

from treeward.core.page import COLOURS, heading, plot, table, text
from treeward.experiment.presets import TABLE_4
from treeward.experiment.run import Outcome
from treeward.experiment.summary import Learned, Repeated, gaps, verdicts


def judged(outcome: Outcome) -> list[str]:
    """Return the sections."""
    found = verdicts(outcome)
    return [*_table(outcome, found), *_claim(outcome), *_pictures(found), *_users(outcome, found), *_models(outcome)]


def _table(outcome: Outcome, found: list[Learned]) -> list[str]:
    best = max(range(len(found)), key=lambda i: found[i].auc.mean)
    printed = [name for name in TABLE_4 if any(one.arm in TABLE_4[name] for one in found)]
    rows = []
    for one in found:
        paper = [
            f"{value:.3f}" if one.arm in TABLE_4[name] else ""
            for name in printed
            for value in TABLE_4[name].get(one.arm, (0.0, 0.0))
        ]
        rows.append((one.arm, _pair(one.log_loss), _pair(one.auc), *paper))
    head = ("arm", "LogLoss", "AUC", *(f"{name}, {what}" for name in printed for what in ("LogLoss", "AUC")))
    spec = outcome.spec
    return [
        heading("What can be learned of the users from what was collected"),
        text(
            f"A factorisation is trained on training users' clicks and on what each arm collected in {spec.rounds:,}",
            "rounds, then tried on the other clicks of the same users, each beside an item they never clicked. Mean",
            f"and deviation of {spec.repeats} repeats; on the right the paper's table 4.",
        ),
        table(head, rows, best=best),
        text(
            "Nothing collected: the factorisation knows of the users only the clicks they began with. An arm below",
            "that line collected what misleads about these clicks.",
            soft=True,
        ),
    ]


def _claim(outcome: Outcome) -> list[str]:
    by_auc, by_loss = gaps(outcome, "auc"), gaps(outcome, "log_loss")
    if not by_auc:
        return []
    rows = [
        (f"{ours} above {theirs}", _gap(gap, half), _gap(loss, loss_half))
        for (ours, theirs, gap, half), (_, _, loss, loss_half) in zip(by_auc, by_loss, strict=True)
    ]
    head = ("explorer above exploiter", "by AUC, more is better", "by LogLoss, how much less")
    return [table(head, rows, "The paper's claim, and Beam: does it hold here? Paired by repeat, with 95 % intervals")]


def _pictures(found: list[Learned]) -> list[str]:
    from plotly import graph_objects as go

    figure = go.Figure()
    for at, one in enumerate(found[1:]):
        figure.add_scatter(
            x=[one.clicks], y=[one.auc.mean], name=one.arm, mode="markers",
            error_y={"type": "data", "array": [one.auc.deviation], "thickness": 1},
            marker={"size": 11, "color": COLOURS[at % len(COLOURS)],
                    "symbol": ("circle", "diamond", "square")[at // len(COLOURS) % 3]},
        )  # fmt: skip
    figure.add_hline(y=found[0].auc.mean, line_dash="dot", annotation_text=found[0].arm)
    figure.update_layout(showlegend=True, xaxis_title="clicks of a user", yaxis_title="AUC of the factorisation")
    return [plot(figure, "Who earns clicks, and who collects what tells users' other clicks.", 460)]


def _users(outcome: Outcome, found: list[Learned]) -> list[str]:
    from plotly import graph_objects as go

    rows = [
        (one.arm, f"{one.clicks:.1f}", f"{one.categories:.1f}", f"{one.gini:.3f}", f"{one.coverage:.1%}")
        for one in found[1:]
    ]
    head = ("arm", "clicks", "categories clicked in", "Gini impurity of what was shown", "catalogue shown to anybody")
    figure = go.Figure()
    turns = outcome.rewards["round"].unique().sort().to_numpy()
    for at, arm in enumerate(outcome.spec.arms):
        mean = outcome.rewards.filter(arm=arm.label).group_by("round").agg(pl.col("reached").mean()).sort("round")
        figure.add_scatter(
            x=turns, y=np.asarray(mean["reached"]), name=arm.label,
            line={"color": COLOURS[at % len(COLOURS)], "dash": ("solid", "dash", "dot")[at // len(COLOURS) % 3]},
        )  # fmt: skip
    figure.update_layout(xaxis_title="round", yaxis_title="categories", hovermode="x unified")
    return [
        heading("What happened to the users"),
        table(head, rows),
        plot(figure, "Categories a user has clicked something in, by round.", 460),
    ]


def _models(outcome: Outcome) -> list[str]:
    told = dict(outcome.prepared["source"].get("next_click", {}))
    if not told:
        return []
    users = told.pop("users")
    return [
        heading("How good the exploiting models are"),
        text(f"Last clicks of {users:,} test users among 20 items of the whole catalogue (recall@20)."),
        table(("by", "recall@20"), [(name, f"{share:.2%}") for name, share in told.items()]),
    ]


def _pair(one: Repeated) -> str:
    return f"{one.mean:.3f} ± {one.deviation:.3f}"


def _gap(gap: float, half: float | None) -> str:
    sure = "" if half is None else f" ± {half:.3f}"
    return f"{'yes' if gap > 0 else 'no'}: {gap:+.3f}{sure}"
