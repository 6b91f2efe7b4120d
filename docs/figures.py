"""Draw the figures of README and `docs/concepts.md`, each from a real tree, explorer or simulation.

``python docs/figures.py`` draws all of them into `docs/figures/`; ``python docs/figures.py tree field`` only these.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import treeward as tw
from treeward.core import rng
from treeward.explorer.records import Step
from treeward.policy.base import Policy
from treeward.simulate.synthetic import vivid
from treeward.store.events import REWARD

HERE = Path(__file__).parent / "figures"
INK, FAINT, PALE = "#222222", "#9a9a9a", "#e4e4e4"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
LIKED = "#d55e00"
STYLE = {
    "svg.hashsalt": "treeward",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.w_pad": 0.09,
}


def points(count: int) -> np.ndarray:
    """Return items that can be drawn: two dimensions, four subjects of four themes."""
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]], dtype=float)
    key = rng.stream("figures")
    noise = 0.13 * rng.normals(0, key, 2 * count).reshape(count, 2)
    themes = np.array([subject * 1.55 + theme * 0.55 for subject in corners for theme in corners])
    return (themes[np.arange(count) % 16] + noise).astype(np.float32)


def bare(axes: Axes) -> Axes:
    """Take ticks and frame away."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    return axes


def middle(tree: tw.ItemTree, node: int) -> float:
    """Return where a node stands, from left to right, when items stand in leaf order."""
    first, last = tree.item_range[node]
    return (float(first) + float(last)) / 2


def branches(axes: Axes, tree: tw.ItemTree, chosen: tuple[int, ...] = ()) -> None:
    """Draw a tree from the root down, with a path in colour."""
    for node in range(1, len(tree.parent)):
        on_path = node in chosen
        ends = [middle(tree, node), middle(tree, int(tree.parent[node]))]
        heights = [-int(tree.level[node]), -int(tree.level[tree.parent[node]])]
        style = {"color": LIKED, "lw": 2.2, "zorder": 2} if on_path else {"color": FAINT, "lw": 0.7, "zorder": 1}
        axes.plot(ends, heights, **style)


def tree() -> Figure:
    """Draw how a tree is built: items into leaves, leaves into groups, and the tree that this makes."""
    vectors = points(160)
    made = tw.ItemTree.build(vectors, widths=(4, 16), normalize=False, seed=0)
    groups, leaves = np.flatnonzero(made.level == 2), np.flatnonzero(made.level == 3)
    colour = {int(node): COLOURS[at] for at, node in enumerate(groups)}
    figure = Figure(figsize=(8, 3.3))
    left, centre, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.5))
    for axes, title in ((left, "1. items into leaves"), (centre, "2. leaves into groups"), (right, "3. the tree")):
        bare(axes).set_title(title)
    for leaf in leaves.tolist():
        own, at = vectors[made.items_of(leaf)], made.vectors[leaf]
        up = made.vectors[made.parent[leaf]]
        left.plot(*np.stack([np.broadcast_to(at, own.shape), own], 1).reshape(-1, 2).T, color=FAINT, lw=0.7, zorder=1)
        left.scatter(*own.T, s=7, color=COLOURS[5], zorder=2)
        left.scatter(*at, s=42, color=INK, zorder=3)
        centre.scatter(*own.T, s=7, color=PALE, zorder=1)
        centre.plot(*zip(at, up, strict=True), color=colour[int(made.parent[leaf])], lw=1.4, zorder=2)
        centre.scatter(*at, s=42, color=colour[int(made.parent[leaf])], zorder=3)
    for group in groups.tolist():
        centre.scatter(*made.vectors[group], s=130, marker="s", color=colour[group], zorder=4)
    branches(right, made)
    right.scatter(middle(made, 0), -1, s=130, marker="D", color=INK, zorder=3)
    for node in range(1, len(made.parent)):
        is_leaf = made.level[node] == 3
        tint = colour[int(made.parent[node])] if is_leaf else colour[node]
        right.scatter(
            middle(made, node),
            -int(made.level[node]),
            s=42 if is_leaf else 130,
            marker="o" if is_leaf else "s",
            color=tint,
            zorder=3,
        )
    right.vlines(np.arange(len(made)) + 0.5, -3.75, -3.55, color=FAINT, lw=0.6)
    for level, words in enumerate(("root", "4 groups", "16 leaves", "160 items,\nin leaf order"), start=1):
        right.text(len(made) * 1.01, -level if level < 4 else -3.65, words, va="center", fontsize=10)
    right.set_xlim(-5, len(made) * 1.62)
    return figure


