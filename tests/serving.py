"""A service of its own for a test: started by the command line, as a user would."""

import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

TREEWARD = str(Path(sys.executable).with_name("treeward"))


class Running:
    """A service that was started."""

    def __init__(self, process, url, admin, log, said):
        self.process, self.url, self.admin, self.log, self.said = process, url, admin, log, said


def start(folder, items, *options, env=None, wait=300):
    """Start `treeward serve` on free ports and wait until it is ready."""
    with (folder / "stderr").open("ab") as log:
        process = subprocess.Popen(
            [TREEWARD, "serve", str(items), "--port", "0", "--admin-port", "0", "--store", str(folder / "events.db"),
             *map(str, options)],
            stdout=subprocess.PIPE, stderr=log, cwd=folder, env=env, text=True,
        )  # fmt: skip
    said = []
    end = time.time() + wait
    while time.time() < end:
        line = process.stdout.readline()
        said.append(line)
        if not line:
            break
        if found := re.search(r"Serving at (\S+) .*metrics at (\S+)/metrics", line):
            return Running(process, *found.groups(), folder / "stderr", "".join(said))
    process.kill()
    process.wait()
    process.stdout.close()
    raise AssertionError("".join(said) + (folder / "stderr").read_text())


def stop(running):
    """End a service as an operator would; return its exit code."""
    running.process.terminate()
    code = running.process.wait(120)
    running.process.stdout.close()
    return code


def kill(running):
    """End a service as a power cut would."""
    running.process.kill()
    running.process.wait()
    running.process.stdout.close()


@contextmanager
def serving(folder, items, *options, env=None):
    """Have a service for a while."""
    running = start(folder, items, *options, env=env)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            stop(running)
