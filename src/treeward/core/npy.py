"""Arrays in .npy files, whoever wrote them: mapped, never unpickled, and never larger than the file."""

import os

import numpy as np

from treeward.core.types import AnyArray


def open_npy(path: str | os.PathLike[str]) -> AnyArray:
    """Return the array of a .npy file as a read-only memory map; whatever is wrong with the file is a ValueError.

    Objects are refused, since reading them would run what the file says. Nothing is allocated: a header that claims
    more than the file holds is refused.
    """
    try:
        with np.errstate(over="ignore"):  # sizes that no number holds are refused, too
            return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # a header is parsed as Python would, with all that can go wrong there
        raise ValueError(str(error) or type(error).__name__) from error
