"""Contract checks: what every bandit, policy, loader and store promises, to run on one of your own.

Each returns nothing, or raises `ContractBroken` with what is wrong. treeward runs them on everything it registers::

    from treeward.testing import check_policy

    def test_my_policy_keeps_its_promises():
        check_policy(MyPolicy())
"""

from treeward.testing.contract import ContractBroken
from treeward.testing.deciding import check_bandit, check_policy
from treeward.testing.stores import check_store
from treeward.testing.reading import check_loader

__all__ = ["ContractBroken", "check_bandit", "check_loader", "check_policy", "check_store"]
