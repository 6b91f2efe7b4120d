"""Recommend and feedback: a policy, the state of users and a store of events behind one class."""

from treeward.explorer.explorer import Explorer
from treeward.explorer.records import Decision, Explanation, Interest

__all__ = ["Decision", "Explanation", "Explorer", "Interest"]
