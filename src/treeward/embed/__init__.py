"""Item vectors from what is at hand. Text and behaviour models need the extra `train`; `svd` needs nothing."""

from treeward.embed.svd import svd_vectors

__all__ = ["svd_vectors"]
