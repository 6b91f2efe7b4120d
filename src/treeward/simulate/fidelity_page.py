"""A world's fidelity as one page with plots."""

from typing import Any

from treeward.core.report_html import COLOURS, facts, heading, page, plot, table, text, warning
from treeward.simulate.fidelity import Fidelity

_WITH, _WITHOUT = COLOURS[0], COLOURS[1]
_HARDLY = 1.1


def render(told: Fidelity) -> bytes:
    """Return the page."""
    parts = [text(f"{told.users:,} users and {told.items:,} items.", _reading(told))]
    parts += [warning(note) for note in told.notes]
    if told.accounts:
        parts += _trust(told)
    else:
        parts.append(text("It was not learned from a log: there is nothing to check it against.", soft=True))
    parts += _room(told)
    if told.provenance:
        origin = facts((name, _short(value)) for name, value in told.provenance.items())
        parts += [heading("Where it comes from"), origin]
    return page("How far to trust this world", parts)


def _reading(told: Fidelity) -> str:
    first = told.spread[0]
    said = (
        f"A random item earns {first.random:.3f}, the best common item {first.common:.3f}, "
        f"each user's own best item {first.own:.3f}. "
    )
    if first.own < _HARDLY * first.common:
        said += "Personalisation gains hardly anything: this world cannot tell a good policy from a popularity list."
    elif first.common > 0:
        said += f"Knowing the users is worth {first.own / first.common:.1f} times the best common choice."
    if told.accounts:
        best, popular = told.accounts[0], next(one for one in told.accounts if one.name == "popularity alone")
        said += f" It ranks held-out events with an AUC of {best.auc:.3f}; popularity alone reaches {popular.auc:.3f}."
    return said


def _trust(told: Fidelity) -> list[str]:
    from plotly import graph_objects as go

    rows = [
        (one.name, *(_number(value) for value in (one.auc, one.log_loss, one.calibration_error, one.hit_rate, one.ndcg,
                                                  one.popularity)))
        for one in told.accounts
    ]  # fmt: skip
    k = told.count
    head = ("", "AUC", "log-loss", "calibration error", f"HR@{k}", f"NDCG@{k}", "rank correlation with popularity")
    parts = [
        heading("Events it has not seen"),
        text(
            "Held-out rewards against skips, or against drawn items that the user never touched. A log has a bias of",
            "its own, so weights that remove it may cost AUC here; the last column shows what they are for.",
            f"HR@{k} and NDCG@{k}: where held-out rewards of {told.ranked:,} users are in a ranking of all items that",
            "they did not reward in training.",
        ),
        table(head, rows),
    ]
    curve, cloud = go.Figure(), go.Figure()
    fitted = [one for one in told.accounts if one.calibration]
    colours = {"with weights": _WITH, "without weights": _WITHOUT}
    top = max(max(bin.predicted, bin.observed) for one in fitted for bin in one.calibration)
    curve.add_scatter(x=[0, top], y=[0, top], name="as predicted", mode="lines", line={"dash": "dot", "color": "#888"})
    for one in fitted:
        curve.add_scatter(
            x=[bin.predicted for bin in one.calibration],
            y=[bin.observed for bin in one.calibration],
            customdata=[bin.events for bin in one.calibration],
            hovertemplate="predicted %{x:.3f}, observed %{y:.3f}, %{customdata:,} events",
            name=one.name,
            mode="lines+markers",
            line={"color": colours[one.name]},
        )
    curve.update_layout(xaxis_title="predicted chance", yaxis_title="share that was rewarded")
    for column, one in zip(("chance", "unweighted"), fitted, strict=False):
        cloud.add_scatter(
            x=[1 + count for count in told.points["rewarded"]],
            y=told.points[column],
            name=one.name,
            mode="markers",
            marker={"size": 4, "opacity": 0.45, "color": colours[one.name]},
        )
    cloud.update_layout(xaxis_title="1 + users who rewarded the item", yaxis_title="mean predicted chance")
    cloud.update_xaxes(type="log")
    return [
        *parts,
        plot(curve, "Calibration: ten bins of equally many held-out events."),
        heading("Popularity"),
        text(
            "Items that were rewarded often were also shown often. The steeper the cloud, the more the world mistakes",
            "exposure for taste.",
        ),
        plot(cloud, f"{len(told.points['rewarded']):,} items; appeal is the mean chance over some users."),
    ]


def _room(told: Fidelity) -> list[str]:
    from plotly import graph_objects as go

    bars, gains = go.Figure(), go.Figure()
    names = [f"{one.size} item{'s' if one.size > 1 else ''}" for one in told.spread]
    for index, (what, name) in enumerate(
        (("own", "each user's own best"), ("common", "best common list"), ("random", "random"))
    ):
        values = [getattr(one, what) for one in told.spread]
        bars.add_bar(x=names, y=values, name=name, marker={"color": COLOURS[(0, 1, 3)[index]]})
    bars.update_layout(barmode="group", yaxis_title="mean reward", xaxis_title="list of")
    gains.add_histogram(x=list(told.gains), nbinsx=40, marker={"color": _WITH}, name="users")
    gains.update_layout(xaxis_title="own best item less the best common one", yaxis_title="users", showlegend=False)
    rows = [(f"{one.size}", *(f"{value:.4f}" for value in (one.own, one.common, one.random))) for one in told.spread]
    return [
        heading("How much personalisation can gain"),
        text(f"Over {told.looked_at:,} users and all items. The common list is the best one for these users."),
        table(("items in the list", "each user's own best", "best common list", "random"), rows),
        plot(bars),
        plot(gains, "What knowing a user is worth, user by user.", 320),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _short(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
