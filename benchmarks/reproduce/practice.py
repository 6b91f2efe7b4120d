"""Tables of what people need: a new shop, reward against work, rivals, logs with random exposure."""

from collections.abc import Callable, Sequence

from cells import NOT_RUN, Results, Row, arms_of, by_log, figures_of, gap, pair, reward, share, table
from jobs import LOGS

from treeward.experiment.stream_arms import BEAM, CROWD, LIST

# What a new shop earns


def _clicks(results: Results, job: str, arm: str, what: str = "clicks", form: str = ".3f") -> str:
    arms = arms_of(results, job)
    return pair(arms[arm][what], form) if arm in arms else NOT_RUN


WABBIT = "Vowpal Wabbit, SquareCB, 50 drawn items"


def readme_stream(results: Results) -> str:
    """Return what a new shop earns, in short: the default, and by how much it is ahead of the usual alternatives."""

    def ahead(arm: str, kind: str = "stream") -> Callable[[str], str]:
        return lambda job: _clicks(results, job.replace("stream", kind), arm, "default minus it", "+.3f")

    said: list[Row] = [
        ("**clicks per visit of the default, starting from nothing**", lambda job: _clicks(results, job, CROWD)),
        ("minus a list of what is popular, known in advance", ahead(LIST)),
        ("minus popularity, learned online", ahead("online popularity")),
        ("minus ALS, refitted every day", ahead("ALS, daily")),
        ("minus Vowpal Wabbit: SquareCB, 50 drawn items", ahead(WABBIT, "peers")),
        ("minus the same policy, each user learned separately", ahead(BEAM)),
    ]
    return by_log(results, "stream", said)


_STREAM = {
    "random": "random", "online popularity": "online popularity (Thompson sampling per item)",
    "ALS, daily": "ALS, refitted daily", "HCB": "HCB, each user separately", "pHCB": "pHCB, each user separately",
    BEAM: "`Beam`, each user separately", "HCB, crowd": "HCB with the crowd", "pHCB, crowd": "pHCB with the crowd",
    CROWD: "**`Beam` with the crowd, the default**", LIST: "popularity list, known in advance",
    "Beam, offline prior": "`Beam` with a crowd from a log, fixed", "Beam, prior and crowd": "the same, still learning",
    "own best": "each user's own best items, the ceiling",
}  # fmt: skip


def stream(results: Results, kind: str = "stream", logs: Sequence[str] = LOGS) -> str:
    """Return the arms of the stream: clicks per visit, and in the last third of the visits."""
    ran = {arm for log in logs for arm in arms_of(results, f"{kind}-{log}")} or set(_STREAM)

    def both(arm: str) -> Callable[[str], str]:
        def made(job: str) -> str:
            last = arms_of(results, job).get(arm, {}).get("last")
            return _clicks(results, job, arm) + (f", {last[0]:.3f}" if last else "")

        return made

    return by_log(results, kind, [(label, both(arm)) for arm, label in _STREAM.items() if arm in ran], logs)


# Reward against work


def readme_prior(results: Results) -> str:
    """Return what new users earn with a prior, in short."""

    def minus(one: str, other: str, kind: str = "frontier") -> Callable[[str], str]:
        return lambda job: gap(results, job.replace("frontier", kind), one, other)

    rows: list[Row] = [
        ("**clicks of `Beam` with the prior**", lambda job: reward(results, job, "Beam")),
        ("minus a popularity list", minus("Beam", "popularity")),
        ("minus ALS, clicks folded in", minus("Beam", "ALS, folded in")),
        ("minus the best rival since 2021, same prior, each tuned", lambda job: _best_rival(results, job)),
        ("minus exact LinUCB, same prior", minus("Beam", "LinUCB, exact + prior")),
        ("`Beam` **without prior or crowd**, minus the list", minus("Beam, no prior", "popularity")),
    ]
    return by_log(results, "frontier", rows)


def _rivals_of(results: Results, job: str) -> list[str]:
    """Return the rivals with the prior that were run, the best first."""
    arms = arms_of(results, job)
    theirs = [arm for arm in arms if arm.endswith(" + prior") and not arm.startswith(("LinUCB", "pHUCB"))]
    return sorted(theirs, key=lambda arm: -max(arms[arm]["reward"].items(), key=lambda one: int(one[0]))[1][0])


def _best_rival(results: Results, job: str) -> str:
    job = job.replace("frontier", "rivals")
    found = _rivals_of(results, job)
    return f"{gap(results, job, 'Beam', found[0])} ({found[0].removesuffix(' + prior')})" if found else NOT_RUN


