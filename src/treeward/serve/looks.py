"""What the page reads: parts of the tree, of a user's field, of lists; nothing here changes anything."""

from msgspec import UnsetType

from treeward.core.version import __version__
from treeward.explorer import records
from treeward.serve import sights, wire
from treeward.serve.crowd import crowd_view
from treeward.serve.service import Service
from treeward.store.base import User


class Looks:
    """Reads a service's explorer.

    Parameters
    ----------
    service
        Which.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._explorer = service, service.explorer

    def about(self, role: str) -> sights.About:
        """Return what is served, and how."""
        inspect, settings = self._explorer.inspect, self._service.settings
        shop, tree = inspect.catalogue, inspect.tree
        return sights.About(
            __version__, len(inspect), shop.dim, int(tree.level[-1]), len(tree.parent), shop.titles is not None,
            self._explorer.policy.name, settings.policy == "phcb", settings.mode, settings.holdout,
            settings.reward_low, settings.reward_high, role,
        )  # fmt: skip

    def map(self, node: int) -> records.NodeMap:
        """Return a node and what is worth drawing below it."""
        return self._explorer.inspect.map(node)

    def items(self, node: int, part: sights.Slice) -> records.ItemList:
        """Return some of the items under a node."""
        return self._explorer.inspect.items(node, after=part.after, n=part.n)

    def children(self, node: int, part: sights.Slice) -> records.NodeList:
        """Return some of a node's children, the largest first."""
        return self._explorer.inspect.children(node, after=part.after, n=part.n)

    def field(self, user: User, when: sights.When) -> records.Field:
        """Return what was known of a user's interests."""
        upto = None if isinstance(when.upto, UnsetType) else min(when.upto, self._explorer.store.counts([user])[0])
        return self._explorer.inspect.field(user, node=when.node, upto=upto)

    def crowd(self) -> wire.CrowdView:
        """Return what everybody taught so far."""
        return crowd_view(self._explorer, self._service.publisher)

    def find(self, what: sights.Find) -> records.Found:
        """Return items by id or title, and nodes by name."""
        return self._explorer.inspect.find(what.q, what.n)

    def users(self, what: sights.Find) -> records.UserList:
        """Return some users whose name contains a text, the most recently active first."""
        return self._explorer.inspect.find_users(what.q, what.n)

    def explain(self, decision: str) -> records.Explanation:
        """Return how a decision was made."""
        return self._explorer.explain(decision)
