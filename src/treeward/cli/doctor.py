"""`treeward doctor`: check whether everything that treeward needs is installed and works.

Nothing here imports a package of an extra: that would take seconds.
"""

import json
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
from typing import Annotated, Any, NamedTuple

import typer

import treeward
from treeward.cli.console import errors, say, show_table

EXTRAS = ("train", "serve", "postgres", "ray", "als")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?\s*(?:(>=|==)\s*([0-9.]+))?[^;]*(?:;\s*(.*))?")


class Package(NamedTuple):
    """A package that treeward, or one of its extras, needs."""

    name: str
    required: str
    """As in ``>=2.1``; empty: any."""
    tried: str | None
    """The version that the tests ran with, if known."""
    installed: str | None
    extra: str | None
    fine: bool
    """Whether it is installed, in a version that is recent enough."""


class Check(NamedTuple):
    """A small job that was tried."""

    name: str
    fine: bool
    told: str
    seconds: float


class Checkup(NamedTuple):
    """All that `treeward doctor` finds."""

    treeward: str
    python: str
    platform: str
    cores: int
    memory: int | None
    """Bytes; None if unknown."""
    packages: list[Package]
    missing: dict[str, list[str]]
    """The packages that each extra lacks."""
    kernels: dict[str, Any]
    temp: dict[str, Any]
    gpu: str
    checks: list[Check]

    @property
    def sound(self) -> bool:
        """Whether everything that the base needs is installed and works."""
        return all(one.fine for one in self.packages if one.extra is None) and all(one.fine for one in self.checks)


def examine() -> Checkup:
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
    """Return the packages that treeward and its extras need, according to its metadata."""
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
    """Return the package of a requirement, and those of its own extras, if it belongs to the extra `asked`."""
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
    """Return whether a requirement is only for other systems or Pythons; a marker that is not understood is for all."""
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
    """Return the file of versions that were tested together: in the package as installed, or next to the sources."""
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
    """Return where compiled kernels are kept, if anywhere, and whether the main one is among them."""
    try:
        from treeward.engine.beam import choose_by_beam
    except Exception as error:  # the checks say what is wrong
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
    """Return whether torch could use a GPU, in words, without importing it."""
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
    """Try a job, and return how it went and how long it took."""
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
        raise RuntimeError("feedback was given, but the store has no event")
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


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check what is installed, what each extra lacks and how to get it, and whether a tiny explorer works.

    Exits with 1 if something that the base needs is missing or does not work.
    """
    with errors.status("Checking (the first time compiles for half a minute) ..."):
        found = examine()
    if as_json:
        typer.echo(json.dumps(as_json_data(found), indent=1))
    else:
        _show(found)
    if not found.sound:
        raise typer.Exit(1)


def as_json_data(found: Checkup) -> dict[str, Any]:
    """Return what was found, as JSON."""
    made = found._asdict()
    made["packages"] = [one._asdict() for one in found.packages]
    made["checks"] = [one._asdict() for one in found.checks]
    made["extras"] = {
        extra: {"complete": not lacking, "missing": lacking, "get": get(extra)}
        for extra, lacking in made.pop("missing").items()
    }
    return made | {"sound": found.sound}


def get(extra: str) -> str:
    """Return the command that installs an extra in the versions that were tested."""
    place = constraints()
    return f"pip install 'treeward[{extra}]'" + ("" if place is None else f" -c {place}")


def _show(found: Checkup) -> None:
    say(f"treeward {found.treeward}, Python {found.python}")
    memory = "memory unknown" if found.memory is None else f"{found.memory / 2**30:.1f} GiB of memory"
    say(f"{found.platform}, {found.cores} cores, {memory}")
    free = found.temp["free"]
    say(f"temporary files: {found.temp['folder']}, {'unknown' if free is None else f'{free / 2**30:.1f} GiB'} free")
    say(f"compiled kernels: {_kernels(found.kernels)}")
    say(f"GPU: {found.gpu}")
    _show_packages(found)
    for extra, lacking in found.missing.items():
        say(f"extra {extra}: " + (f"lacks {', '.join(lacking)}: {get(extra)}" if lacking else "complete"))
    for one in found.checks:
        say(f"{'works' if one.fine else 'FAILS'}: {one.name} ({one.told}; {one.seconds:.1f} s)")
    say("sound" if found.sound else "not sound: see what is missing or fails above")


def _show_packages(found: Checkup) -> None:
    if not found.packages:
        say("packages: unknown, because treeward is not installed as a package (pip install -e .)")
        return
    rows = []
    for one in found.packages:
        state = "" if one.fine else ("missing" if one.installed is None else "too old or other")
        rows.append((one.name, one.extra or "base", one.required, one.tried or "", one.installed or "", state))
    head = ("package", "for", "required", "tried", "installed", "")
    show_table(None, head, rows, left=head)


def _kernels(found: dict[str, Any]) -> str:
    if found["folder"] is None:
        return "nowhere to keep them: every process compiles again, for half a minute; set NUMBA_CACHE_DIR to a folder"
    state = "there" if found["compiled"] else "not there yet: the first decision takes half a minute"
    return f"{state} ({found['folder']}{'' if found['writable'] else ', which cannot be written'})"
