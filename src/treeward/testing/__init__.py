"""Contract checks: what every bandit, policy, loader and store promises. Run them on your own.

A check raises `ContractBroken` with the promise that is broken. treeward's own classes pass the same checks::

    from treeward.testing import check_policy

    def test_my_policy_keeps_its_promises():
        check_policy(MyPolicy())
"""

from treeward.testing.contract import ContractBroken
from treeward.testing.loader_contract import check_loader
from treeward.testing.policy_contract import check_bandit, check_policy
from treeward.testing.store_contract import check_store

__all__ = ["ContractBroken", "check_bandit", "check_loader", "check_policy", "check_store"]
