"""How torch is imported, which device it uses, and when training stops."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from treeward.core.errors import ExtraMissing, InvalidArgument
from treeward.core.progress import Stage

Trained = TypeVar("Trained")


class TorchMissing(ExtraMissing):
    """torch is needed, and is not installed."""


def torch_for(what: str) -> ModuleType:
    """Return torch, or raise an error that says how to install it."""
    # By default, waiting OpenMP threads spin. On a busy machine a fit then takes fifty times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return import_module("torch")
    except ImportError as error:
        raise TorchMissing.of(what, "torch", "train") from error


def require_torch(what: str) -> None:
    """Raise an error that says how to install torch, if it is not; do not import it."""
    if find_spec("torch") is None:
        raise TorchMissing.of(what, "torch", "train")


def usual_device() -> str:
    """Return ``"cuda"`` if there is a GPU, else ``"cpu"``."""
    return "cuda" if torch_for("training").cuda.is_available() else "cpu"


def device_for(owner: str, torch: Any, device: str) -> Any:
    """Return a device that works on this machine; ``"auto"`` is the GPU if there is one."""
    name = usual_device() if device == "auto" else device
    try:
        torch.zeros(1, device=name).cpu()
        return torch.device(name)
    except (AssertionError, RuntimeError, TypeError, NotImplementedError) as error:
        raise InvalidArgument(owner, "device", "one that torch has here, such as cpu", device) from error


@contextmanager
def one_thread(torch: Any) -> Iterator[None]:
    """Let torch compute on one thread: sums then have the same order however many threads it has otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_until_stable(
    train_pass: Callable[[int], None],
    validate: Callable[[], float],
    copy: Callable[[], Trained],
    *,
    passes: int,
    patience: int,
    needed: Callable[[float], float],
    rate: float,
    owner: str,
    stage: Stage,
) -> tuple[Trained, list[float]]:
    """Train until the validation loss has hardly improved for `patience` passes; return the best copy and all losses.

    A loss below `needed(lowest loss so far)` is an improvement. If training diverges, the error names `rate`.
    """
    losses, best, waited = [validate()], copy(), 0
    for turn in range(passes):
        train_pass(turn)
        lowest, loss = min(losses), validate()
        losses.append(loss)
        stage.step()
        if not np.isfinite(loss):
            raise InvalidArgument(owner, "rate", "small enough to converge", rate)
        waited = 0 if loss < needed(lowest) else waited + 1
        if loss < lowest:
            best = copy()
        if waited >= patience:
            break
    stage.finish()
    return best, losses
