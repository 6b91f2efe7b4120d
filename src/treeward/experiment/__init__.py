"""Experiments: the paper's tables and figures on any data, as specs that can be resumed and reported."""

from treeward.experiment.run import Outcome, load, run
from treeward.experiment.spec import Arm, Spec

__all__ = ["Arm", "Outcome", "Spec", "load", "run"]
