"""A loader of your own: a click log in JSON lines, {"user": "ada", "item": "tea", "click": 1, "ts": 1700000000}.

Try it: `treeward data inspect clicks.jsonl --as examples/extend/loader.py:load`
"""

import hashlib
import json
import tempfile
from pathlib import Path

import polars as pl

import treeward as tw
from treeward.core.errors import DataError
from treeward.core.progress import Progress
from treeward.data.dataset import Dataset, Sizes, split_users
from treeward.data.delimited import Problems, read_pieces
from treeward.testing import check_loader

SIGNS = ("clicks.jsonl",)
_FIELDS = {"user": pl.String, "item": pl.String, "click": pl.Float64, "ts": pl.Int64}


def load(
    path: Path,
    *,
    test: int | float = 0.2,
    validation: int | float = 0.1,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Read `clicks.jsonl`, or the folder it is in; `click` may be missing, and is 1 then."""
    file = path / "clicks.jsonl" if path.is_dir() else path
    problems, digest, pieces = Problems(strict), hashlib.sha256(), []
    for piece in read_pieces(file, ("text",), problems, separator="\x1f", progress=progress, digest=digest):
        found = {name: pl.col("text").str.json_path_match(f"$.{name}") for name in _FIELDS}
        found["click"] = found["click"].fill_null("1")
        fields = [found[name].cast(kind, strict=False).alias(name) for name, kind in _FIELDS.items()]
        piece = problems.keep(piece, pl.col("text").str.contains(r"^\s*\{.*\}\s*$"), "not a JSON object")
        named = pl.all_horizontal(pl.col("user", "item").is_not_null())
        piece = problems.keep(piece._replace(rows=piece.rows.select("line", *fields)), named, "no user or item")
        piece = problems.keep(piece, pl.col("ts").is_not_null() & pl.col("click").is_finite(), "bad time or click")
        pieces.append(piece.rows)
    if not len(events := pl.concat(pieces)):
        raise DataError(f"{file}: holds no clicks, but {', '.join(problems.found)}")
    log = tw.Interactions(events["user"], events["item"], rewards=events["click"], times=events["ts"])
    items, splits = tw.Catalogue(log.items.unique().sort()), split_users(log.users, Sizes(test, validation), seed)
    source = {"loader": "clicks", "sha256": digest.hexdigest(), "seed": seed}
    return Dataset("clicks", items, log, splits, dropped=problems.found, source=source)


if __name__ == "__main__":
    clicks = [{"user": f"u{n % 12}", "item": f"i{n % 7}", "click": int(n % 3 == 0), "ts": n} for n in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "clicks.jsonl").write_text("\n".join(map(json.dumps, clicks)))
        check_loader(load, folder, "clicks.jsonl")
        data = tw.load_dataset(folder, load)
    print(data, tw.svd_vectors(data.part("train"), data.catalogue, dim=2))
