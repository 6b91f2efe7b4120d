"""When training stops, and which device is used."""

import sys

import pytest

from treeward.core.errors import InvalidArgument
from treeward.core.progress import Stage
from treeward.learn.torch import TorchMissing, device_for, torch_for, train_until_stable


def trained(losses, *, passes=10, patience=2):
    """Train a model whose losses are given; its copy is the number of passes it has had."""
    done, steps = [], []
    stage = Stage(lambda *step: steps.append(step), "t", passes)
    best, found = train_until_stable(
        done.append, lambda: losses[len(done)], lambda: len(done), passes=passes, patience=patience,
        needed=lambda lowest: 0.9 * lowest, rate=0.5, owner="test", stage=stage,
    )  # fmt: skip
    return best, found, steps


def test_training_stops_after_passes_without_enough_improvement():
    best, losses, steps = trained([1.0, 0.5, 0.48, 0.47, 0.1])
    assert losses == [1.0, 0.5, 0.48, 0.47]
    assert best == 3  # the lowest loss, although it was no improvement that counts
    assert steps[-1] == ("t", 3, 3)


def test_an_improvement_restarts_the_patience():
    best, losses, _ = trained([1.0, 1.1, 0.5, 0.6, 0.4, 0.4, 0.4])
    assert len(losses) == 7
    assert best == 4


def test_training_ends_with_the_last_pass():
    assert trained([4.0, 3.0, 2.0], passes=2)[:2] == (2, [4.0, 3.0, 2.0])


def test_the_first_state_is_kept_if_training_only_hurts():
    assert trained([1.0, 2.0, 3.0])[0] == 0


def test_divergence_names_the_rate():
    with pytest.raises(InvalidArgument, match=r"test: rate must be small enough to converge, got 0\.5"):
        trained([1.0, float("nan")])


def test_a_device_that_torch_lacks_is_refused():
    torch = torch_for("test")
    assert device_for("test", torch, "cpu").type == "cpu"
    with pytest.raises(InvalidArgument, match="device must be one that torch has here"):
        device_for("test", torch, "no such device")


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TorchMissing, match="pip install 'treeward.train.'"):
        torch_for("test")
