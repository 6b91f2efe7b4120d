"""An experiment as one offline page, with a PNG and a CSV next to it."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from treeward.core.artefact import StrPath, write_file
from treeward.core.plots import Line, Point, line_picture, line_plot, png, point_plot
from treeward.core.report_html import facts, heading, page, plain, plot, table, text, warning
from treeward.experiment.presets import GRID_P, GRID_Q, TABLE_3, TABLE_ROUNDS
from treeward.experiment.profile_report import profile_quality
from treeward.experiment.run import Outcome
from treeward.experiment.spec import Spec
from treeward.experiment.summary import claims, curves, feature_gains, interval_text, ratios, rounds_of, scores, tidy

_MOST_CURVES = 24


def write_report(outcome: Outcome, path: StrPath) -> list[Path]:
    """Write the page, and next to it the curves as PNG and the tables as CSV; return the paths."""
    target = Path(path)
    made = [
        write_file(target, render(outcome)),
        write_file(target.with_suffix(".png"), _picture(outcome)),
        write_file(target.with_suffix(".csv"), tidy(outcome).write_csv().encode()),
    ]
    if outcome.spec.judges:
        table = outcome.verdicts.write_csv().encode()
        made.append(write_file(target.with_name(f"{target.stem}-judges.csv"), table))
    return made


def render(outcome: Outcome) -> bytes:
    """Return the page: what was run, the results of this kind of experiment, then what all experiments have."""
    parts = [warning(words) for words in warnings(outcome)] + [text(words) for words in _setting(outcome)]
    parts += _deep(outcome)
    parts += profile_quality(outcome) if outcome.spec.judges else []
    parts += _limits(outcome)
    parts += _grid(outcome) if _is_grid(outcome) else [*_results(outcome), *_claims(outcome)]
    parts += _frontier(outcome) if outcome.spec.name in ("frontier", "rivals") else []
    parts += [*_curves(outcome), *_budget(outcome), *_paper(outcome), *_origin(outcome)]
    return page(f"Experiment: {outcome.spec.name}", parts)


def warnings(outcome: Outcome) -> list[str]:
    """Return what a reader must know first: whether the world can distinguish policies at all."""
    told = outcome.prepared
    made, poor = [], [f"AUC {world:.3f} against {popular:.3f}" for world, popular in told["aucs"] if world <= popular]
    if poor:
        which = "this world ranks" if len(told["aucs"]) == 1 else f"{len(poor)} of {len(told['aucs'])} worlds rank"
        made.append(
            f"Warning: {which} held-out events no better than popularity does ({'; '.join(poor)}). Differences between "
            "arms mean little there; try another seed or more data."
        )
    if told["own_best"] < 1.05 * told["random"]:
        made.append(
            f"Warning: a user's own best item earns {told['own_best']:.3f}, a random one {told['random']:.3f}: no "
            "policy can show anything here."
        )
    return made


def _setting(outcome: Outcome) -> tuple[str, str]:
    """Return what was run, and with which vectors and tree."""
    spec, told = outcome.spec, outcome.prepared
    worlds = f" in each of {spec.worlds} worlds" * (spec.worlds > 1)
    # Arms with budgets of their own have no common one to name.
    budget = f"at most {spec.budget} scores per round, " * all("budget" not in arm.options for arm in spec.arms)
    begun = f", from {spec.start} real clicks of each user" * (spec.start > 0)
    kind = "expected rewards" if spec.reward == "probability" else "clicks"
    nodes = {"unit": "scaled to length 1 (the paper, section 4.4)", "mean": "plain means (the authors' code)"}
    levels = ", ".join(f"{count:,}" for count in told["levels"])
    return (
        f"{Path(spec.data).name}: {len(told['users']):,} {spec.split} users, {told['items']:,} items, "
        f"{spec.repeats} repeats{worlds}, {spec.rounds:,} rounds, {budget}{kind}, "
        f"items {'shown once' if spec.once else 'may be shown again'}{begun}. A random item earns "
        f"{told['random']:.4f} per round, a user's own best item {told['own_best']:.3f} on average.",
        f"Item vectors: {told['vectors']}, {told['dim']} dimensions. Tree: {levels} nodes per level. Node vectors of "
        f"arms that score nodes: {nodes[spec.nodes]}.",
    )


def _limits(outcome: Outcome) -> list[str]:
    """Return what differs from what was asked for, or from other arms."""
    spec, told, parts = outcome.spec, outcome.prepared, []
    if len(told["users"]) < spec.users:
        parts.append(f"{spec.users:,} users were asked for; the data has {told['of_users']:,}.")
    if any(arm.options.get("split") == "authors" for arm in spec.arms):
        parts.append(f"Arms with the authors' budget take {spec.budget} scores for nodes and {spec.budget} for items.")
    return [text(words, soft=True) for words in parts]


def _results(outcome: Outcome) -> list[str]:
    parts, compared = [heading("Cumulative reward per user")], any(arm.baseline for arm in outcome.spec.arms)
    for round in rounds_of(outcome):
        made = scores(outcome, round)
        best = max(range(len(made)), key=lambda i: made[i].mean)
        rows = [
            (
                one.arm, interval_text(one.mean, one.half),
                "the best baseline" * compared if one.gain is None else interval_text(one.gain, one.gain_half, "+.2f"),
                _chance(one.p_value) or "–" * compared,  # noqa: RUF001
                f"{one.regret:.1f}",
            )
            for one in made
        ]  # fmt: skip
        head = ("arm", "mean, 95 % interval", "against the best baseline, paired", "p", "regret")
        parts.append(table(head, rows, f"After {round:,} rounds", best))
    return [*parts, *_ceiling(outcome), *_conditions(outcome.spec)]


def _ceiling(outcome: Outcome) -> list[str]:
    """Return the most that a policy without contexts could earn under this budget."""
    spec, told = outcome.spec, outcome.prepared
    if spec.once or not any(arm.policy in ("ictr", "context-free") for arm in spec.arms):
        return []
    return [
        text(
            f"Context-free ceiling: {spec.rounds * told['ceiling']:.1f} after {spec.rounds:,} rounds. A policy that",
            f"sees {spec.budget} random items per round and shows everybody the one that is best on average cannot",
            "earn more; ICTRUCB uses no item vectors, so it only passes this by what it learns of single users.",
        )
    ]


def _conditions(spec: Spec) -> list[str]:
    """Return what intervals cover, and what they take as given."""
    if spec.worlds > 1:
        over = f"over users and {spec.worlds} refitted worlds, each world's repeats averaged"
        given = "one tree and one set of item vectors"
    else:
        over = "over users, each user's repeats averaged (over users and repeats where users learn from each other)"
        given = "one fitted world, one tree and one set of item vectors: another log or another fit may differ by more"
    return [
        text(
            f"Intervals are {over}. They take as given {given}. Differences are paired by user, with the baseline that",
            "earned most among those with the same kind of reward. p is that of one comparison: it does not know how",
            "many there are, nor that the baseline was chosen.",
            soft=True,
        )
    ]


def _claims(outcome: Outcome) -> list[str]:
    late = [round for round in rounds_of(outcome) if round >= 1_000 or round == outcome.spec.rounds]
    found = [claims(outcome, round) for round in late]
    if not found[0]:
        return []
    rows = [(str(same[0]), *(one.gap.answer_text() for one in same)) for same in zip(*found, strict=True)]
    head = ("claim of the paper", *(f"here at {round:,} rounds" for round in late))
    parts = [
        heading("The paper's claims"),
        table(head, rows),
        text(
            "Yes or no: the 95 % interval of the difference, paired by user, does not contain 0. Otherwise the two",
            "arms cannot be distinguished here.",
            soft=True,
        ),
    ]
    for round in rounds_of(outcome)[-1:]:
        compared = ratios(outcome, round)
        if compared:
            parts.append(
                table(("pHUCB / LinUCB", f"at {round:,}"), [(name, f"{one:.2f}") for name, one in compared.items()])
            )
    return parts


def _chance(p_value: float | None) -> str:
    return "" if p_value is None else "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _deep(outcome: Outcome) -> list[str]:
    """Return the section that compares learned features with items' own vectors; nothing where no arm has them."""
    parts = []
    for round in rounds_of(outcome):
        rows = [
            (
                one.arm, f"{one.earned_plain:.2f}", f"{one.earned:.2f}", one.gap.text("+.2f"),
                f"{one.ratio:.3f}" + ("" if one.within is None else f" ({one.within[0]:.3f} to {one.within[1]:.3f})"),
                _chance(one.gap.p_value),
            )
            for one in feature_gains(outcome, round)
        ]  # fmt: skip
        if rows:
            head = ("arm", "without", "with", "difference, paired by user, 95 % interval", "ratio", "p")
            parts.append(table(head, rows, f"After {round:,} rounds"))
    if not parts:
        return []
    told = outcome.prepared["source"]
    if "shown_to_each" in told:
        log = f"{told['training_users']:,} other users, each shown {told['shown_to_each']} items drawn from all"
    else:
        log = "training users' logged events, which the vectors come from too"
    more = f"Network and prior were learned from {log}; no user who is tried was among them."
    return [heading("Learned features against items' own vectors"), *parts, text(more, soft=True)]


