"""Artefacts: what treeward saves. Each is a directory of .npy, .parquet and .json files and a checksummed manifest.

The name of a file has the hash of its content, and the manifest is replaced last, in one step. So an artefact is always
the old one or the new one, complete. Readers that have the old one open keep it. A write that is killed leaves at most
files that no manifest names; the next write removes them.
"""

import errno
import hashlib
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from treeward.core.errors import (
    ArtefactCorrupt,
    ArtefactError,
    ArtefactExists,
    ArtefactMissing,
    ArtefactVersion,
    ArtefactWrite,
    InvalidArgument,
)
from treeward.core.files import open_npy, sync_folder
from treeward.core.locks import lock_whole
from treeward.core.types import AnyArray
from treeward.core.version import __version__

MANIFEST = "manifest.json"
_BLOCK = 1 << 22
_FINISHED = re.compile(r"([a-z_]+)-[0-9a-f]{16}\.(npy|parquet|json)")
_UNFINISHED = re.compile(r"([a-z_]+)\.(npy|parquet|json)\.part")

StrPath = str | os.PathLike[str]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    bytes: int
    sha256: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    written_by: str
    files: dict[str, _File]
    info: dict[str, Any]
    checksum: str


class Contents(NamedTuple):
    """What an artefact holds; arrays come back as read-only memory maps."""

    arrays: dict[str, AnyArray]
    tables: dict[str, pl.DataFrame]
    documents: dict[str, Any]
    info: dict[str, Any]


def digest(array: AnyArray) -> str:
    """Return the SHA-256 of an array's type, shape and bytes; a memory map is read piece by piece."""
    sha = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    for block in _blocks(array):
        sha.update(block)
    return sha.hexdigest()


def write(path: StrPath, format: str, version: int, contents: Contents, *, overwrite: bool = False) -> None:
    """Write `contents` to the directory `path`; if that fails, what was there before is unchanged."""
    folder = _folder(path)
    with _sole_writer(folder, format, {*contents.arrays, *contents.tables, *contents.documents}, overwrite) as made:
        files = {name: _write_array(folder, name, array) for name, array in contents.arrays.items()}
        files |= {name: _write_table(folder, name, table) for name, table in contents.tables.items()}
        files |= {name: _write_document(folder, name, document) for name, document in contents.documents.items()}
        manifest = msgspec.to_builtins(
            _Manifest(format, version, f"treeward {__version__}", files, contents.info, checksum="")
        )
        manifest["checksum"] = _checksum(manifest)
        made.manifest = _render(manifest)
        made.files = {MANIFEST, *(file.name for file in files.values())}
        part = folder / f"{MANIFEST}.part"
        _write_bytes(part, made.manifest)
        part.replace(folder / MANIFEST)  # the commit
        with suppress(OSError):  # some file systems cannot sync a folder
            sync_folder(folder)


def read(path: StrPath, format: str, version: int, *, verify: bool = True) -> Contents:
    """Read what `write` wrote, refusing anything else; ``verify=False`` compares sizes but not the data's hashes."""
    folder = _folder(path)
    manifest = _read_manifest(folder, format, version)
    while True:
        try:
            return _read_contents(folder, manifest, verify)
        except ArtefactCorrupt:
            # Another process may have replaced the artefact meanwhile, and removed the files of this version.
            newer = _read_manifest(folder, format, version)
            if newer.checksum == manifest.checksum:
                raise
            manifest = newer


def _read_contents(folder: Path, manifest: _Manifest, verify: bool) -> Contents:
    contents = Contents({}, {}, {}, manifest.info)
    for name, file in manifest.files.items():
        _check_file(folder, file, verify)
        try:
            _load_file(folder / file.name, name, file, contents)
        except (ValueError, OSError, EOFError, msgspec.DecodeError, pl.exceptions.PolarsError) as error:
            raise ArtefactCorrupt(f"{folder / file.name}: cannot be read: {error}") from error
    return contents


def is_artefact(path: StrPath) -> bool:
    """Return whether `path` is a directory with a manifest in it, readable or not."""
    try:
        return (_folder(path) / MANIFEST).is_file()
    except OSError:
        return True


def format_of(path: StrPath) -> str:
    """Return the kind of artefact at `path`, without checking that it is complete."""
    manifest = _folder(path) / MANIFEST
    try:
        found = msgspec.json.decode(manifest.read_bytes(), type=dict[str, Any])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtefactMissing(f"{path}: no {MANIFEST} here, so nothing that treeward saved") from error
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtefactCorrupt(f"{manifest}: cannot be read: {error}") from error
    return str(found.get("format"))


