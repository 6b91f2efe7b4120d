"""treeward: contextual bandits that explore an entire item catalogue.

Items are clustered bottom-up into a tree (`ItemTree`); a bandit walks it for each user.

Names are imported on first use, so that ``import treeward`` costs almost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from treeward.core.version import __version__ as __version__

if TYPE_CHECKING:
    from treeward.core.errors import ArtefactError as ArtefactError
    from treeward.core.errors import DataError as DataError
    from treeward.core.errors import InvalidArgument as InvalidArgument
    from treeward.core.errors import TreewardError as TreewardError
    from treeward.core.errors import UnknownId as UnknownId
    from treeward.data.catalogue import Catalogue as Catalogue
    from treeward.data.interactions import Interactions as Interactions
    from treeward.tree.item_tree import ItemTree as ItemTree

_HOME = {
    "ArtefactError": "treeward.core.errors",
    "Catalogue": "treeward.data.catalogue",
    "DataError": "treeward.core.errors",
    "Interactions": "treeward.data.interactions",
    "InvalidArgument": "treeward.core.errors",
    "ItemTree": "treeward.tree.item_tree",
    "TreewardError": "treeward.core.errors",
    "UnknownId": "treeward.core.errors",
}

__all__ = [
    "ArtefactError",
    "Catalogue",
    "DataError",
    "Interactions",
    "InvalidArgument",
    "ItemTree",
    "TreewardError",
    "UnknownId",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'treeward' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
