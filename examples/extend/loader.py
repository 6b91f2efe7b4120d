"""A loader of your own: a click log in JSON lines, {"user": "ada", "item": "tea", "click": 1, "ts": 1700000000}.

Try it: `treeward data inspect clicks.jsonl --loader examples/extend/loader.py:load`
"""

import json
import tempfile
from pathlib import Path

import polars as pl

import treeward as tw
from treeward.core.errors import DataError
from treeward.data.delimited import Reading
from treeward.data.loaders.base import Loaded, loader
from treeward.testing import check_loader

SIGNS = ("clicks.jsonl",)
_FIELDS = {"user": pl.String, "item": pl.String, "click": pl.Float64, "ts": pl.Int64}


@loader("clicks")
def load(path: Path, reading: Reading) -> Loaded:
    """Read `clicks.jsonl`, or the folder it is in; `click` may be missing, and is 1 then."""
    file, pieces = path / "clicks.jsonl" if path.is_dir() else path, []
    for piece in reading.pieces(file, ("text",), separator="\x1f"):
        found = {name: pl.col("text").str.json_path_match(f"$.{name}") for name in _FIELDS}
        found["click"] = found["click"].fill_null("1")
        fields = [found[name].cast(kind, strict=False).alias(name) for name, kind in _FIELDS.items()]
        piece = piece.keep(pl.col("text").str.contains(r"^\s*\{.*\}\s*$"), "not a JSON object")
        piece = piece._replace(rows=piece.rows.select("line", *fields))
        piece = piece.keep(pl.all_horizontal(pl.col("user", "item").is_not_null()), "no user or item")
        piece = piece.keep(pl.col("ts").is_not_null() & pl.col("click").is_finite(), "bad time or click")
        pieces.append(piece.rows)
    if not len(events := pl.concat(pieces)):
        raise DataError(f"{file}: holds no clicks, but {', '.join(reading.found)}")
    log = tw.Interactions(events["user"], events["item"], rewards=events["click"], times=events["ts"])
    return Loaded("clicks", tw.Catalogue(log.items.unique().sort()), log, {"read": {"events": len(log)}})


if __name__ == "__main__":
    clicks = [{"user": f"u{n % 12}", "item": f"i{n % 7}", "click": int(n % 3 == 0), "ts": n} for n in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "clicks.jsonl").write_text("\n".join(map(json.dumps, clicks)))
        check_loader(load, folder, "clicks.jsonl")
        data = tw.load_dataset(folder, load)
    print(data, tw.svd_vectors(data.part("train"), data.catalogue, dim=2))
