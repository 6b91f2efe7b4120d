"""What tests give to other processes; light, so that those begin quickly."""

import os
import signal
import time

from treeward.core.errors import InvalidArgument


def double(array):
    return 2 * array


def halves(array, where):
    return array[:where], array[where:]


def refuse(number):
    raise InvalidArgument("task", "number", "another", number)


def die_once(flag, number):
    """Be killed the first time anybody does this."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return number + 1
    os.kill(os.getpid(), signal.SIGKILL)


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


def read_shared(shared, name):
    return (shared.folder() / name).read_text()


def rest(seconds):
    time.sleep(seconds)
    return seconds
