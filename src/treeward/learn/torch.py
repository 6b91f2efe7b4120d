"""The one door to torch."""

from importlib import import_module
from types import ModuleType

from treeward.core.errors import TreewardError


class TorchMissing(TreewardError, ImportError):
    """Something was to be trained, and torch is not installed."""


def torch_for(what: str) -> ModuleType:
    """Return torch, or say how to get it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise TorchMissing(f"{what} needs torch: pip install 'treeward[train]'") from error