def shop(policy: tw.PHCB | tw.HCB, rounds: int, *, repeats: bool = True) -> tuple[tw.Explorer, tw.World]:
    """Return an explorer that served one user of a synthetic world for a while; rewards are clicks."""
    world = tw.World(*vivid(items=2_000, users=5, dim=16, seed=3))
    built = tw.ItemTree.build(world.catalogue.vectors, widths=(8, 48), seed=0)
    explorer = tw.Explorer(world.catalogue, built, policy=policy, repeats=repeats, seed=1, memory=1 << 22, crowd=False)
    luck = rng.uniforms(0, rng.stream("clicks"), rounds)
    for at in range(rounds):
        [decision] = explorer.recommend(["ada"])
        clicked = luck[at] < world.chances([2], [int(decision.item)])[0]
        explorer.feedback({decision.id: float(clicked)})
    return explorer, world


def arms(axes: Axes, step: Step, alpha: float, title: str) -> None:
    """Draw what a step considered: estimates, how far above them the score is, and which was chosen."""
    for at, arm in enumerate(step.considered):
        colour = LIKED if arm.chosen else FAINT
        axes.plot([at, at], [arm.mean, arm.mean + alpha * arm.width], color=colour, lw=2 if arm.chosen else 1)
        axes.plot(at, arm.mean, "o", ms=4, color=colour)
        axes.plot(at, arm.mean + alpha * arm.width, "_", ms=7, mew=2, color=colour)
    axes.set_xticks([])
    axes.set_title(f"{title}\n{len(step.considered)} of {step.total} scored", fontsize=10.5)


def descent() -> Figure:
    """Draw one decision of HCB: the path on the tree, and the scores of every step."""
    alpha = 0.5
    explorer, _ = shop(tw.HCB(tw.LinUCB(alpha=alpha), budget=50), 35)
    [decision] = explorer.recommend(["ada"])
    told = explorer.explain(decision)
    made = explorer.tree
    figure = Figure(figsize=(8, 4.6))
    top, below = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    drawing = bare(top.subplots())
    branches(drawing, made, decision.path)
    leaf, place = decision.path[-1], int(np.flatnonzero(made.items == decision.item)[0])
    drawing.plot([middle(made, leaf), place + 0.5], [-3, -3.8], color=LIKED, lw=2.2)
    for node in range(len(made.parent)):
        chosen = node in decision.path or node == 0
        drawing.scatter(
            middle(made, node),
            -int(made.level[node]),
            s=40 if chosen else 12,
            color=LIKED if chosen else FAINT,
            zorder=3,
        )
    drawing.scatter(place + 0.5, -3.8, marker="*", s=110, color=LIKED, zorder=4)
    for level, words in enumerate(("root", "8 groups", "48 leaves", "the item"), start=1):
        drawing.text(len(made) * 1.015, -level if level < 4 else -3.8, words, va="center", fontsize=10)
    drawing.set_xlim(0, len(made) * 1.15)
    panels = below.subplots(1, 3, sharey=True)
    for axes, step, title in zip(
        panels, told.steps, ("step 1: a group", "step 2: a leaf of it", "step 3: an item of it"), strict=True
    ):
        arms(axes, step, alpha, title)
    panels[0].set_ylabel("dot: estimated reward\ndash: estimate + 0.5 width")
    return figure


