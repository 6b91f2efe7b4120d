"""Tables of the paper: what it claims, and what was found."""

from collections.abc import Callable, Sequence

from cells import (
    NOT_RUN,
    TAOBAO,
    Results,
    Row,
    answer,
    arms_of,
    by_log,
    difference,
    figures_of,
    gap,
    pair,
    reward,
    table,
)
from jobs import LOGS

from treeward.experiment.presets import TABLE_3
from treeward.experiment.summary import Estimate

PAPERS = ("LinUCB", "CB-Category", "CB-Leaf", "ConUCB", "HMAB", "ICTRUCB", "HUCB", "pHUCB")


def table_3(results: Results) -> str:
    """Return table 3 on the logs."""

    def earned(arm: str) -> Callable[[str], str]:
        return lambda job: reward(results, job, arm)

    def size(job: str) -> str:
        told = figures_of(results, job)
        return f"{told['users']:,}, {told['items']:,}" if told else NOT_RUN

    def ceiling(job: str) -> str:
        told = figures_of(results, job)
        return f"{told['ceiling']:.0f}" if told else NOT_RUN

    def ranks(job: str) -> str:
        told = figures_of(results, job)
        return " and ".join(f"{one:.3f}" for one in told["aucs"][0]) if told else NOT_RUN

    def over_linucb(job: str) -> str:
        arms = arms_of(results, job)
        return f"{arms['pHUCB']['reward']['2000'][0] / arms['LinUCB']['reward']['2000'][0]:.2f}" if arms else NOT_RUN

    rows: list[Row] = [
        ("test users, items", size),
        *((arm, earned(arm)) for arm in PAPERS),
        ("pHUCB − HUCB, paired", lambda job: gap(results, job, "pHUCB", "HUCB")),
        ("pHUCB / LinUCB (paper: 2.42 and 3.80)", over_linucb),
        ("context-free ceiling", ceiling),
        ("AUC of the world on held-out events, and of popularity", ranks),
    ]
    return by_log(results, "rewards", rows, TAOBAO)


BASELINES = ("LinUCB", "HMAB", "ICTRUCB", "ConUCB", "CB-Leaf", "CB-Category")
CLAIMS = (*(("HUCB", one) for one in BASELINES), *(("pHUCB", one) for one in BASELINES), ("pHUCB", "HUCB"),
          *((one, "LinUCB") for one in BASELINES[1:]))  # fmt: skip


def claims(results: Results) -> str:
    """Return the paper's claims of table 3, answered by the paired interval."""

    def one(above: str, below: str) -> Callable[[str], str]:
        return lambda job: answer(results, job, above, below)

    return by_log(results, "rewards", [(f"{a} above {b}", one(a, b)) for a, b in CLAIMS], TAOBAO)


def claims_in_short(results: Results) -> str:
    """Return the claims in short: each over all baselines together."""

    def over(arm: str, others: Sequence[str]) -> Callable[[str], str]:
        def made(job: str) -> str:
            gaps = {other: difference(results, job, arm, other) for other in others}
            if None in gaps.values():
                return NOT_RUN
            other, found = min(gaps.items(), key=lambda one: one[1][0] - one[1][1])  # type: ignore[index]
            assert found is not None
            return f"{Estimate(*found).answer}: {pair(found, '+.1f')}" + (f" ({other})" if len(others) > 1 else "")

        return made

    rows = [
        ("HUCB above every baseline", over("HUCB", BASELINES)),
        ("pHUCB above every baseline", over("pHUCB", BASELINES)),
        *((f"{one} above LinUCB", over(one, ("LinUCB",))) for one in ("HMAB", "ICTRUCB", "ConUCB")),
        ("pHUCB above HUCB", over("pHUCB", ("HUCB",))),
    ]
    return by_log(results, "rewards", rows, TAOBAO)


def by_round(results: Results) -> str:
    """Return rewards divided by LinUCB's, by round, next to the paper's."""
    rounds, here = ("100", "1000", "2000"), ("sports", "movielens-small")
    head = ["", *(f"{name}, paper: {turn}" for name in TABLE_3 for turn in rounds)]
    head += [f"{log}: {turn}" for log in here for turn in rounds]
    rows = []
    for arm in ("HMAB", "ICTRUCB", "ConUCB", "HUCB", "pHUCB"):
        cells = [f"{told[arm][at] / told['LinUCB'][at]:.2f}" for told in TABLE_3.values() for at in range(3)]
        for log in here:
            arms = arms_of(results, f"rewards-{log}")
            cells += [
                f"{arms[arm]['reward'][turn][0] / arms['LinUCB']['reward'][turn][0]:.2f}" if arms else NOT_RUN
                for turn in rounds
            ]
        rows.append([arm, *cells])
    return table(head, rows)


