"""Locks between processes, on files and folders. The system takes them back when a process ends, however it ends.

The one module that knows `fcntl`, so that a system without it is named at the first use of treeward.
"""

from typing import IO

from treeward.core.errors import PlatformUnsupported

try:
    import fcntl
except ModuleNotFoundError as error:
    raise PlatformUnsupported.here() from error


def lock_whole(file: int | IO[str]) -> bool:
    """Lock a file or folder that is open, until it is closed; False if another process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_byte(file: int, at: int) -> bool:
    """Lock one byte of a file that this process has open, even beyond its end; False if another process has it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    except (BlockingIOError, PermissionError):
        return False
    return True


def free_byte(file: int, at: int) -> None:
    """Give back what `lock_byte` took."""
    fcntl.lockf(file, fcntl.LOCK_UN, 1, at)