def field() -> Figure:
    """Draw a pHCB field as it opens: the nodes one user's decisions choose among, after more and more events."""
    explorer, _ = shop(tw.PHCB(tw.LinUCB(alpha=0.5), budget=50), 600, repeats=False)
    made, moments = explorer.tree, (0, 10, 100, 300, 600)
    figure = Figure(figsize=(8, 3.9))
    rows = figure.subplots(len(moments), 1)
    shades = mpl.colormaps["YlOrBr"]
    for axes, shown in zip(rows, moments, strict=True):
        seen = explorer.inspect.field("ada", upto=2 * shown)  # two events per item: shown, and its reward
        nodes = [node for node, visible in zip(seen.nodes.node, seen.visible, strict=True) if visible]
        open_means = np.array(seen.mean)[seen.visible]
        means = dict(zip(nodes, np.clip(open_means, 0, 1).tolist(), strict=True))
        bare(axes)
        for node in sorted(range(len(made.parent)), key=means.__contains__):  # what is open is drawn last
            first, last = made.item_range[node].tolist()
            look = {"facecolor": "white", "edgecolor": PALE, "lw": 0.5}
            if node in means:
                look = {"facecolor": shades(0.08 + 0.8 * means[node]), "edgecolor": INK, "lw": 0.9}
            axes.add_patch(Rectangle((first, -int(made.level[node])), last - first, 0.9, **look))
        axes.set_xlim(-10, len(made) + 10)
        axes.set_ylim(-3.1, 0)
        words = f"{shown} shown\n{int(seen.reward[0])} clicked\n{len(nodes)} node{'s' * (len(nodes) > 1)}"
        axes.set_ylabel(words, rotation=0, ha="right", va="center")
    colours = mpl.cm.ScalarMappable(
        mpl.colors.Normalize(0, 1), mpl.colors.ListedColormap(shades(np.linspace(0.08, 0.88, 64)))
    )
    figure.colorbar(colours, ax=rows, label="estimated reward of an open node", shrink=0.7, aspect=30)
    return figure


def budget() -> Figure:
    """Draw reward against work: every policy at several budgets, in the same synthetic world."""
    world = tw.World(*vivid(items=20_000, users=200, dim=32, seed=0))
    built = tw.ItemTree.build(world.catalogue.vectors, seed=0)
    scores, means = (6, 12, 25, 50, 100, 200, 400), (50, 100, 200, 400, 800, 1_600, 3_200)
    lines: tuple[tuple[str, list[Policy], str, str], ...] = (
        ("Flat, 6 to 400 scores of random items", [tw.Flat(budget=most) for most in scores], FAINT, "s"),
        ("HCB, 6 to 400 scores", [tw.HCB(budget=most) for most in scores], COLOURS[0], "o"),
        ("pHCB, 6 to 400 scores", [tw.PHCB(budget=most) for most in scores], COLOURS[2], "^"),
        ("Beam, 50 to 3,200 means, 16 scores", [tw.Beam(means=most) for most in means], LIKED, "D"),
    )
    rules = {"rounds": 300, "seed": 0, "reward": "click", "repeats": False}
    figure = Figure(figsize=(8, 4))
    axes = figure.subplots()
    for name, policies, colour, marker in lines:
        found = [tw.simulate(policy, world, built, **rules) for policy in policies]
        work = [float(result.settings["multiplications"]) for result in found]
        axes.plot(work, [result.cumulative[-1] for result in found], color=colour, marker=marker, ms=5, label=name)
    exact = tw.simulate(tw.Flat(budget=None), world, built, **rules)
    axes.scatter(
        exact.settings["multiplications"],
        exact.cumulative[-1],
        marker="*",
        s=170,
        color=INK,
        label="exact LinUCB: all 20,000 items",
        zorder=3,
    )
    axes.set_xscale("log")
    axes.set_xlabel("multiplications per decision and update")
    axes.set_ylabel("clicks per user in 300 rounds, each item once")
    axes.legend(frameon=False, loc="lower right")
    axes.grid(color=PALE, lw=0.6)
    return figure