_READINGS = {
    "HMAB": "HMAB", "HMAB, authors' reading, per user": "HMAB as CB-Category, per user",
    "HMAB, authors' reading, shared": "HMAB as CB-Category, shared by all users", "ICTRUCB": "ICTRUCB",
    "ICTRUCB, authors' reading, items shared": "ICTRUCB as CB-Leaf, leaves per user, items shared",
    "ICTRUCB, authors' reading, per user": "ICTRUCB as CB-Leaf, per user", "ConUCB": "ConUCB",
    "ConUCB, LinUCB's alpha": "ConUCB at LinUCB's alpha, 0.5",
}  # fmt: skip


def readings(results: Results) -> str:
    """Return other readings of the baselines, as ratios of LinUCB's reward."""

    def ratio(arm: str) -> Callable[[str], str]:
        def made(job: str) -> str:
            arms = arms_of(results, job)
            if arm not in arms:
                return NOT_RUN
            mine, plain = (arms[one]["reward"]["2000"] for one in (arm, "LinUCB"))
            return f"{mine[0] / plain[0]:.2f} ({pair(mine)})"

        return made

    return by_log(results, "rewards", [(label, ratio(arm)) for arm, label in _READINGS.items()], TAOBAO)


def nodes(results: Results) -> str:
    """Return what scaling node vectors to length 1 changes."""

    def change(arm: str) -> Callable[[str], str]:
        def made(job: str) -> str:
            plain, unit = arms_of(results, job), arms_of(results, job.replace("nodes", "rewards"))
            if not plain or not unit:
                return NOT_RUN
            return f"{pair(plain[arm]['reward']['2000'])} → {pair(unit[arm]['reward']['2000'])}"

        return made

    return by_log(results, "nodes", [(arm, change(arm)) for arm in PAPERS if arm[:2] in ("CB", "HU", "pH")], LOGS[:3])


def figure_3(results: Results, job: str = "bases-sports") -> str:
    """Return figure 3: three bandits, five policies."""
    bases = {"UCB": "LinUCB", "TS": "Thompson sampling", "EG": "epsilon-greedy"}
    ways = {"{}": "flat", "CB-Category {}": "CB-Category", "CB-Leaf {}": "CB-Leaf", "H{}": "HCB", "pH{}": "pHCB"}
    rows = [[label, *(reward(results, job, way.format(base)) for base in bases)] for way, label in ways.items()]
    rows.append(["pHCB − HCB, paired", *(gap(results, job, f"pH{base}", f"H{base}") for base in bases)])
    return table(["", *bases.values()], rows)


def figure_4(results: Results) -> str:
    """Return figure 4: q and p."""
    steps = ("0", "0.05", "0.1", "0.15", "0.2", "0.25")
    rows = [
        [f"q {q}", *(reward(results, "sensitivity-sports", f"q {q}, p {p}") for p in steps)] for q in range(0, 30, 5)
    ]
    return table(["", *(f"p {p}" for p in steps)], rows)


_MODELS = ("Linear", "GRU", "Transformer")
_JUDGED = ("nothing collected", *_MODELS, "HUCB", "pHUCB", "LinUCB", "random", "popularity", "Beam")


def table_4(results: Results, logs: Sequence[str] = LOGS[:2], judge: int = 0) -> str:
    """Return table 4: what judges learn from what arms collected."""
    head, rows = [""], [[arm] for arm in _JUDGED]
    for log in logs:
        head += [f"{log}: LogLoss", "AUC", "AUC, world labels", "clicks", "categories"]
        told = list(figures_of(results, f"closed-loop-{log}").get("judges", {}).values())
        for row, arm in zip(rows, _JUDGED, strict=True):
            found = told[judge]["arms"].get(arm) if told else None
            if found is None:
                row += [NOT_RUN] * 5
                continue
            row += [pair(found[name], ".3f") for name in ("log_loss", "auc", "auc_world")]
            row += ["" if found[name] is None else f"{found[name]:.1f}" for name in ("clicks", "categories")]
    return table(head, rows)


def table_4_gaps(results: Results) -> str:
    """Return by how much explorers' logs are ahead of exploiters', paired by repeat."""
    rows = []
    for what, sign in (("auc", "AUC"), ("log_loss", "LogLoss"), ("auc_world", "AUC, world labels"),
                       ("log_loss_world", "LogLoss, world labels")):  # fmt: skip
        for ours in ("HUCB", "pHUCB", "Beam"):
            cells = []
            for log in (*LOGS[:2], "mind"):
                judges = figures_of(results, f"closed-loop-{log}").get("judges")
                gaps = next(iter(judges.values()))["gaps"][what] if judges else {}
                cells += [pair(gaps.get(f"{ours} - {model}"), "+.3f") or NOT_RUN for model in _MODELS]
            rows.append([f"{sign}: {ours} over", *cells])
    return table(["", *(f"{log}: {model}" for log in (*LOGS[:2], "mind") for model in _MODELS)], rows)
