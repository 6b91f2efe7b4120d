"""A PostgreSQL cluster of its own for tests: started in a folder, reached by a socket in it."""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

BIN = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None) or (
    Path(found).parent if (found := shutil.which("initdb")) else None
)
needs_postgres = pytest.mark.skipif(
    BIN is None and not os.environ.get("CI"),
    reason="no PostgreSQL server on this machine (Debian: apt-get install postgresql)",
)


class Cluster:
    """One server, which can be killed and started again."""

    def __init__(self):
        assert BIN is not None, "no PostgreSQL server on this machine (Debian: apt-get install postgresql)"
        self.folder = Path(tempfile.mkdtemp(prefix="tw-pg-"))
        self.folder.chmod(0o755)
        if os.geteuid() == 0:  # the server refuses to be run by root
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "-D", self.data, "-U", "treeward", "--auth=trust", "-E", "UTF8", "--locale=C")
        self.start()

    @property
    def data(self):
        return self.folder / "data"

    def _run(self, program, *arguments):
        command = [str(BIN / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.folder)

    def start(self):
        options = f"-k {self.folder} -c listen_addresses='' -c max_connections=200 -c wal_writer_delay=10ms"
        self._run("pg_ctl", "-D", self.data, "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self):
        self._run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")

    def kill(self):
        """End the server as a power cut would."""
        pid = int((self.data / "postmaster.pid").read_text().split()[0])
        listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        for one in (pid, *map(int, listed)):
            with suppress(ProcessLookupError):
                os.kill(one, 9)
        for _ in range(200):  # until the system has let go of them, the next server would not start
            if not any(Path(f"/proc/{one}").exists() for one in (pid, *listed)):
                break
            time.sleep(0.05)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def database(self, name):
        """Make a database, and return where it is."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def url(self, name):
        return f"postgresql://treeward@/{name}?host={self.folder}"

    def close(self):
        with suppress(subprocess.CalledProcessError):  # a test may have killed it
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster():
    made = Cluster()
    yield made
    made.close()
