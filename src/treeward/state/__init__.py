"""Events to a policy's arrays, by replay: the bounded cache of users' state."""

from treeward.state.seats import Seats

__all__ = ["Seats"]