def frontier(results: Results) -> str:
    """Return the arms of `experiment frontier`, each item once."""
    labels = {
        "random": "random", "popularity": "popularity", "ALS, folded in": "ALS, folded in", "HUCB": "HUCB",
        "pHUCB": "pHUCB", "LinUCB, exact": "LinUCB, exact", "Beam, no prior": "`Beam` without a prior",
        "pHUCB + prior": "pHUCB with the prior", "LinUCB, exact + prior": "LinUCB, exact, with the prior",
        "Beam": "**`Beam`** with the prior",
    }  # fmt: skip

    def earned(arm: str) -> Callable[[str], str]:
        return lambda job: reward(results, job, arm)

    def minus(one: str, other: str) -> Callable[[str], str]:
        return lambda job: gap(results, job, one, other)

    def shown(arm: str) -> Callable[[str], str]:
        return lambda job: f"{100 * arms_of(results, job)[arm]['coverage']:.1f} %" if job in results else NOT_RUN

    rows: list[Row] = [(label, earned(arm)) for arm, label in labels.items()]
    rows += [
        ("`Beam` − exact, both with the prior", minus("Beam", "LinUCB, exact + prior")),
        ("multiplications, of exact's",
         lambda job: share(results, job, "multiplications", "Beam", "LinUCB, exact + prior")),
        ("`Beam` − pHUCB, both with the prior", minus("Beam", "pHUCB + prior")),
        ("`Beam` − popularity", minus("Beam", "popularity")),
        ("`Beam` − ALS", minus("Beam", "ALS, folded in")),
        ("`Beam` without a prior − popularity", minus("Beam, no prior", "popularity")),
        ("catalogue shown: `Beam`", shown("Beam")),
        ("catalogue shown: pHUCB without a prior", shown("pHUCB")),
    ]  # fmt: skip
    return by_log(results, "frontier", rows)


def rivals(results: Results, logs: Sequence[str] = LOGS) -> str:
    """Return what rivals earn, and their difference from Beam with the same information."""
    labels = [arm for log in logs for arm in arms_of(results, f"rivals-{log}")]
    both = list(dict.fromkeys(one.removesuffix(" + prior") for one in labels if not one.startswith(("Beam", "pop"))))

    def told(arm: str, prior: bool) -> Callable[[str], str]:
        name, beam = (f"{arm} + prior", "Beam") if prior else (arm, "Beam, no prior")

        def made(job: str) -> str:
            if name not in arms_of(results, job):
                return "" if job in results else NOT_RUN
            return f"{reward(results, job, name)}; {gap(results, job, name, beam)}"

        return made

    rows: list[Row] = [
        ("**with the prior**", lambda job: ""),
        *((arm, told(arm, True)) for arm in both if f"{arm} + prior" in labels),
        ("**`Beam`**", lambda job: reward(results, job, "Beam")),
        ("**without**", lambda job: ""),
        *((arm, told(arm, False)) for arm in both if arm in labels),
        ("**`Beam`**", lambda job: reward(results, job, "Beam, no prior")),
        ("popularity", lambda job: reward(results, job, "popularity")),
    ]
    return by_log(results, "rivals", rows, logs)


def rivals_work(results: Results, logs: Sequence[str] = LOGS) -> str:
    """Return the work of rivals."""
    names = [arm for log in logs for arm in arms_of(results, f"rivals-{log}") if arm != "popularity"]

    def work(arm: str) -> Callable[[str], str]:
        def made(job: str) -> str:
            one = arms_of(results, job).get(arm)
            return f"{one['multiplications']:,.0f}; {one['us_per_round']:.0f} µs" if one else NOT_RUN

        return made

    return by_log(results, "rivals", [(arm, work(arm)) for arm in dict.fromkeys(names)], logs)


# Logs with random exposure


def debias(results: Results, task: str) -> str:
    """Return errors on randomly shown items."""
    told = figures_of(results, "debias-coat").get("tasks", {}).get(task, {})
    metrics = list(dict.fromkeys(name for found in told.values() for name in found))
    rows = []
    for fit, found in told.items():
        rows.append([fit, *(_ends(found.get(name)) for name in metrics)])
        if any(len(one) > 3 for one in found.values()):
            rows.append(
                ["published", *(f"{one[3]:.3f}" if one and len(one) > 3 else "" for one in map(found.get, metrics))]
            )
    return table(["", *metrics], rows)


def _ends(found: Sequence[float] | None) -> str:
    return "" if found is None else f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"
