"""Tasks on a Ray cluster, which moves arrays between machines and repeats the work of lost workers."""

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import ray
from threadpoolctl import threadpool_limits

from treeward.core.errors import TreewardError
from treeward.core.tasks import RETRIES, Ref, Share, arrays
from treeward.core.types import AnyArray


@contextmanager
def on_ray(address: str | None, count: int | None) -> Iterator["OnRay"]:
    """Join a cluster, or start one on this machine and stop it at the end."""
    mine = not ray.is_initialized()
    try:
        if address is not None:
            _knock(address)
        if mine:
            joins = address or os.environ.get("RAY_ADDRESS")
            # Without "local", Ray would join the cluster last started on this machine, and end with it.
            ray.init(
                joins or "local", num_cpus=None if joins else count, log_to_driver=False, logging_level=logging.ERROR
            )
    except (OSError, RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise TreewardError(f"{address or 'ray'}: no cluster answers there ({why})") from error
    try:
        yield OnRay()
    finally:
        if mine:
            ray.shutdown()


def _knock(address: str) -> None:
    """Raise at once if nothing listens there; Ray's client would take half a minute."""
    where = urlsplit(address)
    socket.create_connection((where.hostname or "localhost", where.port or 10001), timeout=10).close()


class OnRay:
    """Tasks of a Ray cluster; every worker must have the same version of treeward installed."""

    def each(self, function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call a function for every piece; see `Tasks.each`."""
        call = ray.remote(max_retries=RETRIES, num_cpus=1)(function)
        waiting = {call.remote(*piece): number for number, piece in enumerate(pieces)}
        while waiting:
            for done in ray.wait(list(waiting))[0]:
                yield waiting.pop(done), self._result(done)

    def start(self, function: Callable[..., Any], *given: Any, parts: int = 1) -> list[Ref]:
        """Begin a call whose arrays stay; see `Tasks.start`."""
        call = ray.remote(max_retries=RETRIES, num_cpus=1, num_returns=parts)(_kept)
        made = call.remote(function, parts, *given)
        return [made] if parts == 1 else list(made)

    def put(self, array: AnyArray) -> Ref:
        """Put an array where all tasks can read it."""
        return ray.put(array)

    def get(self, ref: Ref) -> AnyArray:
        """Wait for an array, and return it."""
        made: AnyArray = self._result(ref)
        return made

    def wait(self, ref: Ref) -> None:
        """Wait until an array is there."""
        ray.wait([ref], fetch_local=False)

    def free(self, refs: Sequence[Ref]) -> None:
        """Do nothing: Ray releases an array with its last reference."""

    def share(self, folder: Path, names: Sequence[str]) -> Share:
        """Let tasks read a folder; see `Tasks.share`."""
        tops = [folder / name for name in names]
        files = sorted(path for top in tops for path in (top, *top.rglob("*")) if path.is_file())
        digest, refs = sha256(), []
        for path in files:
            content = np.fromfile(path, dtype=np.uint8)
            digest.update(f"{path.relative_to(folder)}/{len(content)}/".encode() + content.tobytes())
            refs.append(ray.put(content))
        return _Packed(digest.hexdigest()[:32], [str(path.relative_to(folder)) for path in files], refs)

    def _result(self, ref: Ref) -> Any:
        try:
            return ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, TreewardError):
                raise cause from error
            raise
        except ray.exceptions.RayError as error:
            raise TreewardError(
                f"a worker of the cluster was lost before it was done: {str(error).splitlines()[0]}"
            ) from error


def _kept(function: Callable[..., Any], parts: int, *given: Any) -> Any:
    with threadpool_limits(1, user_api="blas"):
        made = arrays(function(*given), parts)
    return made[0] if parts == 1 else made


class _Packed(NamedTuple):
    """A folder in the cluster's memory; unpacked once per machine, under its digest."""

    digest: str
    names: list[str]
    refs: list[Ref]

    def folder(self) -> Path:
        home = Path(tempfile.gettempdir()) / f"treeward-{os.getuid()}"
        home.mkdir(mode=0o700, exist_ok=True)
        if home.stat().st_uid != os.getuid() or home.is_symlink():
            raise TreewardError(f"{home}: belongs to another user")
        place = home / self.digest
        if not place.exists():
            part = Path(tempfile.mkdtemp(dir=home))
            for name, content in zip(self.names, ray.get(self.refs), strict=True):
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                content.tofile(part / name)
            try:
                part.rename(place)
            except OSError:  # another worker of this machine was first
                shutil.rmtree(part)
        return place
