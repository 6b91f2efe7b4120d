"""Item vectors from texts: by a sentence model, or by weighted words without torch."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
import scipy.sparse
from numpy.typing import NDArray

from treeward.core import checks
from treeward.core.artefact import StrPath
from treeward.core.checks import Count, Seed
from treeward.core.errors import DataError
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.embed.decompose import ROUNDS, columns_to_read, decompose_rows, fill_unknown, principal_components
from treeward.embed.sentences import PACKAGE, Cache, Model, default_cache, encoder, find_model
from treeward.learn.torch import device_for, torch_for

STATIC = "static"
TEXT_COLUMNS = ("title", "abstract", "description")
"""Columns that are read by default."""
_PIECE, _BATCH = 512, 64
_WORD = re.compile(r"\w+")


@checks.checked()
def text_vectors(
    catalogue: Catalogue,
    dim: Count | None = 64,
    *,
    columns: Sequence[str] | None = None,
    model: str = PACKAGE,
    fill: bool = False,
    cache: StrPath | None = None,
    seed: Seed = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Catalogue:
    """Return the catalogue with vectors: items are close if their texts are similar.

    Parameters
    ----------
    catalogue
        The items.
    dim
        Dimensions of the vectors, by principal components; None: all that the model has.
    columns
        Columns of the catalogue's table to read, joined in this order. By default those of title, abstract and
        description that exist; without any, the category.
    model
        A directory of a sentence-transformers model, an installed package of weights, or ``"static"``: words weighted
        by rarity and decomposed, which needs no torch.
    fill
        Give items without text the mean of their category. Without it, they raise an error.
    cache
        File that keeps a model's vectors by text; by default one in the user's cache directory.
    seed
        Seed of the static model and of filling.
    device
        ``"auto"``: the GPU if there is one.
    progress
        Called with (stage, done, total).

    Examples
    --------
    >>> titles = ["red wool scarf", "blue wool scarf", "steel garden spade", "small garden spade"]
    >>> shop = text_vectors(Catalogue([1, 2, 3, 4], titles=titles), dim=2, model="static")
    >>> near = shop.vectors @ shop.vectors.T
    >>> bool(near[0, 1] > near[0, 2])
    True
    """
    owner = "text_vectors"
    columns = columns_to_read(owner, catalogue, columns, TEXT_COLUMNS)
    texts = _texts(catalogue, columns)
    known = np.array([_WORD.search(text) is not None for text in texts], dtype=np.bool_)
    if not known.any() or not (known.all() or fill):
        what = f"{int((~known).sum()):,} of {len(texts):,} items have no text in {', '.join(columns or TEXT_COLUMNS)}"
        rather = "name columns with text (--text NAME), or make vectors from clicks: treeward embed gru, embed svd"
        fix = f"--fill gives them their category's mean; or {rather}" if known.any() else rather
        raise DataError(f"{what}; {fix}")
    if model == STATIC:
        made = _weighted_words(texts, dim or 64, seed, progress or silent)
    else:
        if device != "auto":
            device_for(owner, torch_for(owner), device)
        made = _sentences(texts, find_model(owner, model), cache, device, progress or silent)
        if dim is not None:
            kept = principal_components(made[known], dim)
            made = np.zeros((len(texts), kept.shape[1]), dtype=np.float32)
            made[known] = kept
    return catalogue.with_vectors(fill_unknown(made, known, catalogue, seed))


def _texts(catalogue: Catalogue, columns: Sequence[str]) -> list[str]:
    if not columns:
        return [""] * len(catalogue)
    parts = [pl.col(name).cast(pl.String).str.strip_chars().replace("", None) for name in columns]
    joined = catalogue.table.select(pl.concat_str(parts, separator=". ", ignore_nulls=True).alias("text"))["text"]
    return [" ".join((text or "").split()) for text in joined.to_list()]


def _sentences(texts: list[str], model: Model, cache: StrPath | None, device: str, progress: Progress) -> Floats:
    kept = Cache(default_cache() if cache is None else cache, model.digest)
    wanted = [text for text in dict.fromkeys(texts) if _WORD.search(text)]
    found = kept.get(wanted)
    missing = sorted((text for text in wanted if text not in found), key=len, reverse=True)
    stage = Stage(progress, "reading texts", -(-len(missing) // _PIECE))
    if missing:
        reader = encoder("text_vectors", model, device)
        for start in range(0, len(missing), _PIECE):  # texts of similar length together: little padding
            piece = missing[start : start + _PIECE]
            made = np.asarray(
                reader.encode(piece, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False), np.float32
            )
            kept.put(piece, made)  # at once, so that a run that is stopped can be continued
            found.update(zip(piece, made, strict=True))
            stage.step()
    size = len(next(iter(found.values())))
    nothing = np.zeros(size, dtype=np.float32)
    return np.stack([found.get(text, nothing) for text in texts])


def _weighted_words(texts: list[str], dim: int, seed: int, progress: Progress) -> Floats:
    """Return vectors of words and pairs of words, weighted by rarity and decomposed to `dim` dimensions."""
    bags = [Counter(_terms(text)) for text in texts]
    seen = Counter(term for bag in bags for term in bag)
    kept = sorted(
        term for term, count in seen.items() if count > 1 or " " not in term
    )  # all words, and recurring pairs
    number = {term: at for at, term in enumerate(kept)}
    weight = np.array([np.log(len(texts) / seen[term]) + 1 for term in number], dtype=np.float32)
    rows = [at for at, bag in enumerate(bags) for term in bag if term in number]
    columns = np.array([number[term] for bag in bags for term in bag if term in number], dtype=np.int64)
    counts = np.array([bag[term] for bag in bags for term in bag if term in number], dtype=np.float32)
    matrix = scipy.sparse.csr_matrix(
        ((1 + np.log(counts)) * weight[columns], (rows, columns)), shape=(len(texts), len(number))
    )
    made, _ = decompose_rows(matrix, dim, seed, Stage(progress, "reading texts", ROUNDS + 1))
    out: NDArray[np.float32] = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), np.float32(1e-12))
    return out


def _terms(text: str) -> list[str]:
    words = _WORD.findall(text.lower())
    return words + [f"{one} {other}" for one, other in pairwise(words)]
