"""A store of your own: every change a line of JSON at the end of a file, which grep, jq and polars read as it grows.

`WriteThroughStore` answers from memory; what is left to say is how changes are written, and read again. Every write
waits for the disk, and forgetting a user rewrites the whole file: for small shops, and one process at a time.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.store import EVENT, Change, WriteThroughStore
from treeward.testing import check_store


class JsonLinesStore(WriteThroughStore):
    """Events in a file of JSON lines, on disk before a call returns."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        super().__init__()

    def load(self) -> Iterator[Change]:
        """Read the file; a last line that a crash cut short was never acknowledged, and is cut off."""
        whole = self.path.read_bytes() if self.path.exists() else b""
        if not whole.endswith(b"\n") and whole:
            os.truncate(self.path, whole.rfind(b"\n") + 1)
        for users, counts, events, values, removed in map(json.loads, whole.split(b"\n")[:-1]):
            metadata = {key: bytes.fromhex(value) for key, value in values.items()}
            yield Change(users, counts, np.array(list(map(tuple, events)), dtype=EVENT), metadata, removed=removed)

    def write(self, change: Change) -> None:
        """Add a line; if a user was erased, write everything to a new file, and put that in place of the old one."""
        if change.erased is None:
            return self._write_lines(self.path, [change], "a")
        new = self.path.with_name(self.path.name + ".new")
        self._write_lines(new, self.everything(), "w")
        new.replace(self.path)

    def _write_lines(self, path: Path, changes: Iterable[Change], mode: str) -> None:
        with open(path, mode, opener=lambda path, how: os.open(path, how, 0o600)) as file:
            for users, counts, events, metadata, _, removed in changes:
                values = {key: value.hex() for key, value in metadata.items()}
                file.write(json.dumps([users, counts, events.tolist(), values, removed]) + "\n")
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check_store(lambda: JsonLinesStore(Path(folder, "checked.jsonl")), durable=True)
        shop, path = tw.Catalogue(["tea", "pot", "cup", "jug"], np.eye(4)), Path(folder, "events.jsonl")
        explorer = tw.Explorer(shop, store=JsonLinesStore(path), memory=1 << 22)
        explorer.feedback({explorer.recommend(["ada"])[0].id: 1.0})
        print(path.read_text().splitlines()[-1])
