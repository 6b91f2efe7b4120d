"""Item vectors from what items say: a sentence model, or weighted words where there is none."""

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
from treeward.core.errors import DataError, InvalidArgument
from treeward.core.progress import Progress, Stage, silent
from treeward.core.types import Floats
from treeward.data.catalogue import Catalogue
from treeward.embed.decompose import ROUNDS, decompose, filled, reduced
from treeward.embed.sentences import PACKAGE, Cache, Model, default_cache, encoder, find_model
from treeward.learn.torch import device_for, torch_for

STATIC = "static"
SAID = ("title", "abstract", "description")
"""What an item says, of columns with these names."""
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
    """Return the catalogue with vectors: items are close if they say about the same.

    Parameters
    ----------
    catalogue
        The items.
    dim
        Dimensions of the vectors, by principal components; None: as many as the model has.
    columns
        What to read of an item: columns of the catalogue's table, joined in this order. None: its title, abstract and
        description, those that there are; without any of them, its category.
    model
        A directory of a sentence-transformers model, an installed package of weights, or ``"static"``: words weighted
        by how rare they are, then decomposed, which needs no torch.
    fill
        Give items without text the mean of their category; otherwise they are refused.
    cache
        File where a model's vectors are kept by text; by default one in the user's cache directory.
    seed
        Of the static model and of filling.
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
    columns = _columns(catalogue, columns)
    texts = _texts(catalogue, columns)
    known = np.array([_WORD.search(text) is not None for text in texts], dtype=np.bool_)
    if not known.any() or not (known.all() or fill):
        what = f"{int((~known).sum()):,} of {len(texts):,} items have no text in {', '.join(columns or SAID)}"
        rather = (
            "name columns that say something (--text NAME), or make vectors of clicks: treeward embed gru, embed svd"
        )
        fix = f"--fill gives them their category's mean; or {rather}" if known.any() else rather
        raise DataError(f"{what}; {fix}")
    if model == STATIC:
        made = _weighted_words(texts, dim or 64, seed, progress or silent)
    else:
        if device != "auto":
            device_for("text_vectors", torch_for("text_vectors"), device)
        made = _sentences(texts, find_model("text_vectors", model), cache, device, progress or silent)
        made[known] = made[known] if dim is None else _reduced_in_place(made[known], dim)
        made = made if dim is None else made[:, : min(dim, made.shape[1])]
    return catalogue.with_vectors(filled(made, known, catalogue, seed))


def _reduced_in_place(vectors: Floats, dim: int) -> Floats:
    """Return the components, followed by nothing, so that rows keep their length."""
    made = np.zeros_like(vectors)
    kept = reduced(vectors, dim)
    made[:, : kept.shape[1]] = kept
    return made


def _columns(catalogue: Catalogue, columns: Sequence[str] | None) -> list[str]:
    """Return the columns to read: those given, which must be there, or else those that usually say something."""
    have = catalogue.table.columns
    if columns is None:
        return [name for name in SAID if name in have] or [name for name in ("category",) if name in have]
    named = [columns] if isinstance(columns, str) else list(columns)
    missing = [name for name in named if name not in have]
    if missing or not named:
        raise InvalidArgument("text_vectors", "columns", f"columns of the items ({', '.join(have)})", missing or named)
    return named


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
    lacking = sorted((text for text in wanted if text not in found), key=len, reverse=True)
    stage = Stage(progress, "reading texts", -(-len(lacking) // _PIECE))
    if lacking:
        reader = encoder("text_vectors", model, device)
        for start in range(0, len(lacking), _PIECE):  # those of a length together, so that little is filled up
            piece = lacking[start : start + _PIECE]
            made = np.asarray(
                reader.encode(piece, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False), np.float32
            )
            kept.put(piece, made)  # at once: a run that is stopped goes on where it was
            found.update(zip(piece, made, strict=True))
            stage.step()
    size = len(next(iter(found.values())))
    nothing = np.zeros(size, dtype=np.float32)
    return np.stack([found.get(text, nothing) for text in texts])


def _weighted_words(texts: list[str], dim: int, seed: int, progress: Progress) -> Floats:
    """Return vectors of words and pairs of words, the rarer the weightier, in fewer dimensions."""
    bags = [Counter(_terms(text)) for text in texts]
    seen = Counter(term for bag in bags for term in bag)
    kept = sorted(term for term, count in seen.items() if count > 1 or " " not in term)  # words, and pairs that recur
    number = {term: at for at, term in enumerate(kept)}
    weight = np.array([np.log(len(texts) / seen[term]) + 1 for term in number], dtype=np.float32)
    rows = [at for at, bag in enumerate(bags) for term in bag if term in number]
    columns = np.array([number[term] for bag in bags for term in bag if term in number], dtype=np.int64)
    counts = np.array([bag[term] for bag in bags for term in bag if term in number], dtype=np.float32)
    matrix = scipy.sparse.csr_matrix(
        ((1 + np.log(counts)) * weight[columns], (rows, columns)), shape=(len(texts), len(number))
    )
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix = scipy.sparse.diags_array(1 / np.maximum(lengths, 1e-12)) @ matrix
    size = min(dim, *matrix.shape)
    made = decompose(matrix.T.tocsr().astype(np.float32), size, seed, Stage(progress, "reading texts", ROUNDS + 1))
    out: NDArray[np.float32] = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), np.float32(1e-12))
    return out


def _terms(text: str) -> list[str]:
    words = _WORD.findall(text.lower())
    return words + [f"{one} {other}" for one, other in pairwise(words)]