def _is_grid(outcome: Outcome) -> bool:
    """Return whether this is all of figure 4."""
    return {arm.label for arm in outcome.spec.arms} == {f"q {q}, p {p:g}" for q in GRID_Q for p in GRID_P}


def _grid_values(outcome: Outcome) -> list[list[float]]:
    earned = {one.arm: one.mean for one in scores(outcome, outcome.spec.rounds)}
    return [[earned[f"q {q}, p {p:g}"] for p in GRID_P] for q in GRID_Q]


def _grid(outcome: Outcome) -> list[str]:
    from plotly import graph_objects as go

    values = _grid_values(outcome)
    figure = go.Figure(
        go.Heatmap(
            z=values, x=[f"{p:g}" for p in GRID_P], y=[str(q) for q in GRID_Q], colorscale="Blues",
            text=[[f"{one:.1f}" for one in row] for row in values], texttemplate="%{text}",
        )
    )  # fmt: skip
    figure.update_layout(xaxis_title="p", yaxis_title="q")
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category")
    rows = [(f"q {q}", *(f"{one:.1f}" for one in row)) for q, row in zip(GRID_Q, values, strict=True)]
    return [
        heading(f"pHUCB's cumulative reward at round {outcome.spec.rounds:,}"),
        plot(figure, "Visits (q) and mean reward (p) a node needs before its children are shown.", 460),
        table(("", *(f"p {p:g}" for p in GRID_P)), rows),
    ]


