"""The spec of an experiment: frozen dataclasses that are read from TOML and written to it."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from treeward.bandit import Crowd, bandit_named
from treeward.bandit.rules import Bandit
from treeward.core import checks
from treeward.core.checks import Count, Natural, NotNegative, Seed, Whole
from treeward.core.errors import InvalidArgument
from treeward.core.registry import code_digest, is_own, make
from treeward.data.loaders import find_loader
from treeward.data.synthetic import synthetic_catalogue
from treeward.embed.features import Features
from treeward.experiment.baselines import BASELINES, NEXT_CLICK_MODELS, Factors
from treeward.learn.next_click import NextClick
from treeward.policy import POLICIES, LogThreshold, Policy, policy_named
from treeward.policy.session import Begins
from treeward.tree.item_tree import ItemTree

_EXPANSION = ("q", "p", "authors")

SYNTHETIC = "synthetic"

Value = str | int | float | bool
KINDS: dict[str, type[Policy]] = {**POLICIES, **BASELINES}


class TrainedParts(NamedTuple):
    """What was learned from training users, for the arms that may know it."""

    prior: Crowd | None = None
    factors: Factors | None = None
    models: Mapping[str, NextClick] = {}
    """Of the next click, by policy."""
    features: Features | None = None
    deep_prior: Crowd | None = None
    """About the features."""

    def arguments_of(self, baseline: str) -> dict[str, Any]:
        """Return the arguments of a baseline."""
        if baseline == "popularity":
            assert self.prior is not None
            return {"scores": self.prior.rates}
        if baseline in NEXT_CLICK_MODELS:
            return {"model": self.models[baseline]}
        assert self.factors is not None
        if baseline == "mean-user":
            return {"scores": self.factors.items @ self.factors.mean_user}
        return {"factors": self.factors}


@dataclass(frozen=True)
class Arm:
    """One policy with its bandit, to be compared with others."""

    label: str
    policy: str
    """A name, or a class of your own: ``file.py:Class``, whose file is executed. A bandit likewise."""
    bandit: str = "linucb"
    baseline: bool = False
    """Whether other arms are compared with it."""
    options: Mapping[str, Value] = field(default_factory=dict)
    """Of the policy; q and p are those of pHCB's expansion. A budget of its own may be among them; 0: everything."""
    bandit_options: Mapping[str, Value] = field(default_factory=dict)
    reward: Literal["", "probability", "click"] = ""
    """If it differs from the experiment's."""
    prior: bool = False
    """Whether it has a prior learned from training users, and walks a tree built for that."""
    features: bool = False
    """Whether it uses features that a network learned from training users, and walks a tree over them."""

    @property
    def kind(self) -> type[Policy]:
        """The policy."""
        return policy_named(f"arm {self.label!r}", "policy", self.policy, KINDS)

    @property
    def own(self) -> bool:
        """Whether the policy is code of the user, about which nothing is known."""
        return is_own(self.policy)

    @property
    def code(self) -> str:
        """The SHA-256 of the user's files it consists of, if any; results of other code do not count."""
        return code_digest(self.policy, self.bandit)

    @property
    def needs_log(self) -> bool:
        """Whether it needs something that is learned from training users."""
        return self.prior or self.features or self.policy in BASELINES

    @property
    def tree(self) -> str:
        """Which of the experiment's trees it walks."""
        return "-".join(("tree", *("features",) * self.features, *("prior",) * self.prior))

    def build(
        self, budget: int, trained: TrainedParts | None = None, nodes: Literal["unit", "mean"] = "unit"
    ) -> Policy:
        """Return the policy, checked as far as it can be without data; `Spec.policy` gives it the spec's options.

        `trained` is what it may know of training users, `nodes` the length of node vectors where it scores nodes.
        """
        owner = f"arm {self.label!r}"
        kind, way = self.kind, bandit_named(owner, "bandit", self.bandit)
        if self.policy in BASELINES:
            told = {} if trained is None else trained.arguments_of(self.policy)
            known(owner, "options", self.options, ())
            known(owner, "bandit_options", self.bandit_options, ())
            for name in ("prior", "features"):
                if getattr(self, name):
                    raise InvalidArgument(owner, name, "false: it has no posterior", True)
            return kind(**told)
        chosen = known(owner, "bandit_options", self.bandit_options, signature(way).parameters)
        bandit: Bandit = make(owner, "bandit", self.bandit, way, **chosen)
        given = {name: value for name, value in self.options.items() if name not in _EXPANSION}
        opening = {name: value for name, value in self.options.items() if name in _EXPANSION}
        takes = set(signature(kind).parameters)
        made = known(owner, "options", given, takes - {"bandit", "prior", "features", "expansion"})
        if opening:
            if "expansion" not in takes:
                raise InvalidArgument(owner, "options", "without q and p: the policy opens no nodes", dict(opening))
            made["expansion"] = LogThreshold(**opening)  # type: ignore[arg-type]
        bandit.rule(1)
        own = made.pop("budget", budget)
        if kind.node_vectors == "unit":  # a policy that scores nodes: others have no choice
            made.setdefault("node_vectors", nodes)
        if trained is not None:
            made["prior"] = (trained.deep_prior if self.features else trained.prior) if self.prior else None
            made["features"] = trained.features if self.features else None
        policy: Policy = make(owner, "policy", self.policy, kind, bandit, budget=own or None, **made)
        return policy


