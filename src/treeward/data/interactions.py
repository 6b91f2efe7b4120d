"""`Interactions`: a log of events: user, item, reward, and perhaps action and time."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import polars as pl

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.errors import DataError, InvalidArgument
from treeward.data import tables
from treeward.data.columns import Values, column, ids

FORMAT, VERSION = "treeward.interactions", 1

HISTORY, CLICK, SKIP = "history", "click", "skip"
"""Values of the column `action` in a log with impressions."""

_OWNER = "Interactions"


class Interactions:
    """A log of events on an Arrow table, in the order given.

    Parameters
    ----------
    users, items
        Ids, strings or integers.
    rewards
        Finite numbers; 1.0 for every event if not given.
    actions
        Optional names of what happened (``"pv"``, ``"buy"``, ...).
    times
        Optional times: integers, dates or datetimes.

    Examples
    --------
    >>> log = Interactions(["ada", "ada", "bob"], [1, 2, 1], rewards=[1, 0, 1])
    >>> len(log), log.users.n_unique(), log.rewards.sum()
    (3, 2, 2.0)
    """

    def __init__(
        self,
        users: Values,
        items: Values,
        *,
        rewards: Values | None = None,
        actions: Values | None = None,
        times: Values | None = None,
    ) -> None:
        user = ids(_OWNER, "users", users).rename("user")
        columns = [user, ids(_OWNER, "items", items, len(user)).rename("item")]
        columns.append(_rewards(pl.repeat(1.0, len(user), eager=True) if rewards is None else rewards, len(user)))
        if actions is not None:
            names = column(_OWNER, "actions", actions, len(user)).rename("action")
            if names.dtype.is_nested():
                raise InvalidArgument(_OWNER, "actions", "names", f"dtype {names.dtype}")
            columns.append(names if isinstance(names.dtype, pl.Enum) else names.cast(pl.String))
        if times is not None:
            columns.append(_times(times, len(user)))
        self.table = pl.DataFrame(columns)
        """One row per event: `user`, `item`, `reward`, then `action` and `time` where given."""

    def __len__(self) -> int:
        return self.table.height

    def __repr__(self) -> str:
        return f"Interactions({len(self):,} events, {self.users.n_unique():,} users, {self.items.n_unique():,} items)"

    @property
    def users(self) -> pl.Series:
        """The user of each event."""
        return self.table["user"]

    @property
    def items(self) -> pl.Series:
        """The item of each event."""
        return self.table["item"]

    @property
    def rewards(self) -> pl.Series:
        """The reward of each event."""
        return self.table["reward"]

    @property
    def has_impressions(self) -> bool:
        """Whether the log distinguishes histories from impressions: its actions include `history` and `skip`."""
        return not self._missing_actions()

    def impressions(self) -> "Impressions":
        """Return three logs: clicks of the history, clicks on impressions, and skips.

        Raises
        ------
        DataError
            If the log has no impressions; see `has_impressions`.

        Examples
        --------
        >>> told = ["history", "click", "skip", "skip"]
        >>> log = Interactions(["ada"] * 4, [1, 2, 3, 4], rewards=[1, 1, 0, 0], actions=told)
        >>> [part.items.to_list() for part in log.impressions()]
        [[1], [2], [3, 4]]
        """
        missing = self._missing_actions()
        if missing:
            raise DataError(f"the log has no impressions: none of its events has the action {' or '.join(missing)}")
        named = pl.col("action").cast(pl.String)
        return Impressions(*(self.of_table(self.table.filter(named == name)) for name in (HISTORY, CLICK, SKIP)))

    def _missing_actions(self) -> list[str]:
        if "action" not in self.table.columns:
            return [HISTORY, SKIP]
        found = self.table["action"].unique().cast(pl.String)
        return [name for name in (HISTORY, SKIP) if name not in found]

    def weighed(self, actions: Mapping[str, float]) -> "Interactions":
        """Return the log with rewards by action; events of actions without a weight are left out.

        Parameters
        ----------
        actions
            The reward of each action, 0 or more. 0 is a skip: the user saw the item and did not want it.

        Raises
        ------
        DataError
            If the log has no actions, or no event of one that is named.

        Examples
        --------
        >>> log = Interactions(["ada"] * 3, [1, 2, 3], actions=["view", "buy", "wishlist"])
        >>> log.weighed({"view": 0.1, "buy": 1}).rewards.to_list()
        [0.1, 1.0]
        """
        weights = checked_weights("Interactions.weighed", actions)
        if "action" not in self.table.columns:
            raise DataError(f"the log has no column of actions to find {', '.join(weights)} in (--column action=NAME)")
        named = pl.col("action").cast(pl.String)
        found = dict(self.table.group_by(named).len().sort("len", descending=True).drop_nulls().iter_rows())
        for name in weights:
            if name not in found:
                has = ", ".join(f"{one} ({count:,} times)" for one, count in list(found.items())[:20])
                raise DataError(f"no event of the log has the action {name!r}; it has {has or 'none'}")
        kept = self.table.filter(named.is_in(list(weights)).fill_null(False))
        return type(self).of_table(
            kept.with_columns(named.replace_strict(weights, return_dtype=pl.Float64).alias("reward"))
        )

    def of_users(self, users: pl.Series) -> "Interactions":
        """Return the events of some users, in order."""
        if not isinstance(users, pl.Series) or users.dtype.is_integer() != self.users.dtype.is_integer():
            got = users.dtype if isinstance(users, pl.Series) else type(users).__name__
            raise InvalidArgument("Interactions.of_users", "users", f"a series of {self.users.dtype}", got)
        return type(self).of_table(self.table.filter(pl.col("user").is_in(users.implode())))

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the log to a directory, checksummed."""
        artefact.write(
            path, FORMAT, VERSION, artefact.Contents({}, {"events": self.table}, {}, {}), overwrite=overwrite
        )

    @classmethod
    def load(
        cls, path: StrPath, *, columns: Mapping[str, str] | None = None, actions: Mapping[str, float] | None = None
    ) -> "Interactions":
        """Read a saved log, or a CSV, TSV or Parquet table.

        Parameters
        ----------
        path
            A directory written by `save`, or a table.
        columns
            For a table: which of its columns is the `user`, `item`, `reward`, `action` and `time`; by default those
            of that name.
        actions
            What each action is worth; see `weighed`. By default the column `reward`, or 1 for every event.
        """
        if artefact.is_artefact(path):
            table = artefact.read(path, FORMAT, VERSION).tables["events"]
        else:
            table = tables.read_events(path, columns or {})
        try:
            log = cls.of_table(table)
        except InvalidArgument as error:  # about what the file holds
            raise DataError(f"{path}: {error}") from error
        return log if actions is None else log.weighed(actions)

    @classmethod
    def of_table(cls, table: pl.DataFrame) -> Self:
        """Make a log of a table with the columns `user` and `item`, and perhaps `reward`, `action` and `time`."""
        given = {name: table[name] for name in ("reward", "action", "time") if name in table.columns}
        return cls(
            table["user"],
            table["item"],
            rewards=given.get("reward"),
            actions=given.get("action"),
            times=given.get("time"),
        )


