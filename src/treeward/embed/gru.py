"""Item vectors tuned by a recurrent model of users' next clicks (needs torch)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from treeward.core import checks, rng
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, Seed
from treeward.core.progress import Progress
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.data.interactions import Interactions
from treeward.embed.decompose import principal_components
from treeward.embed.sentences import PACKAGE
from treeward.embed.svd import svd_vectors
from treeward.embed.text import text_vectors
from treeward.learn.clicks import clicks_of
from treeward.learn.next_click import NextClick, Settings
from treeward.learn.torch import torch_for


class Tuned(NamedTuple):
    """Items with their new vectors, and the model that was trained with them."""

    catalogue: Catalogue
    model: NextClick


@checks.checked()
def gru_vectors(
    train: Interactions,
    valid: Interactions,
    catalogue: Catalogue,
    dim: Count = 64,
    *,
    settings: Settings | None = None,
    seed: Seed = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Tuned:
    """Return the catalogue with vectors tuned so that a GRU over a user's clicks predicts the next one.

    The GRU's hidden state is the user vector, as long as an item's. The loss is a sampled softmax, minimised by Adam.
    Training ends when the likelihood of validation users' last clicks has hardly improved for four passes.

    Parameters
    ----------
    train, valid
        Logs of training users and of validation users, who decide when to stop; only rewards above 0 count.
    catalogue
        The items. Tuning starts from the first `dim` principal components of their vectors. Without vectors it starts
        from a singular value decomposition of the training log. `text_gru_vectors` starts from texts.
    dim
        Dimensions of the vectors.
    settings
        Learning rate (0.001), most passes (60), patience (4) and window (50 clicks).
    seed
        The same seed, logs and device give the same vectors.
    device
        ``"auto"``: the GPU if there is one.
    progress
        Called with (stage, done, total).
    """
    owner = "gru_vectors"
    begun = catalogue
    if not catalogue.dim:
        most = min(dim, len(catalogue), len(clicks_of(owner, train, catalogue)))
        begun = svd_vectors(train, catalogue, most, seed=seed, progress=progress)
    start = _as_long(principal_components(begun.vectors, dim), dim, seed)
    model = NextClick.fit(
        "gru", train, valid, catalogue, dim, start=start, settings=settings, seed=seed, device=device, progress=progress
    )
    return Tuned(catalogue.with_vectors(model.vectors.copy()), model)


@checks.checked()
def text_gru_vectors(
    train: Interactions,
    valid: Interactions,
    catalogue: Catalogue,
    dim: Count = 64,
    *,
    columns: Sequence[str] | None = None,
    model: str = PACKAGE,
    fill: bool = False,
    cache: StrPath | None = None,
    settings: Settings | None = None,
    seed: Seed = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Tuned:
    """Return the catalogue with vectors of texts, tuned by a GRU over users' clicks, as in the paper.

    This is `text_vectors` and then `gru_vectors`. Vectors that the catalogue already has are not used.

    Parameters
    ----------
    train, valid, settings
        As for `gru_vectors`.
    catalogue
        The items, with titles or other text.
    dim
        Dimensions of the vectors, both of the texts and of the tuned ones.
    columns, model, fill, cache
        As for `text_vectors`. With `fill`, an item without text starts from the mean of its category, or of all items
        if no item of its category has text, with a little noise.
    seed
        The same seed, texts, logs and device give the same vectors.
    device
        ``"auto"``: the GPU if there is one.
    progress
        Called with (stage, done, total).
    """
    owner = "text_gru_vectors"
    torch_for(owner)  # fail before reading the texts, which may take long
    start = text_vectors(
        catalogue, dim, columns=columns, model=model, fill=fill, cache=cache, seed=seed, device=device,
        progress=progress,
    )  # fmt: skip
    return gru_vectors(train, valid, start, dim, settings=settings, seed=seed, device=device, progress=progress)


def _as_long(vectors: Floats, dim: int, seed: int) -> Floats:
    """Return vectors of `dim` dimensions; those that are added are a little noise."""
    count, have = vectors.shape
    if have == dim:
        return vectors
    scale = 0.1 * float(np.linalg.norm(vectors, axis=1).mean()) / dim**0.5
    noise = rng.normals(seed, rng.stream("gru", "more"), count * (dim - have)).reshape(count, -1)
    return np.concatenate([vectors, (scale * noise).astype(np.float32)], axis=1)
