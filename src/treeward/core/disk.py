"""What the system keeps in memory until it is told to write it down."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Return when the names of a folder's files are on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
