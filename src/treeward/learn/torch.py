"""The one door to torch."""

import os
from importlib import import_module
from types import ModuleType

from treeward.core.errors import TreewardError


class TorchMissing(TreewardError, ImportError):
    """Something was to be trained, and torch is not installed."""


def torch_for(what: str) -> ModuleType:
    """Return torch, or say how to get it."""
    # Waiting threads of OpenMP would spin: on a busy machine a fit then takes fifty times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return import_module("torch")
    except ImportError as error:
        raise TorchMissing(f"{what} needs torch: pip install 'treeward[train]'") from error