def write_file(path: StrPath, data: bytes) -> Path:
    """Write one file, such as a report, completely or not at all; a pipe or device is written to directly."""
    target = _folder(path)
    special = os.path.realpath(target.parent).startswith(("/dev", "/proc"))  # /dev/stdout may lead to a file
    if special or (target.exists() and not (target.is_file() or target.is_dir())):
        with _as_write_errors(target):
            target.write_bytes(data)
        return target
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    with _as_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                file.write(data)
                _sync(file)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target


def check_free(path: StrPath, format: str, names: Iterable[str], *, overwrite: bool = False) -> None:
    """Raise what `write` would raise for a path that exists or is not writable: for use before long work."""
    folder = _folder(path)
    with _as_write_errors(folder):
        _names_in(folder, format, set(names), overwrite)
        there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


class _Made:
    """What a write has created so far."""

    manifest = b""
    files: frozenset[str] | set[str] = frozenset()


def _folder(path: StrPath) -> Path:
    if "\0" in str(path):
        raise InvalidArgument("treeward", "path", "one without a null character", str(path))
    return Path(path)


@contextmanager
def _as_write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except ArtefactError:
        raise
    except OSError as error:
        raise ArtefactWrite(f"cannot write {folder}: {error.strerror or error}") from error


@contextmanager
def _sole_writer(folder: Path, format: str, stems: set[str], overwrite: bool) -> Iterator[_Made]:
    """Lock the folder; afterwards it holds the new artefact if that was committed, else what it held before."""
    with _as_write_errors(folder):
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        made, before = _Made(), None
        try:
            if not lock_whole(handle):
                raise ArtefactWrite(f"cannot write {folder}: another process is writing it")
            before = _names_in(folder, format, stems, overwrite)
            yield made
        finally:
            if before is not None:
                committed = made.manifest and _bytes_of(folder / MANIFEST) == made.manifest
                _remove_strays(folder, stems, keep=made.files if committed else before)
            for parent in missing:
                with suppress(OSError):  # not empty, unless the write failed
                    parent.rmdir()
            os.close(handle)


def _names_in(folder: Path, format: str, stems: set[str], overwrite: bool) -> set[str]:
    """Return the names in `folder`; refuse a folder with anything but an artefact of this format, or its leftovers.

    The stems of an artefact that is there are added to `stems`, so that its files are recognised.
    """
    if not folder.exists():
        return set()
    names = {entry.name for entry in folder.iterdir()}
    if MANIFEST in names:
        try:
            found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = {"format": format}
        if found.get("format") != format:
            raise ArtefactExists(f"{folder} holds {found.get('format')}, not {format}: choose another path")
        stems.update(found.get("files", {}))
    foreign = sorted(name for name in names if not _is_ours(name, stems))
    if foreign:
        raise ArtefactExists(f"{folder} holds files that are not treeward's ({foreign[0]}): choose another path")
    if MANIFEST in names and not overwrite:
        raise ArtefactExists(f"{folder} exists: choose another path, or overwrite it (--force, overwrite=True)")
    return names


def _is_ours(name: str, stems: set[str]) -> bool:
    if name in (MANIFEST, f"{MANIFEST}.part"):
        return True
    whole, part = _FINISHED.fullmatch(name), _UNFINISHED.fullmatch(name)
    return bool((whole and whole[1] in stems) or (part and part[1] in stems))