class Impressions(NamedTuple):
    """The parts of a log that records what was shown, such as MIND's."""

    history: Interactions
    """Clicks from before the log began."""
    clicks: Interactions
    """What was shown and clicked."""
    skips: Interactions
    """What was shown and not clicked."""


def checked_weights(owner: str, actions: object) -> dict[str, float]:
    """Return the rewards of actions, or raise `InvalidArgument`."""
    rule = "a weight for each action, such as {'view': 0.1, 'buy': 1}"
    if not isinstance(actions, Mapping) or not actions or not all(isinstance(name, str) for name in actions):
        raise InvalidArgument(owner, "actions", rule, actions)
    return {name: checks.number(owner, f"actions[{name!r}]", weight, low=0) for name, weight in actions.items()}


def _rewards(values: Values, count: int) -> pl.Series:
    series = column(_OWNER, "rewards", values, count)
    if not series.dtype.is_numeric():
        raise InvalidArgument(_OWNER, "rewards", "numbers", f"dtype {series.dtype}")
    series = series if series.dtype == pl.Float32 else series.cast(pl.Float64)
    if series.null_count() or not series.is_finite().all():
        bad = series.filter(~series.is_finite().fill_null(False)).head(3).to_list()
        raise InvalidArgument(_OWNER, "rewards", "finite numbers, one for each event", bad)
    return series.rename("reward")


def _times(values: Values, count: int) -> pl.Series:
    series = column(_OWNER, "times", values, count)
    if not (series.dtype.is_integer() or series.dtype.is_temporal()):
        raise InvalidArgument(_OWNER, "times", "integers, dates or datetimes", f"dtype {series.dtype}")
    return series.rename("time")