def bars(axes: Axes, explorer: tw.Explorer, title: str) -> None:
    """Draw what an explorer knows of a user, by groups."""
    known = sorted((one.node, one.mean) for one in explorer.inspect.interests("ada", level=2))
    axes.barh(range(len(known)), [mean for _, mean in known], color=COLOURS[0])
    axes.axvline(0, color=INK, lw=0.8)
    axes.set_yticks(range(len(known)), [f"group {node}" for node, _ in known], fontsize=9.5)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=10.5)


def log() -> Figure:
    """Show that the state follows from the events: three explorers compute it from one user's events."""
    first, world = shop(tw.HCB(tw.LinUCB(alpha=0.5), budget=50), 60)
    same: dict[str, Any] = {"policy": first.policy, "store": first.store, "seed": 1, "memory": 1 << 22, "crowd": False}
    again = tw.Explorer(world.catalogue, first.tree, **same)
    other = tw.Explorer(world.catalogue, tw.ItemTree.build(world.catalogue.vectors, widths=(5, 40), seed=7), **same)
    if first.inspect.interests("ada") != again.inspect.interests("ada"):
        raise SystemExit("a state is not what its events make")
    [events] = first.store.read(["ada"])
    rewarded = events["reward"][events["kind"] == REWARD]
    figure = Figure(figsize=(8, 4.2))
    top, below = figure.subfigures(2, 1, height_ratios=(1, 3.6))
    strip = bare(top.subplots())
    for at, reward in enumerate(rewarded):
        strip.scatter(at, 0, s=44, color=LIKED if reward > 0 else "white", edgecolor=LIKED if reward > 0 else FAINT)
    strip.set_title(
        f"the log: {len(rewarded)} events of one user, {int(rewarded.sum())} clicks (filled); nothing else is stored"
    )
    strip.set_ylim(-1, 1)
    panels = below.subplots(1, 3, sharex=True)
    bars(panels[0], first, "the process that served")
    bars(panels[1], again, "a new process, from the log:\nthe same, to the bit")
    bars(panels[2], other, "another tree,\nfrom the log")
    panels[1].set_xlabel("estimated reward of a group of items")
    return figure


def interests() -> Figure:
    """Draw what visitors of a shop like, and what the default policy shows them at first and later."""
    visits, each, drawn = 50, 4, 40
    world = tw.World(*vivid(items=20_000, users=200, dim=32, seed=0))
    categories = world.catalogue.categories
    assert categories is not None
    names, department = np.unique([name.split(" > ")[0] for name in categories], return_inverse=True)
    explorer = tw.Explorer(world.catalogue, repeats=False, seed=0)
    shown, clicks = np.zeros((visits, world.users, len(names))), np.zeros(visits)
    for visit in range(visits):
        for first in range(0, world.users, 50):  # what some teach helps those who come next
            decisions = explorer.recommend(list(range(first, first + 50)), n=each)
            luck = rng.uniforms(0, rng.stream("luck", visit, first), len(decisions))
            clicked = luck < world.chances([d.user for d in decisions], [int(d.item) for d in decisions])
            explorer.feedback({d.id: float(hit) for d, hit in zip(decisions, clicked, strict=True)})
            clicks[visit] += clicked.sum()
            for decision in decisions:
                shown[visit, decision.user, department[int(decision.item)]] += 1 / each
    rates = np.zeros((drawn, len(names)))
    for user in range(drawn):
        rates[user] = np.bincount(department, world.probabilities(user)) / np.bincount(department)
    order = np.lexsort((-rates.max(axis=1), rates.argmax(axis=1)))
    hits = 100 * clicks / (world.users * each)
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    parts = (
        ("What 40 visitors like\n(treeward does not know)", rates / rates.max(axis=1, keepdims=True)),
        (f"What visit 1 shows them:\n{hits[0]:.0f} % of the items are clicked", shown[0, :drawn]),
        (f"What visits {visits - 4} to {visits} show them:\n{hits[-5:].mean():.0f} % are clicked",
         shown[-5:, :drawn].mean(axis=0)),
    )  # fmt: skip
    for axes, (title, values) in zip(panels, parts, strict=True):
        picture = axes.imshow(values[order], cmap="YlOrBr", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9)
        axes.set_yticks([])
        axes.tick_params(length=0)
    panels[0].set_ylabel("one visitor per row")
    legend = "left: click rate of a department, compared with the visitor's best; middle and right: share of the items"
    figure.colorbar(picture, ax=panels, orientation="horizontal", shrink=0.6, aspect=50, label=legend)
    return figure


