"""Compare Beam with its rivals: `python benchmarks/frontier.py DATA... [--out FOLDER] [--users 200] [--repeats 5]`.

DATA are sports, beauty, movielens-small and movietweetings, as `treeward data inspect` reads them. Each is run with
`treeward experiment frontier` (finished cells are not run again). Then, on synthetic catalogues, Beam without a prior
is compared with exact LinUCB at 100,000 items, and a decision is timed at 100,000 to 4,000,000 items.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.core.progress import silent
from treeward.data.synthetic import synthetic_catalogue
from treeward.engine.layout import Plan
from treeward.experiment.presets import frontier
from treeward.experiment.report import write_report
from treeward.experiment.run import Outcome, run
from treeward.experiment.summary import paired, scores, tidy
from treeward.policy.session import TreeSession
from treeward.simulate.synthetic import vivid

Row = tuple[str, str, str, bool]
OPTIONS = {"movielens-small": {"positive": 0.5}}
SLOW = ("LinUCB, exact", "LinUCB, exact + prior", "ALS, folded in", "Beam, large", "Beam, Thompson")
"""Left out where items repeat: nothing there is compared with them."""


def earned(outcome: Outcome) -> dict[str, float]:
    return {one.arm: one.mean for one in scores(outcome, outcome.spec.rounds)}


def work(outcome: Outcome) -> dict[str, float]:
    cells = tidy(outcome).filter(round=outcome.spec.rounds)
    return dict(cells.select("arm", "multiplications").iter_rows())


def told(outcome: Outcome, one: str, other: str) -> str:
    gap = paired(outcome, one, other, outcome.spec.rounds)
    return f"{gap.mean:+.1f} ± {gap.half or 0:.1f}"


def of_data(path: str, out: Path, users: int, repeats: int) -> tuple[list[Row], dict[str, bool]]:
    name = Path(path).name
    options = {"loader_options": OPTIONS.get(name, {}), "users": users, "repeats": repeats}
    outcomes = {}
    for once in (True, False):
        spec = frontier(path, once=once, **options)
        if not once:
            spec = type(spec)(**{**vars(spec), "arms": tuple(arm for arm in spec.arms if arm.label not in SLOW)})
        folder = out / name / ("once" if once else "repeats")
        outcomes[once] = run(spec, folder, progress=silent)
        write_report(outcomes[once], folder / "report.html")
    once, again = outcomes[True], outcomes[False]
    mine, cost = earned(once), work(once)
    exact, beam = "LinUCB, exact + prior", "Beam"
    share, price = mine[beam] / mine[exact], cost[beam] / cost[exact]
    paper = max(earned(again)["HUCB"], earned(again)["pHUCB"])
    ours = {arm.label: earned(again)[arm.label] for arm in again.spec.arms if not arm.baseline}
    best = max(ours, key=lambda arm: ours[arm])
    cover = dict(tidy(once).filter(round=once.spec.rounds).select("arm", "coverage").iter_rows())
    rows = [
        (f"{name}, once: Beam of exact LinUCB + prior", f"{share:.1%} ({mine[beam]:.1f}, {told(once, beam, exact)})",
         ">= 99 %", share >= 0.99),
        (f"{name}, once: multiplications of exact's", f"{price:.1%} ({cost[beam]:,.0f} of {cost[exact]:,.0f})",
         "<= 10 % at 18k items", price <= 0.1 or once.prepared["items"] < 18_000),
        (f"{name}, once: Beam against pHUCB", f"{mine[beam] / mine['pHUCB']:.2f}x ({mine['pHUCB']:.1f})", ">= 1.5x",
         mine[beam] >= 1.5 * mine["pHUCB"]),
        (f"{name}, repeats: best of ours against the paper's", f"{ours[best] / paper:.2f}x ({best} {ours[best]:.1f}, "
         f"{paper:.1f})", ">= 1.2x", ours[best] >= 1.2 * paper),
        (f"{name}, once: catalogue shown, Beam and pHUCB", f"{cover[beam]:.1%} and {cover['pHUCB']:.1%}",
         "at least pHUCB's", cover[beam] >= cover["pHUCB"]),
    ]  # fmt: skip
    for rival in ("popularity", "ALS, folded in"):
        rows.append((f"{name}, once: Beam against {rival}", f"{told(once, beam, rival)} ({mine[rival]:.1f})",
                     "above, on 3 of 4", True))  # judged below  # fmt: skip
    return rows, {rival: mine[beam] > mine[rival] for rival in ("popularity", "ALS, folded in")}


def plan_of(items: int) -> Plan:
    shop = synthetic_catalogue(items, dim=64, seed=0)
    return tw.Beam().plan(tw.ItemTree.build(shop.vectors, seed=0), shop, once=True)


def cost_of_a_decision() -> list[Row]:
    """Time one core for a decision, items shown once, at 60 to 100 events per user; medians."""
    took, mults = {}, {}
    for items in (100_000, 1_000_000, 4_000_000):
        plan = plan_of(items)
        session = TreeSession(plan, 100)
        who = np.arange(100)
        each, spent = [], 0.0
        for nonce in range(100):
            start = time.perf_counter()
            made = session.select(who, nonce)
            chosen = time.perf_counter() - start
            session.update(made, np.where(made.item % 3 == 0, 1.0, 0.1))
            if nonce > 60:
                each.append(chosen)
                spent = float(made.work.mean())
        took[items], mults[items] = float(np.median(each)) / 100 * 1e6, spent + plan.upkeep
        del plan, session
    grown = took[4_000_000] / took[100_000]
    share = mults[1_000_000] / (64 * 1_000_000 + 3 * 64 * 64)
    shown = ", ".join(f"{one:.1f}" for one in took.values())
    return [
        ("a decision at 64 dimensions, one core, 1M items", f"{took[1_000_000]:.1f} us", "<= 30 us",
         took[1_000_000] <= 30),
        ("100,000 -> 4,000,000 items", f"{grown:.2f}x ({shown} us)", "<= 1.5x", grown <= 1.5),
        ("multiplications of exact's at 1M items", f"{share:.2%}", "<= 1 %", share <= 0.01),
    ]  # fmt: skip


def without_a_prior(items: int = 100_000, users: int = 100, rounds: int = 200) -> list[Row]:
    """Compare with exact LinUCB: clicks, repeats allowed, three synthetic worlds of strong tastes, paired by user."""
    arms = {"exact": tw.Flat(budget=None), "beam": tw.Beam(), "by means alone": tw.Beam(directions=0)}
    earned: dict[str, list[np.ndarray]] = {name: [] for name in arms}
    took = dict.fromkeys(arms, 0.0)
    for seed in range(3):
        world = tw.World(*vivid(items=items, users=users, dim=32, seed=seed))
        tree = tw.ItemTree.build(world.catalogue.vectors, seed=0)
        for name, arm in arms.items():
            tw.simulate(arm, world, tree, rounds=2, users=2, reward="click")  # compiles
            start = time.process_time()
            result = tw.simulate(arm, world, tree, rounds=rounds, seed=seed, reward="click", threads=1)
            took[name] += time.process_time() - start
            earned[name].append(result.per_user)
    exact = np.concatenate(earned["exact"])
    rows = []
    for name, target in (("beam", ">= 97 %, <= 15 %"), ("by means alone", "")):
        mine = np.concatenate(earned[name])
        gap = mine - exact
        half = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap))
        share, price = mine.mean() / exact.mean(), took[name] / took["exact"]
        per = took[name] / (3 * users * rounds) * 1e6
        said = f"{share:.1%} ({mine.mean():.1f}, {gap.mean():+.1f} ± {half:.1f}); {price:.1%} of its time, {per:.0f} us"
        reached = not target or (share >= 0.97 and price <= 0.15)
        rows.append((f"{items:,} items, no prior: {name}, of exact", said, target, reached))
    return rows


def main() -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("bench-out/frontier"))
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    rows: list[Row] = []
    above: dict[str, int] = {}
    for path in given.data:
        more, beats = of_data(path, given.out, given.users, given.repeats)
        rows += more
        for rival, won in beats.items():
            above[rival] = above.get(rival, 0) + won
        for what, measured, target, reached in more:
            print(f"{'ok  ' if reached else 'MISS'}  {what:58} {measured:44} target {target}", flush=True)
    tail = [(f"above {rival}", f"{n} of {len(given.data)}", ">= 3 of 4", n >= 3) for rival, n in above.items()]
    tail += without_a_prior()
    tail += cost_of_a_decision()
    for what, measured, target, reached in tail:
        print(f"{'ok  ' if reached else 'MISS'}  {what:58} {measured:44} target {target}")
    rows += tail
    given.out.parent.mkdir(parents=True, exist_ok=True)
    keys = ("what", "measured", "target", "reached")
    Path("bench-out").mkdir(exist_ok=True)
    Path("bench-out/frontier.json").write_text(
        json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2)
    )
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
