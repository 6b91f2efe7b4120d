"""Files: names that are safe on disk, and arrays that are mapped instead of read."""

import os
from pathlib import Path

import numpy as np

from treeward.core.types import AnyArray


def sync_folder(folder: Path) -> None:
    """Return when the names of a folder's files are on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_npy(path: str | os.PathLike[str]) -> AnyArray:
    """Return the array of a .npy file as a read-only memory map; a malformed file is a ValueError.

    Python objects in it are refused, because loading them would run code from the file. Nothing is allocated, so a
    header that claims more than the file holds is refused too.
    """
    try:
        with np.errstate(over="ignore"):  # a size that overflows is refused below
            return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy parses the header like Python code, so anything may be raised
        raise ValueError(str(error) or type(error).__name__) from error
