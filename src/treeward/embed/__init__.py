"""Item vectors from clicks, texts or attributes. `gru` and sentence models need the extra `train`."""

from treeward.embed.attributes import attribute_vectors
from treeward.embed.gru import Tuned, gru_vectors, text_gru_vectors
from treeward.embed.svd import svd_vectors
from treeward.embed.text import text_vectors

__all__ = ["Tuned", "attribute_vectors", "gru_vectors", "svd_vectors", "text_gru_vectors", "text_vectors"]