def architecture() -> Figure:
    """Draw the parts, and what flows between them."""
    figure = Figure(figsize=(9.6, 5))
    axes = bare(figure.subplots())
    axes.set_xlim(-0.05, 12)
    axes.set_ylim(0, 6.3)
    yours, stored, derived = COLOURS[4], COLOURS[0], COLOURS[2]
    parts = (
        ((0, 4.2), yours, "your shop", "asks what to show;\nreports clicks and purchases,\nnow, later or twice"),
        ((4.3, 4.2), INK, "decide and learn",
         "a policy (Beam, HCB, pHCB)\nsearches the tree with a bandit;\nthe same events and draws\ndecide the same"),
        ((8.6, 4.2), stored, "snapshot",
         "catalogue: ids and vectors;\ntree: clusters of items;\nswapped while it serves"),
        ((0, 0.6), derived, "states of users",
         "posterior and open nodes;\nrecent users in memory, others\nrebuilt when they come"),
        ((4.3, 0.6), stored, "the log of events",
         "what was shown, what it earned;\nSQLite or PostgreSQL; on disk\nbefore it is acknowledged"),
        ((8.6, 0.6), derived, "the crowd",
         "what all users taught: shared\ntaste, item effects, spread of\ntastes; numbered editions"),
    )  # fmt: skip
    for (left, bottom), colour, name, text in parts:
        axes.add_patch(Rectangle((left, bottom), 3.3, 1.9, facecolor="white", edgecolor=colour, lw=1.6))
        axes.text(left + 0.14, bottom + 1.75, name, fontweight="bold", va="top", color=colour)
        axes.text(left + 0.14, bottom + 1.35, text, va="top", fontsize=9.3, linespacing=1.35)
    for start, end, text, at, side in (
        ((3.35, 5.6), (4.25, 5.6), "recommend,\nfeedback", (3.8, 5.7), "center"),
        ((4.25, 4.9), (3.35, 4.9), "items,\ntheir ids", (3.8, 4.28), "center"),
        ((8.55, 5.2), (7.65, 5.2), "items", (8.1, 5.3), "center"),
        ((5.95, 4.15), (5.95, 2.55), "events", (6.05, 3.3), "left"),
        ((4.25, 1.5), (3.35, 1.5), "replay", (3.8, 1.6), "center"),
        ((7.65, 1.5), (8.55, 1.5), "sums", (8.1, 1.6), "center"),
        ((2.0, 2.55), (4.9, 4.15), "this user", (2.45, 3.4), "right"),
        ((10.0, 2.55), (7.1, 4.15), "everybody", (9.5, 3.4), "left"),
    ):
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2})
        axes.text(*at, text, fontsize=8.5, style="italic", ha=side)
    note = (("yours", yours), ("stored", stored), ("computed from what is stored; can be discarded", derived))
    for (word, colour), at in zip(note, (0.0, 1.2, 2.5), strict=True):
        axes.text(at, 0.1, word, color=colour, fontsize=9.5)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "architecture": architecture,
    "tree": tree,
    "descent": descent,
    "field": field,
    "budget": budget,
    "log": log,
    "interests": interests,
}


def save(name: str, folder: Path = HERE) -> Path:
    """Draw one figure and return its file, the same bytes every time."""
    with mpl.rc_context(STYLE):
        figure = FIGURES[name]()
        path = folder / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
    return path


if __name__ == "__main__":
    for wanted in sys.argv[1:] or FIGURES:
        save(wanted)
