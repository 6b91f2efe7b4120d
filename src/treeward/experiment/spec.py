"""What an experiment is, as data: frozen dataclasses that are read from TOML and written to it."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from treeward.bandit import BANDITS, PopulationPrior
from treeward.bandit.rules import Bandit
from treeward.core import checks
from treeward.core.errors import InvalidArgument
from treeward.data.loaders import find_loader
from treeward.data.synthetic import synthetic_catalogue
from treeward.embed.features import Features
from treeward.experiment.baselines import BASELINES, FORESEEING, Factors
from treeward.learn.next_click import NextClick
from treeward.policy import POLICIES, LogLevel, Policy
from treeward.policy.session import Begins
from treeward.simulate.fit import EXPOSURES
from treeward.tree.item_tree import ItemTree

_EXPANSION = ("q", "p", "authors")

SYNTHETIC = "synthetic"

Value = str | int | float | bool
KINDS: dict[str, type[Policy]] = {**POLICIES, **BASELINES}


class Aids(NamedTuple):
    """What arms may know of training users."""

    prior: PopulationPrior | None = None
    factors: Factors | None = None
    models: Mapping[str, NextClick] = {}
    """Of the next click, by policy."""
    features: Features | None = None
    deep_prior: PopulationPrior | None = None
    """About the features."""

    def told_to(self, baseline: str) -> dict[str, Any]:
        """Return what a baseline goes by."""
        if baseline == "popularity":
            assert self.prior is not None
            return {"scores": self.prior.rates}
        if baseline in FORESEEING:
            return {"model": self.models[baseline]}
        assert self.factors is not None
        if baseline == "mean-user":
            return {"scores": self.factors.items @ self.factors.mean_user}
        return {"factors": self.factors}


@dataclass(frozen=True)
class Arm:
    """One policy with its bandit, as it is to be tried."""

    label: str
    policy: str
    bandit: str = "linucb"
    baseline: bool = False
    """What others are compared with."""
    options: Mapping[str, Value] = field(default_factory=dict)
    """Of the policy; q and p are those of pHCB's expansion. A budget of its own may be among them; 0: everything."""
    bandit_options: Mapping[str, Value] = field(default_factory=dict)
    reward: Literal["", "probability", "click"] = ""
    """If other than the experiment's."""
    prior: bool = False
    """Whether it knows what training users say of new ones, and walks a tree made for that."""
    features: bool = False
    """Whether it learns in features that a network learned from training users, and walks a tree over them."""

    @property
    def kind(self) -> type[Policy]:
        """The policy."""
        return KINDS[checks.one_of(f"arm {self.label!r}", "policy", self.policy, KINDS)]

    @property
    def needs_log(self) -> bool:
        """Whether it must be told something of training users."""
        return self.prior or self.features or self.policy in BASELINES

    @property
    def tree(self) -> str:
        """Which of the experiment's trees it walks."""
        return "-".join(("tree", *("features",) * self.features, *("prior",) * self.prior))

    def build(self, budget: int, aids: Aids | None = None) -> Policy:
        """Return the policy, checked as far as it can be without data; `aids` is what it may know of training users."""
        owner = f"arm {self.label!r}"
        kind, way = self.kind, BANDITS[checks.one_of(owner, "bandit", self.bandit, BANDITS)]
        if self.policy in BASELINES:
            told = {} if aids is None else aids.told_to(self.policy)
            known(owner, "options", self.options, ())
            known(owner, "bandit_options", self.bandit_options, ())
            for name in ("prior", "features"):
                if getattr(self, name):
                    raise InvalidArgument(owner, name, "false: it has no posterior", True)
            return kind(**told)
        bandit: Bandit = way(**known(owner, "bandit_options", self.bandit_options, _names(way)))
        given = {name: value for name, value in self.options.items() if name not in _EXPANSION}
        opening = {name: value for name, value in self.options.items() if name in _EXPANSION}
        made = known(owner, "options", given, _names(kind) - {"bandit", "prior", "features", "expansion"})
        if opening:
            if "expansion" not in _names(kind):
                raise InvalidArgument(owner, "options", "without q and p: the policy opens no nodes", dict(opening))
            made["expansion"] = LogLevel(**opening)  # type: ignore[arg-type]
        bandit.rule(1)
        own = made.pop("budget", budget)
        if aids is not None:
            made["prior"] = (aids.deep_prior if self.features else aids.prior) if self.prior else None
            made["features"] = aids.features if self.features else None
        return kind(bandit, budget=own or None, **made)


