"""A store of your own: every step a line of JSON at the end of a file, which grep, jq and polars read as it grows.

`WrittenStore` answers from memory; left to say is how parts are written, and read again. Every write waits for the
disk, a head holds all items' ids, forgetting writes the whole file anew: for small shops, and one process at a time.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import treeward as tw
from treeward.store import EVENT, Added, Head, WrittenStore
from treeward.testing import check_store


class JsonLinesStore(WrittenStore):
    """Events in a file of JSON lines, on disk before a call returns."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        super().__init__()

    def load(self) -> Iterator[Head | Added]:
        """Read the file; a last line that a crash cut short was never acknowledged, and is cut off."""
        whole = self.path.read_bytes() if self.path.exists() else b""
        if not whole.endswith(b"\n") and whole:
            os.truncate(self.path, whole.rfind(b"\n") + 1)
        for line in map(json.loads, whole.split(b"\n")[:-1]):
            if isinstance(line, dict):
                yield Head.of_plain(line)
            else:
                users, counts, events = line
                yield Added(users, np.array(counts), np.array([tuple(row) for row in events], dtype=EVENT))

    def write(self, parts: Iterable[Head | Added], *, anew: bool = False) -> None:
        """Add a line for each part; or write the file anew, beside the old one and then in its place."""
        path = self.path.with_name(self.path.name + ".new") if anew else self.path
        with open(path, "w" if anew else "a", opener=lambda path, how: os.open(path, how, 0o600)) as file:
            for part in parts:
                plain = (
                    part.plain() if isinstance(part, Head) else [list(part.users), *map(np.ndarray.tolist, part[1:])]
                )
                file.write(json.dumps(plain) + "\n")
            file.flush()
            os.fsync(file.fileno())
        path.replace(self.path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check_store(lambda: JsonLinesStore(Path(folder, "checked.jsonl")), durable=True)
        shop, path = tw.Catalogue(["tea", "pot", "cup", "jug"], np.eye(4)), Path(folder, "events.jsonl")
        explorer = tw.Explorer(shop, store=JsonLinesStore(path), memory=1 << 22)
        explorer.feedback({explorer.recommend(["ada"])[0].id: 1.0})
        print(path.read_text().splitlines()[-1])