def _lines(outcome: Outcome, what: str = "cumulative_reward") -> list[Line]:
    return [Line(label, *found) for label, found in curves(outcome, what).items()]


def _curves(outcome: Outcome) -> list[str]:
    if len(outcome.spec.arms) > _MOST_CURVES:
        return []
    against = f"against each user's best item{' left' if outcome.spec.once else ''}"
    parts = []
    for what, title in (
        ("cumulative_reward", "Cumulative reward"),
        ("cumulative_regret", f"Cumulative regret, {against}"),
    ):
        figure = line_plot(_lines(outcome, what), "round", what.replace("_", " "))
        parts += [heading(title), plot(figure, "Bands: 95 % intervals.", 480)]
    return parts


def _frontier(outcome: Outcome) -> list[str]:
    """Draw reward against multiplications and against time; an arm that another beats in both is hollow."""
    cells = tidy(outcome).filter(pl.col("round") == outcome.spec.rounds)
    parts = [heading("Reward against work")]
    for name, title, least in (
        ("multiplications", "multiplications per decision and update", 1_000.0),
        ("us_per_round", "microseconds per decision and update, one core", 1.0),
    ):
        # What costs nothing, such as a list, still has its place on a logarithmic axis.
        work, earned = np.maximum(cells[name].to_numpy(), least), cells["mean"].to_numpy()
        points = []
        for at, (arm, half) in enumerate(cells.select("arm", "half").iter_rows()):
            beaten = ((work <= work[at]) & (earned > earned[at]) | (work < work[at]) & (earned >= earned[at])).any()
            points.append(Point(arm, work[at], earned[at], half or 0.0, bool(beaten)))
        figure = point_plot(points, title, f"reward per user in {outcome.spec.rounds:,} rounds")
        figure.add_hline(y=outcome.prepared["oracle"], line_dash="dot", annotation_text="oracle: knows every chance")
        figure.update_xaxes(type="log")
        parts.append(plot(figure, "Filled: no other arm earns more for less.", 520))
    return parts