@dataclass(frozen=True)
class Spec:
    """An experiment: data, world, tree, arms and how they are tried."""

    name: str
    """What it is: rewards, bases, sensitivity, or your own."""
    data: str
    """A data set as `treeward data inspect` reads it, a saved world, or ``"synthetic"``: a made-up one, for which
    the loader's options are those of `World.synthetic`."""
    arms: tuple[Arm, ...]
    loader: str = ""
    loader_options: Mapping[str, Value] = field(default_factory=dict)
    users: int = 1_000
    """At most so many users of the split."""
    split: Literal["test", "validation"] = "test"
    rounds: int = 2_000
    repeats: int = 10
    """How often, each with a seed of its own."""
    seed: int = 0
    budget: int = 50
    reward: Literal["probability", "click"] = "probability"
    once: bool = False
    dim: int = 64
    """Of item vectors that are made."""
    widths: tuple[int, ...] = ()
    """Of the tree's levels; by default of the catalogue's size."""
    exposure: str = "auto"
    negatives: int = 4
    vectors: Literal["auto", "svd", "gru", "text"] = "auto"
    """Of the items: the data's own, or else by SVD; or as said."""
    start: int = 0
    """How many of their real clicks users begin with; who has no more than that is left out."""
    pick: Literal["random", "diverse"] = "random"
    """Which users: any, or those whose clicks have the highest Gini impurity of categories."""
    judge: bool = False
    """Whether a factorisation is trained on what was collected, and tried on the users' other clicks."""
    shown: int = 0
    """In a world: how many items, drawn from all, each user who is not tried was shown; their clicks and skips are the
    log of training users. 0: there is none."""

    def check(self) -> None:
        """Refuse what cannot be run, before anything is: every arm decides once, over a handful of items."""
        owner = "experiment"
        _typed(asdict(self))
        if not self.arms:
            raise InvalidArgument(owner, "arms", "at least one", "none")
        labels = [arm.label for arm in self.arms]
        if len(set(labels)) != len(labels) or not all(labels):
            raise InvalidArgument(owner, "arms", "labels that are all different and not empty", labels)
        if any(label[0] in "=+-@\t\r" for label in labels):  # report.csv may be opened in a spreadsheet
            raise InvalidArgument(owner, "arms", "labels that do not begin with =, +, - or @", labels)
        for name, low in (("users", 1), ("rounds", 1), ("repeats", 1), ("budget", 1), ("dim", 1), ("negatives", 1)):
            checks.integer(owner, name, getattr(self, name), low=low)
        checks.integer(owner, "rounds", self.rounds, low=1, high=2**31 - 1)
        checks.integer(owner, "seed", self.seed, low=0)
        checks.integer(owner, "start", self.start, low=1 if self.judge else 0)
        checks.integer(owner, "shown", self.shown, low=0)
        checks.one_of(owner, "exposure", self.exposure, EXPOSURES)
        if self.loader and ":" not in self.loader:  # code of one's own runs when it is needed, not when it is named
            find_loader(owner, self.loader)
        shop = synthetic_catalogue(64, dim=4, seed=0)
        tree = ItemTree.build(shop.vectors, (4, 16), seed=0)
        for arm in self.arms:
            session = arm.build(self.budget).session(tree, shop, 1)
            session.select([0], 0)
            if self.start and not isinstance(session, Begins):
                rule = "0: it knows only what it showed itself"
                raise InvalidArgument(f"arm {arm.label!r}", "start", rule, self.start)

    @property
    def digest(self) -> str:
        """Tell this experiment from any other."""
        return sha256(self.to_toml().encode()).hexdigest()

    def to_toml(self) -> str:
        """Return the spec as TOML."""
        told = asdict(self)
        arms = told.pop("arms")
        for name, plain in _LATER.items():  # so that what was run before these came is still the same experiment
            if told[name] == plain:
                del told[name]
        lines = [*_lines(told), ""]
        for arm in arms:
            if not arm["features"]:
                del arm["features"]
            lines += ["[[arms]]", *_lines(arm), ""]
        return "\n".join(lines)

    @classmethod
    def from_toml(cls, text: str) -> "Spec":
        """Read what `to_toml` writes, or what somebody wrote by hand."""
        try:
            told = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidArgument("experiment", "spec", "TOML", str(error)) from error
        given = known("experiment", "spec", told, _names(cls))
        for name in ("name", "data", "arms"):
            if name not in given:
                raise InvalidArgument("experiment", "spec", f"with a key {name!r}", sorted(given))
        if not isinstance(given["arms"], list) or not all(isinstance(arm, dict) for arm in given["arms"]):
            raise InvalidArgument("experiment", "arms", "a list of tables: [[arms]]", given["arms"])
        arms = []
        for arm in given.pop("arms"):
            made = known("arm", "spec", arm, _names(Arm))
            for name in ("label", "policy"):
                if name not in made:
                    raise InvalidArgument("arm", "spec", f"with a key {name!r}", sorted(made))
            arms.append(made)
        return _typed({**given, "arms": arms})


VECTORS, PICKS = ("auto", "svd", "gru", "text"), ("random", "diverse")
_LATER = {one.name: one.default for one in fields(Spec) if one.name in ("vectors", "start", "pick", "judge", "shown")}


def known(owner: str, parameter: str, given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a mapping all of whose keys have a meaning."""
    for name in given:
        checks.one_of(owner, parameter, name, sorted(names))
    return dict(given)


def _typed(told: dict[str, Any]) -> Spec:
    """Return a spec, if everything in it is of its type."""
    for held in (told, *told["arms"]):
        if held.get("reward"):
            checks.one_of("experiment", "reward", held["reward"], ("probability", "click"))
    choices = {
        "split": ("test", "validation"),
        "vectors": ("auto", "svd", "gru", "text"),
        "pick": ("random", "diverse"),
    }
    for name, words in choices.items():
        if name in told:
            checks.one_of("experiment", name, told[name], words)
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
