"""What `treeward doctor` looks at. Nothing here imports a package of an extra: that would take seconds."""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import treeward

EXTRAS = ("train", "serve", "postgres", "ray", "als")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?\s*(?:(>=|==)\s*([0-9.]+))?[^;]*(?:;\s*(.*))?")


class Package(NamedTuple):
    """A package that treeward, or one of its extras, needs."""

    name: str
    required: str
    """As in ``>=2.1``; empty: any."""
    tried: str | None
    """The version the tests ran with, if that is known here."""
    installed: str | None
    extra: str | None
    fine: bool
    """Whether it is there, and of a version that will do."""


class Check(NamedTuple):
    """Something that was tried."""

    name: str
    fine: bool
    told: str
    seconds: float


class Checkup(NamedTuple):
    """All that `treeward doctor` tells."""

    treeward: str
    python: str
    platform: str
    cores: int
    memory: int | None
    """Bytes; None where the system does not say."""
    packages: list[Package]
    missing: dict[str, list[str]]
    """What each extra lacks: nothing, if it is complete."""
    kernels: dict[str, Any]
    temp: dict[str, Any]
    gpu: str
    checks: list[Check]

    @property
    def sound(self) -> bool:
        """Whether all that the base needs is there and works."""
        return all(one.fine for one in self.packages if one.extra is None) and all(one.fine for one in self.checks)


def look() -> Checkup:
    """Look at everything, and try the least that must work."""
    from treeward.core.parallel import cores

    found = packages()
    lacking = {extra: [one.name for one in found if one.extra == extra and not one.fine] for extra in EXTRAS}
    folder, free = "none that can be written", None
    with suppress(OSError):
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    return Checkup(
        treeward=treeward.__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        cores=cores(),
        memory=_memory(),
        packages=found,
        missing=lacking,
        kernels=kernels(),
        temp={"folder": folder, "free": free},
        gpu=_gpu(),
        checks=[tried("an explorer decides and learns", _decide), tried("a store keeps events on disk", _store)],
    )


def packages() -> list[Package]:
    """Return what treeward and its extras need, by what its own metadata says."""
    try:
        wanted = metadata.requires("treeward") or []
    except metadata.PackageNotFoundError:
        return []
    tried, found = _tried(), []
    for line in wanted:
        for extra in (None, *EXTRAS):
            found += _needed(line, extra, extra, tried)
    return found


def _needed(line: str, asked: str | None, extra: str | None, tried: dict[str, str]) -> list[Package]:
    """Return the package of a requirement, and those of the extras it asks for, if `asked` is whom it is for."""
    parts = _REQUIREMENT.match(line)
    if parts is None:
        return []
    name, more, sign, version, marker = parts.groups()
    owner = re.search(r"extra == ['\"]([^'\"]+)['\"]", marker or "")
    if (owner.group(1) if owner else None) != asked or _elsewhere(marker or ""):
        return []
    try:
        installed: str | None = metadata.version(name)
    except metadata.PackageNotFoundError:
        installed = None
    fine = installed is not None and _suits(installed, sign, version)
    made = [Package(name, f"{sign or ''}{version or ''}", tried.get(_plain(name)), installed, extra, fine)]
    if installed is not None:
        for sub in (more or "").split(",") if more else []:
            for inner in metadata.requires(name) or []:
                made += _needed(inner, sub.strip(), extra, tried)
    return made


def _elsewhere(marker: str) -> bool:
    """Tell whether a requirement is for other systems or other Pythons than this; what is not understood is for all."""
    here = {"sys_platform": sys.platform, "implementation_name": sys.implementation.name}
    for name, sign, value in re.findall(r"(\w+)\s*(==|!=)\s*['\"]([^'\"]*)['\"]", marker):
        if name in here and (here[name] == value) != (sign == "=="):
            return True
    return any(
        not _suits(platform.python_version(), sign, value)
        if sign == ">="
        else _suits(platform.python_version(), ">=", value)
        for sign, value in re.findall(r"python_version\s*(>=|<)\s*['\"]([0-9.]+)['\"]", marker)
    )


def _suits(installed: str, sign: str | None, version: str | None) -> bool:
    if sign is None or version is None:
        return True
    have, need = (
        tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0])[:4]) for text in (installed, version)
    )
    return have >= need if sign == ">=" else have[: len(need)] == need


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> Path | None:
    """Return the list of versions tried together: in the package as installed, or beside the sources."""
    package = Path(treeward.__file__).parent
    for place in (package / "constraints.txt", package.parents[1] / "constraints.txt"):
        if place.is_file():
            return place
    return None


def _tried() -> dict[str, str]:
    place = constraints()
    text = "" if place is None else place.read_text()
    return {_plain(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)}


def kernels() -> dict[str, Any]:
    """Return where compiled kernels are kept, if anywhere, and whether the one that decides is among them."""
    try:
        from treeward.engine.beam import choose_by_beam
    except Exception as error:  # what is wrong is told by the checks
        return {"folder": None, "writable": False, "compiled": False, "why": _line(error)}
    kept = getattr(getattr(choose_by_beam, "_cache", None), "cache_path", None)
    if kept is None:
        return {"folder": None, "writable": False, "compiled": False}
    folder = Path(kept)
    compiled = any(folder.glob("beam.choose_by_beam-*.nbc"))
    return {"folder": str(folder), "writable": os.access(folder, os.W_OK), "compiled": compiled}


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _gpu() -> str:
    """Say whether torch could use a GPU, without importing it."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not looked for: only the extra train would use one"
    if "+cpu" in version:
        return f"not used: torch {version} is built for the CPU"
    if Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists():
        return f"an NVIDIA driver is there; torch {version}"
    return f"no NVIDIA driver; torch {version} will use the CPU"


def tried(name: str, work: Callable[[], str]) -> Check:
    """Try something, and say how it went and how long it took."""
    start = perf_counter()
    try:
        told, fine = work(), True
    except Exception as error:
        told, fine = _line(error), False
    return Check(name, fine, told, perf_counter() - start)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _decide() -> str:
    from treeward.data.synthetic import synthetic_catalogue
    from treeward.explorer.explorer import Explorer

    explorer = Explorer(synthetic_catalogue(200, dim=8, seed=0), seed=0, memory=1 << 22)
    [made] = explorer.recommend(["ada"])
    explorer.feedback({made.id: 1.0})
    if explorer.store.counts(["ada"])[0] < 1:
        raise RuntimeError("feedback was given, and no event is there")
    return "one of 200 items, and its reward"


def _store() -> str:
    from treeward.store import SQLiteStore
    from treeward.store.events import event

    with tempfile.TemporaryDirectory(prefix="treeward-") as folder:
        for count in (1, 2):
            store = SQLiteStore(Path(folder) / "events.db")
            store.append(["ada"], event(1, 1.0, nonce=count))
            if store.counts(["ada"])[0] != count:
                raise RuntimeError(f"{store.counts(['ada'])[0]} events where there should be {count}")
            store.close()
    return f"SQLite, below {tempfile.gettempdir()}"
