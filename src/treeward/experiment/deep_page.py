"""The part of a report that sets learned features against items' own vectors."""

from treeward.core.page import heading, table, text
from treeward.experiment.run import Outcome
from treeward.experiment.summary import Deepened, deepened, rounds_of


def deep(outcome: Outcome) -> list[str]:
    """Return the section; nothing where no arm has learned features."""
    parts: list[str] = []
    for round in rounds_of(outcome):
        found = deepened(outcome, round)
        if found:
            head = ("arm", "without", "with", "difference, paired by user, 95 % interval", "ratio", "p")
            parts.append(table(head, [_row(one) for one in found], f"After {round:,} rounds"))
    if not parts:
        return []
    told = outcome.prepared["source"]
    if "shown_to_each" in told:
        log = f"{told['training_users']:,} other users, each shown {told['shown_to_each']} items drawn from all"
    else:
        log = "training users' logged events, which the vectors come from too"
    more = f"Network and prior were learned from {log}; no user who is tried was among them."
    return [heading("Learned features against items' own vectors"), *parts, text(more, soft=True)]


def _row(one: Deepened) -> tuple[str, ...]:
    half = "" if one.gap.half is None else f" ± {one.gap.half:.2f}"
    within = "" if one.within is None else f" ({one.within[0]:.3f} to {one.within[1]:.3f})"
    p = "" if one.gap.p_value is None else ("< 0.001" if one.gap.p_value < 0.001 else f"{one.gap.p_value:.3f}")
    difference = f"{one.gap.mean:+.2f}{half}"
    return one.arm, f"{one.earned_plain:.2f}", f"{one.earned:.2f}", difference, f"{one.ratio:.3f}{within}", p