def _budget(outcome: Outcome) -> list[str]:
    cells = tidy(outcome).filter(pl.col("round") == outcome.spec.rounds)
    rows = [
        (arm, f"{mean:.1f}", f"{most}", f"{work:,.0f}", f"{questions:.0f}", f"{coverage:.1%}", f"{time:.1f}")
        for arm, mean, most, work, questions, coverage, time in cells.select(
            "arm", "scores", "most_scores", "multiplications", "questions", "coverage", "us_per_round"
        ).iter_rows()
    ]
    head = (
        "arm", "scores per round", "at most", "multiplications per round", "questions per user", "catalogue shown",
        "µs per decision and update, one core",
    )  # fmt: skip
    return [
        heading("What it took"),
        text("Scores are counted where they are computed. Time is that of a decision and its update."),
        table(head, rows),
    ]


def _paper(outcome: Outcome) -> list[str]:
    if not {"LinUCB", "HUCB", "pHUCB"} <= {arm.label for arm in outcome.spec.arms}:
        return []
    rows = []
    ours = {round: {one.arm: one.mean for one in scores(outcome, round)} for round in rounds_of(outcome)}
    played = [one for one in TABLE_ROUNDS if one in ours]
    for arm in TABLE_3["MIND"]:
        if arm in ours[outcome.spec.rounds]:
            cells = [f"{ours[round][arm]:.2f}" for round in played]
            printed = [f"{TABLE_3[name][arm][TABLE_ROUNDS.index(round)]:.2f}" for name in TABLE_3 for round in played]
            rows.append((arm, *cells, *printed))
    if not rows or not played:
        return []
    head = ["arm", *(f"here, {one:,}" for one in played), *(f"{name}, {one:,}" for name in TABLE_3 for one in played)]
    return [
        heading("Compared with the paper's table 3"),
        text("Levels depend on the world's base rate, so compare orders and ratios, not sums."),
        table(head, rows),
    ]


def _origin(outcome: Outcome) -> list[str]:
    spec, told = outcome.spec, outcome.prepared
    world = {name: value for name, value in told["world"].items() if isinstance(value, str | int | float)}
    pairs: list[tuple[str, Any]] = [
        ("spec sha256", spec.digest),
        ("data", told["source"]),
        ("tree, nodes per level", told["levels"]),
        ("item vectors", f"{told['vectors']}, {told['dim']} dimensions, sha256 {told['vectors_sha256']}"),
        ("node vectors", spec.nodes),
        ("seed", spec.seed),
        ("seeds of the repeats", outcome.cells["seed"].unique(maintain_order=True).to_list()),
        ("world", world),
        ("treeward", ", ".join(outcome.cells["treeward"].unique(maintain_order=True))),
    ]
    codes = dict(outcome.cells.select("arm", "code").iter_rows())
    arms = [
        (arm.label, arm.policy, arm.bandit, plain({**arm.options, **arm.bandit_options}), arm.reward or spec.reward,
         codes.get(arm.label, "")[:12])
        for arm in spec.arms
    ]  # fmt: skip
    head = ("arm", "policy", "bandit", "options", "reward", "code sha256")
    return [heading("Where it comes from"), facts(pairs), table(head, arms)]


def _picture(outcome: Outcome) -> bytes:
    title = f"{outcome.spec.name}: {Path(outcome.spec.data).name}"
    if not _is_grid(outcome):
        return line_picture(_lines(outcome), "round", "cumulative reward per user", title)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    shown = axes.imshow(_grid_values(outcome), cmap="Blues", origin="lower", aspect="auto")
    axes.set(xticks=range(len(GRID_P)), xticklabels=[f"{p:g}" for p in GRID_P], xlabel="p",
             yticks=range(len(GRID_Q)), yticklabels=[str(q) for q in GRID_Q], ylabel="q")  # fmt: skip
    figure.colorbar(shown, label="cumulative reward")
    axes.set_title(title, parse_math=False)
    return png(figure)