@dataclass(frozen=True)
class Judge:
    """A factorisation that learns from what an arm collected, and is tested on the users' other clicks."""

    label: str
    biases: bool = False
    """False: P(click) = sigmoid(u'v), as in the paper. True: also a bias per user and per item, and a base rate."""
    negatives: Count = 4
    """Non-clicks per click of training users: logged skips, and drawn items where the log has too few."""
    decay: NotNegative = 0.02
    """How strongly vectors are pulled towards zero; see `learn.factorise`."""


@dataclass(frozen=True)
class Spec:
    """An experiment: data, world, tree, arms and how they are tried."""

    name: str
    """What it is: rewards, bases, sensitivity, or your own."""
    data: str
    """A data set as `treeward data inspect` reads it, a saved world, or ``"synthetic"``, for which the loader's options
    are those of `World.synthetic`."""
    arms: tuple[Arm, ...]
    loader: str = ""
    loader_options: Mapping[str, Value | Mapping[str, Value]] = field(default_factory=dict)
    users: Count = 1_000
    """At most this many users."""
    split: Literal["test", "validation"] = "test"
    rounds: Annotated[int, Whole(1, 2**31 - 1)] = 2_000
    """Recommendations per user."""
    repeats: Count = 10
    """Repeats of every arm, each with its own seed."""
    worlds: Count = 1
    """How many worlds are fitted to the log, each with other draws; all repeats run in each of them."""
    seed: Seed = 0
    """Every random choice comes from this seed."""
    budget: Count = 50
    """Score computations per round."""
    reward: Literal["probability", "click"] = "probability"
    """What an item earns: the probability of a click, or a click drawn with it."""
    once: bool = False
    """Show each item at most once to a user."""
    dim: Count = 64
    """Dimensions of item vectors that are made."""
    widths: tuple[int, ...] = ()
    """Nodes per level of the tree; by default chosen by the catalogue's size."""
    nodes: Literal["unit", "mean"] = "unit"
    """Node vectors of arms that score nodes: scaled to length 1 (the paper), or plain means (its authors' code)."""
    exposure: Literal["auto", "impressions", "popularity", "none"] = "auto"
    negatives: Count = 4
    vectors: str = "auto"
    """Item vectors: auto (the data's own, else svd), svd, gru, text, text-gru, or the path of a saved catalogue."""
    start: Natural = 0
    """How many of their real clicks users begin with; users with too few are left out."""
    pick: Literal["random", "diverse"] = "random"
    """Which users: any, or those whose clicks have the highest Gini impurity of categories."""
    judges: tuple[Judge, ...] = ()
    """Factorisations that are trained on what was collected; the first is the one that claims are about."""
    samples: Literal["auto", "impressions", "drawn"] = "auto"
    """What judges are tested on: the users' impressions with their real skips, or their other clicks and as many items
    drawn from those they never clicked; by default impressions where the log has them."""
    shown: Natural = 0
    """In a world: how many random items each training user was shown; their clicks and skips are the log. 0: there is
    no log."""

    def check(self) -> None:
        """Refuse what cannot be run, before anything runs: every arm decides once, over a handful of items."""
        owner = "experiment"
        _typed(asdict(self))
        if not self.arms:
            raise InvalidArgument(owner, "arms", "at least one", "none")
        labels = [arm.label for arm in self.arms]
        if len(set(labels)) != len(labels) or not all(labels):
            raise InvalidArgument(owner, "arms", "labels that are all different and not empty", labels)
        if any(label[0] in "=+-@\t\r" for label in labels):  # report.csv may be opened in a spreadsheet
            raise InvalidArgument(owner, "arms", "labels that do not begin with =, +, - or @", labels)
        checks.validate(self, owner)
        if self.judges:
            checks.integer(owner, "start", self.start, low=1)
        self._check_judges(owner)
        _check_vectors(owner, self.vectors)
        if self.loader and ":" not in self.loader:  # code of the user runs when it is needed, not when it is named
            find_loader(owner, self.loader)
        shop = synthetic_catalogue(64, dim=4, seed=0)
        tree = ItemTree.build(shop.vectors, (4, 16), seed=0)
        for arm in self.arms:
            session = self.policy(arm).session(tree, shop, 1)
            session.select([0], 0)
            if self.start and not isinstance(session, Begins):
                rule = "0: it learns only from what it showed itself"
                raise InvalidArgument(f"arm {arm.label!r}", "start", rule, self.start)

    def _check_judges(self, owner: str) -> None:
        labels = [judge.label for judge in self.judges]
        if len(set(labels)) != len(labels) or not all(labels):
            raise InvalidArgument(owner, "judges", "labels that are all different and not empty", labels)
        for judge in self.judges:
            checks.validate(judge, f"judge {judge.label!r}")
            if not isinstance(judge.decay, float):  # or its digest would differ from that of what TOML gives back
                raise InvalidArgument(f"judge {judge.label!r}", "decay", "a float", judge.decay)

    def policy(self, arm: Arm, trained: TrainedParts | None = None) -> Policy:
        """Return an arm's policy under this experiment's budget and node vectors."""
        return arm.build(self.budget, trained, self.nodes)

    @property
    def runs(self) -> int:
        """How often every arm is run: the repeats of all worlds."""
        return self.repeats * self.worlds

    @property
    def digest(self) -> str:
        """What distinguishes this experiment from any other."""
        return sha256(self.to_toml().encode()).hexdigest()

    def differences(self, other: "Spec", names: Iterable[str] | None = None) -> list[str]:
        """Return the fields that differ from another spec, with both values; arms and judges by their labels."""
        found = []
        for name in [one.name for one in fields(self)] if names is None else names:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                if name in ("arms", "judges"):
                    mine, theirs = ([one.label for one in some] for some in (mine, theirs))
                both = f"{theirs!r} there, {mine!r} here" if mine != theirs else "other options"
                found.append(f"{name} ({both})")
        return found

    def to_toml(self) -> str:
        """Return the spec as TOML."""
        told = asdict(self)
        tables = {name: told.pop(name) for name in ("judges", "arms")}
        lines = [*_lines(told), ""]
        for name, rows in tables.items():
            for row in rows:
                lines += [f"[[{name}]]", *_lines(row), ""]
        return "\n".join(lines)

    @classmethod
    def from_toml(cls, text: str) -> "Spec":
        """Read what `to_toml` writes, or a spec written by hand."""
        try:
            told = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidArgument("experiment", "spec", "TOML", str(error)) from error
        given = known("experiment", "spec", told, _names(cls))
        for name in ("name", "data", "arms"):
            if name not in given:
                raise InvalidArgument("experiment", "spec", f"with a key {name!r}", sorted(given))
        given["arms"] = _tables(given["arms"], "arms", Arm, ("label", "policy"))
        given["judges"] = _tables(given.get("judges", []), "judges", Judge, ("label",))
        return _typed(given)