def _remove_strays(folder: Path, stems: set[str], keep: Set[str]) -> None:
    with suppress(OSError):
        for entry in folder.iterdir():
            if _is_ours(entry.name, stems) and entry.name not in keep:
                entry.unlink(missing_ok=True)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _blocks(array: AnyArray) -> Iterator[memoryview]:
    """Yield the bytes of an array in C order, a piece at a time."""
    flat = array.reshape(-1)
    step = max(1, _BLOCK // array.dtype.itemsize)
    for start in range(0, len(flat), step):
        yield np.ascontiguousarray(flat[start : start + step]).data.cast("B")


def _write_array(folder: Path, name: str, array: AnyArray) -> _File:
    array = np.ascontiguousarray(array)
    part = folder / f"{name}.npy.part"
    with _fresh(part) as file:
        # Not np.save: it writes through C's buffers, and does not notice a full disk.
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        for block in _blocks(array):
            file.write(block)
        _sync(file)
    return msgspec.structs.replace(_finish(part), dtype=array.dtype.str, shape=array.shape)


def _write_table(folder: Path, name: str, table: pl.DataFrame) -> _File:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    part = folder / f"{name}.parquet.part"
    _write_bytes(part, buffer.getbuffer())
    return _finish(part)


def _write_document(folder: Path, name: str, document: Any) -> _File:
    part = folder / f"{name}.json.part"
    _write_bytes(part, msgspec.json.encode(document))
    return _finish(part)


def _fresh(path: Path) -> io.BufferedWriter:
    """Create a file; leftovers of an earlier write, or a link that was planted here, are removed, not followed."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def _write_bytes(path: Path, data: bytes | memoryview) -> None:
    with _fresh(path) as file:
        file.write(data)
        _sync(file)


def _sync(file: io.BufferedWriter) -> None:
    file.flush()
    os.fsync(file.fileno())


def _finish(part: Path) -> _File:
    sha256, size = _hash_file(part)
    name, suffix, _ = part.name.split(".")
    final = part.with_name(f"{name}-{sha256[:16]}.{suffix}")
    part.replace(final)
    return _File(final.name, size, sha256)


def _hash_file(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _render(manifest: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2) + b"\n"


def _checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(_render(manifest | {"checksum": ""})).hexdigest()


_MAKERS = {
    "treeward.tree": ("a tree", "treeward tree build"),
    "treeward.catalogue": ("items", "treeward embed"),
    "treeward.crowd": ("a prior", "treeward prior fit"),
    "treeward.world": ("a world", "treeward world fit"),
    "treeward.neural": ("features", "treeward embed neural"),
    "treeward.dataset": ("a data set", "treeward data inspect --save"),
}


def _expected(format: str) -> str:
    """Return what a folder is expected to hold, and the command that makes it."""
    what, command = _MAKERS.get(format, (format, ""))
    return f"the folder should hold {what}" + (f", which `{command}` makes" if command else "")


def _read_manifest(folder: Path, format: str, version: int) -> _Manifest:
    path = folder / MANIFEST
    try:
        if path.is_symlink():
            raise ArtefactCorrupt(f"{path}: is a symbolic link")
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        why = f"there is no {MANIFEST}" if folder.exists() else "there is no such folder"
        raise ArtefactMissing(f"{folder}: holds nothing that treeward saved ({why}); {_expected(format)}") from error
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        loose = msgspec.json.decode(raw, type=dict[str, Any])
        # The bytes are compared as well, to catch a change that parses to the same values.
        if loose.get("checksum") != _checksum(loose) or raw != _render(loose):
            raise ArtefactCorrupt(f"{path}: its checksum does not match")
        found = loose.get("format"), loose.get("version")
        if found != (format, version):
            held = f"{path}: holds {found[0]} version {found[1]}, expected {format} version {version}"
            raise ArtefactVersion(held if found[0] == format else f"{held}; {_expected(format)}")
        return msgspec.convert(loose, _Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtefactCorrupt(f"{path}: {error}") from error


def _check_file(folder: Path, file: _File, verify: bool) -> None:
    if not _FINISHED.fullmatch(file.name):
        raise ArtefactCorrupt(f"{folder / MANIFEST}: names {file.name!r}, which treeward does not write")
    path = folder / file.name
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise ArtefactCorrupt(f"{path}: is not a plain file")
        if status.st_size != file.bytes:
            raise ArtefactCorrupt(f"{path}: is {status.st_size} bytes long, not {file.bytes}")
        if verify and _hash_file(path)[0] != file.sha256:
            raise ArtefactCorrupt(f"{path}: its SHA-256 does not match the manifest")
    except OSError as error:
        raise ArtefactCorrupt(f"{path}: cannot be read: {error.strerror}") from error


def _load_file(path: Path, name: str, file: _File, contents: Contents) -> None:
    if path.suffix == ".npy":
        array = open_npy(path)
        if (array.dtype.str, array.shape) != (file.dtype, file.shape):
            raise ValueError(f"holds {array.dtype.str}{array.shape}, the manifest says {file.dtype}{file.shape}")
        contents.arrays[name] = np.asarray(array)
    elif path.suffix == ".parquet":
        contents.tables[name] = pl.read_parquet(path)
    else:
        contents.documents[name] = msgspec.json.decode(path.read_bytes())
