"""treeward: contextual bandits that explore an entire item catalogue.

Items are clustered bottom-up into a tree (`ItemTree`); a policy (`Beam`, `HCB`, `PHCB`, ...) searches it for each user
with a bandit (`LinUCB`, `Thompson`, `EpsilonGreedy`); an `Explorer` recommends with it and learns, and `simulate` tries
it in a `World`.

Names are imported on first use, so that ``import treeward`` costs almost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from treeward.core.version import __version__ as __version__

if TYPE_CHECKING:
    from treeward.bandit.crowd import Crowd as Crowd
    from treeward.bandit.prior import Prior as Prior
    from treeward.bandit.rules import EpsilonGreedy as EpsilonGreedy
    from treeward.bandit.rules import LinUCB as LinUCB
    from treeward.bandit.rules import Thompson as Thompson
    from treeward.core.errors import ArtefactError as ArtefactError
    from treeward.core.errors import DataError as DataError
    from treeward.core.errors import FeedbackConflict as FeedbackConflict
    from treeward.core.errors import InvalidArgument as InvalidArgument
    from treeward.core.errors import NothingLeft as NothingLeft
    from treeward.core.errors import TreewardError as TreewardError
    from treeward.core.errors import UnknownDecision as UnknownDecision
    from treeward.core.errors import UnknownId as UnknownId
    from treeward.data.catalogue import Catalogue as Catalogue
    from treeward.data.interactions import Interactions as Interactions
    from treeward.data.loaders import load_dataset as load_dataset
    from treeward.data.open_bandit import write_open_bandit as write_open_bandit
    from treeward.embed.attributes import attribute_vectors as attribute_vectors
    from treeward.embed.crossed import Crossed as Crossed
    from treeward.embed.features import Features as Features
    from treeward.embed.features import load_features as load_features
    from treeward.embed.fold import fold_in as fold_in
    from treeward.embed.gru import gru_vectors as gru_vectors
    from treeward.embed.gru import text_gru_vectors as text_gru_vectors
    from treeward.embed.neural import NeuralLinear as NeuralLinear
    from treeward.embed.svd import svd_vectors as svd_vectors
    from treeward.embed.text import text_vectors as text_vectors
    from treeward.explorer.explorer import Explorer as Explorer
    from treeward.explorer.records import Decision as Decision
    from treeward.learn.next_click import NextClick as NextClick
    from treeward.policy.baselines.context_free import ContextFree as ContextFree
    from treeward.policy.baselines.conucb import ConUCB as ConUCB
    from treeward.policy.baselines.diag_linucb import DiagLinUCB as DiagLinUCB
    from treeward.policy.baselines.enr import ENR as ENR
    from treeward.policy.baselines.hmab import HMAB as HMAB
    from treeward.policy.baselines.ictr import ICTR as ICTR
    from treeward.policy.baselines.mips import MIPS as MIPS
    from treeward.policy.baselines.spanner import SpannerGreedy as SpannerGreedy
    from treeward.policy.baselines.spanner import SpannerIGW as SpannerIGW
    from treeward.policy.baselines.xcb import XCB as XCB
    from treeward.policy.beam import Beam as Beam
    from treeward.policy.hcb import HCB as HCB
    from treeward.policy.hcb import CBCategory as CBCategory
    from treeward.policy.hcb import CBLeaf as CBLeaf
    from treeward.policy.hcb import Flat as Flat
    from treeward.policy.phcb import PHCB as PHCB
    from treeward.policy.phcb import LogThreshold as LogThreshold
    from treeward.simulate.off_policy import off_policy as off_policy
    from treeward.simulate.prior_trial import try_prior as try_prior
    from treeward.simulate.random_log import random_log as random_log
    from treeward.simulate.replay import replay as replay
    from treeward.simulate.run import simulate as simulate
    from treeward.simulate.world import World as World
    from treeward.store.memory import MemoryStore as MemoryStore
    from treeward.store.postgres import PostgresStore as PostgresStore
    from treeward.store.sqlite import SQLiteStore as SQLiteStore
    from treeward.tree.item_tree import ItemTree as ItemTree

_HOME = {
    "ArtefactError": "treeward.core.errors",
    "Beam": "treeward.policy.beam",
    "CBCategory": "treeward.policy.hcb",
    "CBLeaf": "treeward.policy.hcb",
    "Catalogue": "treeward.data.catalogue",
    "ConUCB": "treeward.policy.baselines.conucb",
    "ContextFree": "treeward.policy.baselines.context_free",
    "Crossed": "treeward.embed.crossed",
    "Crowd": "treeward.bandit.crowd",
    "DataError": "treeward.core.errors",
    "Decision": "treeward.explorer.records",
    "DiagLinUCB": "treeward.policy.baselines.diag_linucb",
    "ENR": "treeward.policy.baselines.enr",
    "EpsilonGreedy": "treeward.bandit.rules",
    "Explorer": "treeward.explorer.explorer",
    "Features": "treeward.embed.features",
    "FeedbackConflict": "treeward.core.errors",
    "Flat": "treeward.policy.hcb",
    "HCB": "treeward.policy.hcb",
    "HMAB": "treeward.policy.baselines.hmab",
    "ICTR": "treeward.policy.baselines.ictr",
    "Interactions": "treeward.data.interactions",
    "InvalidArgument": "treeward.core.errors",
    "ItemTree": "treeward.tree.item_tree",
    "LinUCB": "treeward.bandit.rules",
    "LogThreshold": "treeward.policy.phcb",
    "MIPS": "treeward.policy.baselines.mips",
    "MemoryStore": "treeward.store.memory",
    "NeuralLinear": "treeward.embed.neural",
    "NextClick": "treeward.learn.next_click",
    "NothingLeft": "treeward.core.errors",
    "PHCB": "treeward.policy.phcb",
    "PostgresStore": "treeward.store.postgres",
    "Prior": "treeward.bandit.prior",
    "SQLiteStore": "treeward.store.sqlite",
    "SpannerGreedy": "treeward.policy.baselines.spanner",
    "SpannerIGW": "treeward.policy.baselines.spanner",
    "Thompson": "treeward.bandit.rules",
    "TreewardError": "treeward.core.errors",
    "UnknownDecision": "treeward.core.errors",
    "UnknownId": "treeward.core.errors",
    "World": "treeward.simulate.world",
    "XCB": "treeward.policy.baselines.xcb",
    "attribute_vectors": "treeward.embed.attributes",
    "fold_in": "treeward.embed.fold",
    "gru_vectors": "treeward.embed.gru",
    "load_dataset": "treeward.data.loaders",
    "load_features": "treeward.embed.features",
    "off_policy": "treeward.simulate.off_policy",
    "random_log": "treeward.simulate.random_log",
    "replay": "treeward.simulate.replay",
    "simulate": "treeward.simulate.run",
    "svd_vectors": "treeward.embed.svd",
    "text_gru_vectors": "treeward.embed.gru",
    "text_vectors": "treeward.embed.text",
    "try_prior": "treeward.simulate.prior_trial",
    "write_open_bandit": "treeward.data.open_bandit",
}

__all__ = [
    "ENR",
    "HCB",
    "HMAB",
    "ICTR",
    "MIPS",
    "PHCB",
    "XCB",
    "ArtefactError",
    "Beam",
    "CBCategory",
    "CBLeaf",
    "Catalogue",
    "ConUCB",
    "ContextFree",
    "Crossed",
    "Crowd",
    "DataError",
    "Decision",
    "DiagLinUCB",
    "EpsilonGreedy",
    "Explorer",
    "Features",
    "FeedbackConflict",
    "Flat",
    "Interactions",
    "InvalidArgument",
    "ItemTree",
    "LinUCB",
    "LogThreshold",
    "MemoryStore",
    "NeuralLinear",
    "NextClick",
    "NothingLeft",
    "PostgresStore",
    "Prior",
    "SQLiteStore",
    "SpannerGreedy",
    "SpannerIGW",
    "Thompson",
    "TreewardError",
    "UnknownDecision",
    "UnknownId",
    "World",
    "attribute_vectors",
    "fold_in",
    "gru_vectors",
    "load_dataset",
    "load_features",
    "off_policy",
    "random_log",
    "replay",
    "simulate",
    "svd_vectors",
    "text_gru_vectors",
    "text_vectors",
    "try_prior",
    "write_open_bandit",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'treeward' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
