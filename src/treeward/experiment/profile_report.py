"""Table 4's part of a report: what can be learned from what each arm collected, and what became of the users."""

import polars as pl

from treeward.core.plots import Line, Point, line_plot, point_plot
from treeward.core.ranking import LIST
from treeward.core.report_html import heading, plot, table, text
from treeward.experiment.presets import SENSITIVITY, TABLE_4
from treeward.experiment.run import Outcome
from treeward.experiment.spec import Judge
from treeward.experiment.summary import BEFORE, ProfileResult, gaps, interval_text, verdicts


def profile_quality(outcome: Outcome) -> list[str]:
    """Return the sections."""
    found = verdicts(outcome)
    return [
        *_tables(outcome), *_claim(outcome), *_sensitivity(outcome), *_pictures(found), *_users(outcome, found),
        *_models(outcome),
    ]  # fmt: skip


def _tables(outcome: Outcome) -> list[str]:
    spec = outcome.spec
    parts = [
        heading("What can be learned of the users from what was collected"),
        text(
            f"A factorisation is trained on training users' logs and on what each arm collected in {spec.rounds:,}",
            f"rounds, then tested on other clicks of the same users. {_samples(outcome)}",
            f"Mean and standard deviation of {spec.runs} repeats.",
        ),
    ]
    for judge in [one for one in spec.judges if one not in SENSITIVITY]:
        parts.append(_table(outcome, verdicts(outcome, judge.label), judge))
    return [
        *parts,
        text(
            "Nothing collected: the factorisation knows only the clicks that users began with. An arm below that line",
            "collected what misleads about the test samples. World labels: up to 100 items per user, drawn uniformly",
            "from the whole catalogue; their clicks are drawn from the world that answered the arms, not from the log.",
            soft=True,
        ),
    ]


def _samples(outcome: Outcome) -> str:
    if outcome.spec.samples == "drawn" or not outcome.prepared["source"].get("impressions"):
        return "Each click is compared with an item drawn at random that the user never clicked."
    return "Test samples are the users' impressions with their real skips; users began with clicks of their history."


def _table(outcome: Outcome, found: list[ProfileResult], judge: Judge) -> str:
    best = max(range(len(found)), key=lambda i: found[i].found.auc.mean)
    papers = judge is outcome.spec.judges[0]
    printed = [name for name in TABLE_4 if papers and any(one.arm in TABLE_4[name] for one in found)]
    rows = []
    for one in found:
        paper = [
            f"{value:.3f}" if one.arm in TABLE_4[name] else ""
            for name in printed
            for value in TABLE_4[name].get(one.arm, (0.0, 0.0))
        ]
        rows.append((one.arm, *(interval_text(*value, ".3f") for value in one.found), *paper))
    head = ["arm", "LogLoss", "AUC", "LogLoss, world labels", "AUC, world labels"]
    head += [f"paper, {name}, {what}" for name in printed for what in ("LogLoss", "AUC")]
    kind = "biases per user and item" if judge.biases else "P(click) = sigmoid(u'v), no biases"
    caption = f"Judge {judge.label}: {kind}, {judge.negatives} negatives per click, decay {judge.decay:g}"
    return table(head, rows, caption, best)


def _claim(outcome: Outcome) -> list[str]:
    names = ("auc", "log_loss", "auc_world")
    parts = []
    for judge in [one for one in outcome.spec.judges if one not in SENSITIVITY]:
        found = [gaps(outcome, name, judge.label) for name in names]
        if found[0]:
            rows = [(str(same[0]), *(one.gap.answer_text("+.3f") for one in same)) for same in zip(*found, strict=True)]
            head = ("explorer above exploiter", "by AUC", "by LogLoss (how much less)", "by AUC, world labels")
            parts.append(table(head, rows, f"Claims, judge {judge.label}; paired by repeat, 95 % intervals"))
    over = "worlds" if outcome.spec.worlds > 1 else "repeats"
    told = f"These intervals are over {over}, for the same {len(outcome.prepared['users']):,} users: other users"
    fixed = " and, as the samples are real impressions, other samples" * bool(outcome.prepared["source"]["impressions"])
    return [*parts, text(f"{told}{fixed} may give another result.", soft=True)] if parts else []