def _tables(given: Any, name: str, kind: type, needed: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the tables of a spec's arms or judges; refuse unknown keys."""
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidArgument("experiment", name, f"a list of tables: [[{name}]]", given)
    owner, made = name.removesuffix("s"), []
    for one in given:
        made.append(known(owner, "spec", one, _names(kind)))
        for key in needed:
            if key not in one:
                raise InvalidArgument(owner, "spec", f"with a key {key!r}", sorted(one))
    return made


VECTORS = ("auto", "svd", "gru", "text", "text-gru")


def _check_vectors(owner: str, vectors: str) -> None:
    if vectors not in VECTORS and not Path(vectors).exists():
        rule = f"one of {', '.join(VECTORS)}, or the path of a saved catalogue"
        raise InvalidArgument(owner, "vectors", rule, vectors)


def known(owner: str, parameter: str, given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a mapping; refuse unknown keys."""
    for name in given:
        checks.one_of(owner, parameter, name, sorted(names))
    return dict(given)


def _typed(told: dict[str, Any]) -> Spec:
    """Return a spec; refuse values of another type."""
    for arm in told["arms"]:
        checks.choices("experiment", arm, Arm)
    checks.choices("experiment", told, Spec)
    return checks.typed("experiment", "spec", told, Spec)


def _names(kind: type) -> set[str]:
    return {one.name for one in fields(kind)}


def _lines(told: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_written(value)}" for name, value in told.items()]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_written(name)} = {_written(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(one) for one in value) + "]"
    return repr(value)
