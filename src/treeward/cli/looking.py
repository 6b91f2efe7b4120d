"""A copy of a store, and an explorer over one, so that looking changes nothing."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treeward.core.progress import Progress
    from treeward.explorer.explorer import Explorer
    from treeward.serve.settings import Settings


@contextmanager
def copy_of(store: Path) -> Iterator[Path]:
    """Return a copy of a store that nobody has open; it is gone afterwards."""
    from treeward.store.check import copy_at_rest

    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        copy_at_rest(store, copy)
        yield copy


@contextmanager
def looking(
    store: Path, config: Path | None, flags: dict[str, Any], report: "Progress"
) -> "Iterator[tuple[Explorer, Settings]]":
    """Return the explorer that a service with these settings would have over a store, and the settings."""
    from treeward.serve.server import open_explorer
    from treeward.serve.settings import read_settings

    with copy_of(store) as copy:
        settings = read_settings(config, flags={**flags, "store": str(copy)})
        explorer = open_explorer(settings, report)
        with closing(explorer.store):
            yield explorer, settings