def _sensitivity(outcome: Outcome) -> list[str]:
    """Show how the order depends on what the paper does not say of its judge."""
    tried = [one for one in outcome.spec.judges if one in SENSITIVITY]
    if not tried:
        return [
            text(
                "The paper does not say how many negatives per click its judge is trained with, nor how strongly it is",
                "regularised, and the order of the arms depends on both: --judge-sensitivity shows how much.",
            )
        ]
    tried = sorted([outcome.spec.judges[0], *tried], key=lambda one: (one.negatives, one.decay))
    labels = [BEFORE, *(arm.label for arm in outcome.spec.arms)]
    rows = []
    for judge in tried:
        found = {one.arm: one.found.auc.mean for one in verdicts(outcome, judge.label)}
        papers = [one for one in gaps(outcome, "auc", judge.label) if one.above != "Beam"]
        counts = [sum(one.gap.answer == answer for one in papers) for answer in ("yes", "no")]
        held = f"{counts[0]} yes, {counts[1]} no, {len(papers) - sum(counts)} not distinguishable"
        rows.append(
            (f"{judge.negatives} negatives, decay {judge.decay:g}", held, *(f"{found[label]:.3f}" for label in labels))
        )
    return [
        heading("How fragile the order is"),
        text(
            "The paper does not say how many negatives per click its judge is trained with, nor how strongly it is",
            "regularised. AUC under other choices, and how many of the paper's claims (HUCB and pHUCB above Linear,",
            "GRU and Transformer) hold under each:",
        ),
        table(("judge without biases", "claims", *labels), rows),
    ]


def _pictures(found: list[ProfileResult]) -> list[str]:
    points = [Point(one.arm, one.clicks or 0.0, *one.found.auc) for one in found[1:]]
    figure = point_plot(points, "clicks per user", "AUC of the factorisation")
    figure.add_hline(y=found[0].found.auc.mean, line_dash="dot", annotation_text=found[0].arm)
    return [plot(figure, "Clicks an arm earns, and how well its log predicts users' other clicks.", 460)]


def _users(outcome: Outcome, found: list[ProfileResult]) -> list[str]:
    rows = [
        (one.arm, f"{one.clicks:.1f}", f"{one.categories:.1f}", f"{one.gini:.3f}", f"{one.coverage:.1%}")
        for one in found[1:]
    ]
    head = ("arm", "clicks", "categories clicked in", "Gini impurity of what was shown", "catalogue shown to anybody")
    means = outcome.rewards.group_by("arm", "round").agg(pl.col("reached").mean()).sort("round")
    mine = {arm.label: means.filter(arm=arm.label) for arm in outcome.spec.arms}
    lines = [Line(label, one["round"].to_numpy(), one["reached"].to_numpy()) for label, one in mine.items()]
    return [
        heading("What happened to the users"),
        table(head, rows),
        plot(line_plot(lines, "round", "categories"), "Categories a user has clicked something in, by round.", 460),
    ]


def _models(outcome: Outcome) -> list[str]:
    told = dict(outcome.prepared["source"].get("next_click", {}))
    if not told:
        return []
    users, lists = told.pop("users"), outcome.prepared["source"].get("next_click_lists", {})
    rows = [
        (name, *((f"{lists[name][0]:.2%}", f"{lists[name][1]:.4f}") if name in lists else ("", "")), f"{share:.2%}")
        for name, share in told.items()
    ]
    return [
        heading("How good the exploiting models are"),
        text(f"Last clicks of {users:,} test users in rankings of all items that they did not click before."),
        table(("by", f"HR@{LIST}", f"NDCG@{LIST}", "recall@20"), rows),
    ]
