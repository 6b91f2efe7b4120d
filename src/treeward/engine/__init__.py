"""Every compiled kernel of deciding and learning. Settings and fitting are in `treeward.bandit`, `treeward.policy`."""
