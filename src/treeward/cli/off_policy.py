"""`treeward off-policy`: estimate what other policies would have earned, from the decisions of a service."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
import typer
from numpy.typing import ArrayLike, NDArray

from treeward.cli.console import progress, say, show_table
from treeward.cli.options import Columns, Derived, Force, expanded, given_flags
from treeward.cli.store import explorer_over_copy
from treeward.core import checks
from treeward.core.artefact import write_file
from treeward.core.errors import ArtefactExists, DataError, InvalidArgument
from treeward.data.catalogue import Catalogue
from treeward.data.open_bandit import checked_log
from treeward.data.tables import read_table
from treeward.serve.parts import fulfilling, load_items
from treeward.serve.settings import read_settings
from treeward.simulate.off_policy import Estimate, OffPolicy
from treeward.simulate.off_policy import off_policy as estimate
from treeward.simulate.target_policies import NAMES, candidate, check_name
from treeward.store.base import read_all
from treeward.store.events import SHOWN

_OWNER = "off-policy"
_KINDS = (".csv", ".parquet")
_HINT = ". If a column of the items holds their ids: --column id=NAME"


class _Logged(NamedTuple):
    """Logged decisions and the catalogue they are about."""

    log: pl.DataFrame
    catalogue: Catalogue
    may: NDArray[np.bool_]
    """Which rows of the catalogue could be shown at any time."""
    unknown: int
    """How many decisions were about items that the catalogue does not have; they are not in the log."""


@expanded
def off_policy(
    log: Annotated[
        Path,
        typer.Argument(help="A store's file, or a log of decisions (`Explorer.log()`) in Parquet.", show_default=False),
    ],
    estimating: Annotated[dict[str, Any], Derived(estimate, "clip", "draws", "seed")],
    items: Annotated[
        Path | None, typer.Option(help="The catalogue, if --config names none.", show_default=False)
    ] = None,
    column: Columns = None,
    tree: Annotated[
        str | None, typer.Option(help="A saved tree. Default: that of --config.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings of the service, in TOML.", show_default=False)
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            show_default=False,
            help="Policy to estimate: uniform, popular, a table with item and probability, or your own: "
            "FILE.py:FUNCTION; repeatable. Default: uniform and popular.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Estimates to write: .csv or .parquet.", show_default=False)
    ] = None,
    save_log: Annotated[
        Path | None, typer.Option(help="Also write the decisions, in Parquet.", show_default=False)
    ] = None,
    force: Force = False,
) -> None:
    """Estimate what other, fixed policies would have earned on the decisions that were logged.

    Nothing is changed: a store is read from a copy. The policy that was served must have drawn its items at random
    (epsilon-greedy or Thompson sampling); the result says if it did not, if too few decisions count, and how many were
    left out.
    """
    for option, path, kinds in (("--out", out, _KINDS), ("--save-log", save_log, _KINDS[1:])):
        if path is not None:
            checks.one_of(_OWNER, option, path.suffix.lower(), kinds)
            _check_free(path, force)
    if items is None and config is None:
        raise InvalidArgument(_OWNER, "--items", "given: a log alone does not say which items there were", "nothing")
    for name in target or NAMES:
        check_name(_OWNER, name)
    flags = given_flags(items=None if items is None else str(items), columns=column, tree=tree)
    held = _of_table(log, config, flags) if log.suffix.lower() == ".parquet" else _of_store(log, config, flags)
    if not held.may.any():
        raise DataError("no item of the catalogue could be shown: look at the setting where, and at the items' ids")
    wanted = [candidate(_OWNER, name, held.catalogue, held.may, held.log) for name in target or NAMES]
    found = {}
    with progress() as report:
        for done, one in enumerate(wanted):
            report("estimating", done, len(wanted))
            found[one.name] = estimate(held.log, _padded(one.target, held), **estimating)
        report("estimating", len(wanted), len(wanted))
    _show(found, {one.name: one.words for one in wanted}, held.unknown)
    if save_log is not None:
        _write(held.log, save_log)
    if out is not None:
        _write(_tidy(found), out)


def _check_free(path: Path, force: bool) -> None:
    if path.is_file() and not force:
        raise ArtefactExists(f"{path} exists: choose another path, or overwrite it (--force)")


def _of_store(path: Path, config: Path | None, flags: dict[str, Any]) -> _Logged:
    if "://" in str(path) or ":/" in str(path):  # which may hold a password
        rule = "a file; copy a database to one first (treeward store copy)"
        raise InvalidArgument(_OWNER, "LOG", rule, "an address")
    with progress() as report, explorer_over_copy(path, config, flags, report) as (explorer, settings):
        made = explorer.log()
        begun = set(load_items(settings).ids.to_list())
        shop = explorer.catalogue
        rows = np.arange(len(shop))
        may = explorer.inspect.may_show(rows) & np.array([item in begun for item in shop.ids.to_list()], dtype=np.bool_)
        may &= fulfilling(settings, shop)
        shown = sum(int((events["kind"] == SHOWN).sum()) for _, events in read_all(explorer.store))
    if not made.height:
        raise DataError(f"{path}: holds no decisions on these items, only {shown:,} on others{_HINT}")
    return _Logged(made, shop, may, shown - made.height)


def _of_table(path: Path, config: Path | None, flags: dict[str, Any]) -> _Logged:
    settings = read_settings(config, flags=flags, secrets=False)
    shop, made = load_items(settings), read_table(path)
    checked_log(_OWNER, made)
    if "item" in made.columns:  # ids identify items whatever their order
        row_of = {item: row for row, item in enumerate(shop.ids.to_list())}
        for item in made["item"].unique(maintain_order=True).to_list():
            row_of.setdefault(item, len(row_of))  # was shown, but is gone: no policy chooses it
        made = made.with_columns(pl.Series("row", [row_of[item] for item in made["item"].to_list()], pl.Int64))
    if (made["row"] >= len(shop)).all():
        raise DataError(f"{path}: {settings.items} has none of its items{_HINT}")
    return _Logged(made, shop, fulfilling(settings, shop), 0)


def _padded(target: Callable[[Any], ArrayLike], held: _Logged) -> Callable[[Any], ArrayLike]:
    """Return a target that gives probability 0 to items of the log that the catalogue does not have."""
    late = int(held.log["row"].max()) + 1 - len(held.catalogue)  # type: ignore[arg-type]
    return target if late <= 0 else lambda user: np.append(np.asarray(target(user), dtype=np.float64), np.zeros(late))


def _show(found: dict[str, OffPolicy], words: dict[str, str], unknown: int) -> None:
    """Print the estimates as a table, and in words."""
    first = next(iter(found.values()))
    title = f"Reward per decision, from {first.decisions:,} decisions of {first.users:,} users"
    rows = [("the log itself", "mean", *_said(first.logged))]
    for name, one in found.items():
        rows += [
            (name, "self-normalised", *_said(one.snips)),
            ("", "IPS", *_said(one.ips)),
            ("", "doubly robust", *_said(one.dr)),
        ]
    show_table(title, ("policy", "estimator", "reward", "95 % interval"), rows, left=("policy", "estimator"))
    for name, one in found.items():
        say(f"{name} ({words[name]}): {_verdict(one)}")
    if unknown:
        say(f"note: {unknown:,} decisions left out: the catalogue does not have their items; estimates may be too high")
    shared = [note for note in first.notes if all(note in one.notes for one in found.values())]
    for note in shared:
        say(f"note: {note}")
    for name, one in found.items():
        for note in one.notes:
            if note not in shared:
                say(f"note on {name}: {note}")


def _said(one: Estimate) -> tuple[str, str]:
    return f"{one.value:.4f}", "" if one.low != one.low else f"{one.low:.4f} - {one.high:.4f}"


def _verdict(one: OffPolicy) -> str:
    """Say what an estimate means, compared with what the log earned itself."""
    if not one.supported:
        return "nothing can be said of it from this log"
    earned = f"would have earned {one.snips.value:.4f} per decision, the log {one.logged.value:.4f}: "
    worth = f". The log is worth {one.effective:,.0f} of its {one.decisions:,} decisions for this"
    if one.too_few:
        return f"{earned}too few decisions count to say which is better{worth}"
    if one.snips.low > one.logged.high:
        return f"{earned}more{worth}"
    if one.snips.high < one.logged.low:
        return f"{earned}less{worth}"
    return f"{earned}the intervals overlap, so the two cannot be told apart{worth}"


def _tidy(found: dict[str, OffPolicy]) -> pl.DataFrame:
    """Return one row per policy and estimator."""
    rows = [
        {
            "policy": name, "estimator": part, "value": getattr(one, part).value, "low": getattr(one, part).low,
            "high": getattr(one, part).high, "effective": one.effective, "mean_weight": one.weight.value,
            "supported": one.supported, "exact": one.exact, "decisions": one.decisions, "users": one.users,
            "left_out": one.left_out,
        }
        for name, one in found.items()
        for part in ("logged", "snips", "ips", "dr", "dm")
    ]  # fmt: skip
    return pl.DataFrame(rows)


def _write(table: pl.DataFrame, path: Path) -> None:
    buffer = io.BytesIO()
    table.write_csv(buffer) if path.suffix.lower() == ".csv" else table.write_parquet(buffer)
    say(f"Wrote {write_file(path, buffer.getvalue())}")
