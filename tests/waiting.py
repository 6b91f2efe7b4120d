"""Wait for a condition, never for a time: a busy machine only makes it slower."""

import time


def wait_until(condition, what, seconds=120):
    """Return the first true value of a condition; fail, saying what was waited for, when it never is."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"after {seconds} s still waiting until {what}"
        time.sleep(0.05)
    return value
