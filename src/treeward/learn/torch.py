"""The one door to torch."""

import os
from importlib import import_module
from types import ModuleType
from typing import Any

from treeward.core.errors import ExtraMissing, InvalidArgument


class TorchMissing(ExtraMissing):
    """Something was to be trained, and torch is not installed."""


def torch_for(what: str) -> ModuleType:
    """Return torch, or say how to get it."""
    # Waiting threads of OpenMP would spin: on a busy machine a fit then takes fifty times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return import_module("torch")
    except ImportError as error:
        raise TorchMissing.of(what, "torch", "train") from error


def usual_device() -> str:
    """Return the GPU if there is one."""
    return "cuda" if torch_for("training").cuda.is_available() else "cpu"


def device_for(owner: str, torch: Any, device: str) -> Any:
    """Return a device that works here; `auto` is the GPU if there is one."""
    name = usual_device() if device == "auto" else device
    try:
        torch.zeros(1, device=name).cpu()
        return torch.device(name)
    except (AssertionError, RuntimeError, TypeError, NotImplementedError) as error:
        raise InvalidArgument(owner, "device", "one that torch has here, such as cpu", device) from error
