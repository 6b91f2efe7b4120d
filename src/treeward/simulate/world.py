"""`World`: users and items whose tastes and appeal are known, so that any recommendation can be answered."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from treeward.core import artefact, checks
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, NotNegative
from treeward.core.errors import ArtefactCorrupt, InvalidArgument
from treeward.core.ranking import LIST
from treeward.core.types import Floats, frozen
from treeward.core.version import __version__
from treeward.data.catalogue import Catalogue
from treeward.data.columns import ids
from treeward.data.interactions import Interactions
from treeward.engine.simulate import Tastes, fill_chances
from treeward.simulate.fit_evidence import Evidence, gather
from treeward.simulate.synthetic import like_logs, vivid

if TYPE_CHECKING:
    from treeward.simulate.fidelity import Fidelity
    from treeward.simulate.fit import Fitted

_MOST_UNKNOWN = 0.1

FORMAT, VERSION = "treeward.world", 2


class World:
    """A catalogue and the true tastes of users for its items.

    Parameters
    ----------
    catalogue
        What policies may see of the items.
    users, items
        (users, k) and (items, k): the true vectors, which policies never see.
    user_bias, item_bias
        One number per user, and one per item.
    user_ids
        The users' ids, if they have any.
    provenance
        Where the world came from.
    evidence
        What a learned world was tested on; see `fidelity`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        users: ArrayLike,
        items: ArrayLike,
        user_bias: ArrayLike,
        item_bias: ArrayLike,
        *,
        user_ids: pl.Series | None = None,
        provenance: Mapping[str, Any] | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        owner = "World"
        if not isinstance(catalogue, Catalogue):
            raise InvalidArgument(owner, "catalogue", "a Catalogue", type(catalogue).__name__)
        people, things = checks.vectors(owner, users, "users"), checks.vectors(owner, items, "items")
        if things.shape != (len(catalogue), people.shape[1]):
            wanted = f"of shape ({len(catalogue)}, {people.shape[1]})"
            raise InvalidArgument(owner, "items", wanted, f"shape {things.shape}")
        self.catalogue = catalogue
        biases = _bias("user_bias", user_bias, len(people)), _bias("item_bias", item_bias, len(things))
        self.tastes = frozen(Tastes(people, things, *biases, np.zeros((0, 0), dtype=np.float32)))
        if user_ids is not None:
            user_ids = ids(owner, "user_ids", user_ids, len(people))
            if user_ids.n_unique() != len(user_ids):
                raise InvalidArgument(owner, "user_ids", "all different", "repeated ones")
        self._numbers: dict[int | str, int] | None = None
        self.user_ids, self.provenance, self.evidence = user_ids, dict(provenance or {}), evidence

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.tastes.users)

    def __repr__(self) -> str:
        return f"World({self.users:,} users, {len(self.catalogue):,} items)"

    def probabilities(self, user: int) -> NDArray[np.float32]:
        """Return the probability of a reward for every item, for a user by number."""
        checks.integer("World.probabilities", "user", user, low=0, high=self.users - 1)
        people, things, user_bias, item_bias, table = self.tastes
        chances: NDArray[np.float32]
        if len(table):
            chances = table[user].copy()
            return chances
        with np.errstate(over="ignore"):
            logits = things @ people[user] + item_bias + user_bias[user]
            chances = (1 / (1 + np.exp(-logits))).astype(np.float32)
        return chances

    def chances_of(self, user: int | str) -> NDArray[np.float32]:
        """Return the probability of a reward for every item, for a user by id (by number if the world has no ids)."""
        if self.user_ids is None:
            return self.probabilities(checks.integer("World.chances_of", "user", user, low=0, high=self.users - 1))
        if self._numbers is None:
            self._numbers = {id: number for number, id in enumerate(self.user_ids.to_list())}
        if user not in self._numbers:
            raise InvalidArgument("World.chances_of", "user", "one of the world's", user)
        return self.probabilities(self._numbers[user])

    def chances(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of a reward for pairs of a user and an item's row."""
        who, rows = _numbers("users", users, self.users), _numbers("items", items, len(self.catalogue))
        if len(who) != len(rows):
            raise InvalidArgument("World.chances", "items", f"{len(who)} of them, one per user", f"{len(rows)}")
        made = np.empty(len(who))
        fill_chances(self.tastes, who, rows, made)
        return made

    def opinions(self, users: Sequence[int], groups: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Return (users, groups): users' answers about groups of rows, by a group's mean vector and mean bias."""
        people, things, user_bias, item_bias, table = self.tastes
        made = np.empty((len(users), len(groups)))
        if len(table):
            for j, rows in enumerate(groups):
                made[:, j] = table[np.ix_(np.asarray(users), rows)].mean(axis=1)
            return made
        means = np.array([things[rows].mean(axis=0) for rows in groups], dtype=np.float64)
        biases = np.array([item_bias[rows].mean() for rows in groups], dtype=np.float64)
        for i, user in enumerate(users):  # one by one, so that an answer does not depend on which others are asked
            made[i] = 1 / (1 + np.exp(-(means @ people[user] + user_bias[user] + biases)))
        return made

    def base_rate(self, users: int = 100) -> float:
        """Return the mean reward of a random item, over the first `users` users."""
        return float(np.mean([self.probabilities(user).mean() for user in range(min(users, self.users))]))

    @classmethod
    def from_matrix(cls, rewards: ArrayLike, catalogue: Catalogue, *, user_ids: pl.Series | None = None) -> Self:
        """Make a world from a nearly complete matrix of rewards, without a model.

        Parameters
        ----------
        rewards
            (users, items), from 0 to 1: the reward, or its probability. NaN where it is unknown, in at most a tenth of
            the cells: there it becomes the user's mean plus the item's difference from the overall mean.
        catalogue
            The items, in the order of the columns.
        user_ids
            The users' ids.

        Examples
        --------
        >>> rewards = [[1.0, 0.0, 0.5], [0.2, np.nan, 0.2], [0, 0, 1], [1, 1, 1]]
        >>> world = World.from_matrix(rewards, Catalogue(["a", "b", "c"]))
        >>> world.chances([0, 1], [2, 1]).round(3).tolist()
        [0.5, 0.0]
        """
        owner = "World.from_matrix"
        if not isinstance(catalogue, Catalogue):
            raise InvalidArgument(owner, "catalogue", "a Catalogue", type(catalogue).__name__)
        try:
            whole = np.ma.filled(np.ma.asarray(rewards, dtype=np.float32), np.nan)  # what is masked is not known
            table = np.array(whole, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(owner, "rewards", "a matrix of numbers", str(error)) from error
        if table.ndim != 2 or table.shape[1] != len(catalogue) or not len(table):
            raise InvalidArgument(owner, "rewards", f"of shape (users, {len(catalogue)})", f"shape {table.shape}")
        unknown = np.isnan(table)
        if not ((table >= 0) & (table <= 1) | unknown).all():
            raise InvalidArgument(owner, "rewards", "from 0 to 1, or NaN where unknown", "others")
        if unknown.mean() > _MOST_UNKNOWN or unknown.all(axis=1).any() or unknown.all(axis=0).any():
            rule = f"known in {1 - _MOST_UNKNOWN:.0%} of the cells, and something of every user and item"
            raise InvalidArgument(owner, "rewards", rule, f"{unknown.mean():.1%} unknown; World.fit learns the rest")
        people, things = np.nanmean(table, axis=1), np.nanmean(table, axis=0)
        guess = np.clip(people[:, None] + things - np.nanmean(table), 0, 1)
        table = np.where(unknown, guess, table).astype(np.float32)
        told = {"kind": "matrix", "unknown": float(unknown.mean()), "treeward": __version__}
        return cls._of_table(table, catalogue, user_ids=user_ids, provenance=told)

    @classmethod
    def _of_table(cls, table: Floats, catalogue: Catalogue, **more: Any) -> Self:
        users, items = table.shape
        nothing = np.zeros((users, 1)), np.zeros((items, 1)), np.zeros(users), np.zeros(items)
        made = cls(catalogue, *nothing, **more)
        made.tastes = frozen(made.tastes._replace(table=np.ascontiguousarray(table)))
        return made

    @classmethod
    @checks.checked()
    def fit(cls, interactions: Interactions, catalogue: Catalogue, *, twin: bool = True, **options: Any) -> Self:
        """Learn a world from a log: logistic factorisation with inverse-propensity weights (needs torch).

        A click counts in inverse proportion to the exposure of its item, so that items that were shown everywhere do
        not look like items that everybody likes. Pairs of a user and an item count once. A tenth of them is held out,
        to stop early, and as evidence of how well the world predicts unseen events: see `fidelity`.

        Parameters
        ----------
        interactions
            The log: a reward above 0 is positive. Rows without a reward are negatives. Where there are fewer than
            `negatives` per positive, more are drawn from items that the user never touched.
        catalogue
            The items, with the vectors that policies see in a simulation.
        twin
            Also fit a world without weights, for comparison in the evidence; this doubles the time.
        options
            dim (32); exposure: ``"auto"``, ``"impressions"`` (how often an item was shown), ``"popularity"`` (rewards
            to the `power`, 0.5), ``"rating"`` (how likely a user is to answer at all, given the answer, by naive Bayes:
            needs `random`), ``"features"`` (the same given features of user and item, by logistic regression: needs
            `user_features`), ``"both"`` (the product of the two), ``"none"`` (no weights), or a function of how often
            each item was shown and rewarded; random: a log of items shown at random, a small one will do: weights by
            rating or features come with its base rate; user_features: a table with a column `user` and numeric columns
            (with either of these two, only the log's own rows without a reward are negatives);
            clip (0.1: no propensity below a tenth of the mean); negatives (4 per positive: they set the base rate);
            decay, rate, passes and patience of the optimiser; seed; device (``"cpu"`` or ``"cuda"``); progress.
        """
        from treeward.simulate.fit import fit

        made = fit(interactions, catalogue, **options)
        world, other = cls._learned(catalogue, made), None
        if twin and made.settings["exposure"] != "none":
            changed = {"exposure": "none", "stage": "fitting without weights"}
            other = cls._learned(catalogue, fit(interactions, catalogue, **{**options, **changed}))
        world.evidence = gather(made, world, other)
        world.provenance |= world.evidence.summary()
        return world

    @classmethod
    def _learned(cls, catalogue: Catalogue, made: "Fitted") -> Self:
        users, items, user_bias, item_bias, losses = made.factors
        told = {**made.settings, "passes": int(np.argmin(losses)), "treeward": __version__}
        return cls(catalogue, users, items, user_bias, item_bias, user_ids=made.users, provenance=told)

    def fidelity(self, users: int = 500, seed: int = 0, *, count: int = LIST) -> "Fidelity":
        """Return how far to trust this world, and how much personalisation can gain in it.

        Parameters
        ----------
        users
            How many users, drawn at random, to compute all probabilities for.
        seed
            Draws the users.
        count
            The k of HR@k and NDCG@k.
        """
        from treeward.simulate.fidelity import fidelity

        return fidelity(self, users, seed, count)

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the world to a directory, checksummed."""
        tables = {"catalogue": self.catalogue.table}
        if self.user_ids is not None:
            tables["people"] = pl.DataFrame({"user": self.user_ids})
        if self.evidence is not None:
            tables |= {name: table for name, table in self.evidence._asdict().items() if table is not None}
        arrays = {**self.tastes._asdict(), "vectors": self.catalogue.vectors}
        artefact.write(
            path, FORMAT, VERSION, artefact.Contents(arrays, tables, {}, self.provenance), overwrite=overwrite
        )

    @classmethod
    def load(cls, path: StrPath, *, verify: bool = True) -> Self:
        """Read what `save` wrote."""
        contents = artefact.read(path, FORMAT, VERSION, verify=verify)
        lacking = {*Tastes._fields, "vectors"} - set(contents.arrays) | {"catalogue"} - set(contents.tables)
        found = {name: contents.tables[name] for name in Evidence._fields if name in contents.tables}
        if lacking or (found and not {"held_out", "exposure"} <= set(found)):
            raise ArtefactCorrupt(f"{path}: lacks {', '.join(sorted(lacking)) or 'half of its evidence'}")
        *tastes, table = (contents.arrays[name] for name in Tastes._fields)
        people = contents.tables.get("people")
        catalogue = Catalogue.of_table(contents.tables["catalogue"], contents.arrays["vectors"])
        made = cls(
            catalogue,
            *tastes,
            user_ids=None if people is None else people["user"],
            provenance=contents.info,
            evidence=Evidence(**found) if found else None,
        )
        if table.shape != (0, 0) and (table.shape != (made.users, len(catalogue)) or np.isnan(table).any()):
            raise ArtefactCorrupt(f"{path}: has a table of shape {table.shape}, or with holes")
        made.tastes = frozen(made.tastes._replace(table=np.ascontiguousarray(table)))
        return made

    @classmethod
    @checks.checked()
    def synthetic(
        cls, items: int = 100_000, users: Count = 1_000, dim: int = 32, seed: int = 0, *, nonlinear: NotNegative = 0.0
    ) -> Self:
        """Return a synthetic world that resembles worlds fitted to public logs (`docs/worlds.md` has the figures).

        Items come in topics, subtopics and families of unequal sizes, and few are popular. Users like three random
        items and their like, some items provoke stronger opinions than others, and 8 directions of taste are hidden
        from policies. The true vectors differ from what policies see: see `simulate/synthetic.py`.

        Parameters
        ----------
        items, users, dim
            How many, and how long the vectors that policies see.
        seed
            Same seed: same world.
        nonlinear
            0: a taste is linear in what policies see and in what is hidden. Above: a world of its own, of tighter
            topics and stronger tastes, not fitted to any log. Likeness falls off with the distance s of two items (at
            length 1) like exp(-(nonlinear * s)^2 / 2), so that no vector a user could have explains what they like; at
            2, a linear function of what policies see explains about 30 % of the true item vectors. The true vectors
            are 64 random Fourier features of that likeness (Rahimi and Recht, 2007).

        Examples
        --------
        >>> world = World.synthetic(items=2_000, users=10, dim=8, seed=1)
        >>> world
        World(10 users, 2,000 items)
        >>> 0.1 < world.base_rate() < 0.2
        True
        """
        told = {"kind": "synthetic", "nonlinear": nonlinear, "seed": seed}
        made = vivid(items, users, dim, seed, nonlinear) if nonlinear else like_logs(items, users, dim, seed)
        return cls(*made, provenance=told)


def _numbers(parameter: str, value: ArrayLike, count: int) -> NDArray[np.int64]:
    made = np.asarray(value)
    if made.ndim != 1 or made.dtype.kind not in "iu" or (len(made) and not 0 <= made.min() <= made.max() < count):
        raise InvalidArgument("World.chances", parameter, f"a list of integers from 0 to {count - 1}", value)
    return made.astype(np.int64)


def _bias(parameter: str, value: ArrayLike, count: int) -> Floats:
    made = np.asarray(value, dtype=np.float32)
    if made.shape != (count,) or not np.isfinite(made).all():
        raise InvalidArgument("World", parameter, f"{count} finite numbers", f"shape {made.shape}")
    return made
