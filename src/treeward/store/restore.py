"""Put a backup in the place of a store, so that a crash half-way never leaves two stores mixed."""

import os
import secrets
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from treeward.core.errors import InvalidArgument, StoreDamaged, StoreError, StoreInUse
from treeward.core.progress import Progress, silent
from treeward.store import write_ahead
from treeward.store.check import Report, check


class Restored(NamedTuple):
    """What was done."""

    report: Report
    """What the backup holds."""
    kept: Path | None
    """Where the former store is now; None: there was none."""


def restore(backup: str | Path, store: str | Path, progress: Progress = silent) -> Restored:
    """Put a backup in the place of a store, after checking all of it; the former store is kept under another name.

    Nothing is changed if the backup is damaged, or if a service has the store open.
    """
    source, target = Path(backup), Path(store)
    if not source.is_file():
        raise StoreError(f"{source}: there is no such backup")
    if target.is_dir() or (target.exists() and target.samefile(source)):
        raise InvalidArgument("restore", "STORE", "a file other than the backup", str(target))
    _refuse_if_used(target)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        _copy(source, part)
        if write_ahead.log_of(source).exists():
            _copy(write_ahead.log_of(source), write_ahead.log_of(part))
        report = _checked(part, source, progress)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        kept = _keep(target)
        part.replace(target)
        _sync_folder(target.absolute().parent)
    except OSError as error:
        raise StoreError(f"{target}: could not be restored ({error})") from error
    finally:
        for left in (part, write_ahead.log_of(part)):
            left.unlink(missing_ok=True)
    return Restored(report, kept)


def _checked(part: Path, source: Path, progress: Progress) -> Report:
    """Check a copy of the backup, which also gives it a token of its own; problems are said of the backup."""
    try:
        report = check(part, progress)
    except StoreError as error:
        raise type(error)(f"{str(error).replace(str(part), str(source))}; nothing was restored") from error
    if report.problems:
        raise StoreDamaged(f"{source}: {report.problems[0].replace(str(part), str(source))}; nothing was restored")
    return report


def _refuse_if_used(target: Path) -> None:
    if not target.exists():
        return
    address = f"{target.absolute().as_uri()}?mode=ro"
    try:
        with write_ahead.without_traces(target), closing(sqlite3.connect(address, uri=True, timeout=0.2)) as file:
            file.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except sqlite3.Error as error:  # a damaged one is what a backup is for
        if "locked" in str(error):
            raise StoreInUse(f"{target}: a service has it open; stop it, then restore") from error


def _keep(target: Path) -> Path | None:
    """Give the former store another name. Its log goes first: the file alone is then refused, never served."""
    log = write_ahead.log_of(target)
    if not target.exists():
        if log.exists():  # of a file that is gone; it must not meet the restored one
            log.replace(log.with_name(f"{log.name}.{_moment()}"))
        return None
    kept = target.with_name(f"{target.name}.before-restore-{_moment()}")
    if log.exists():
        log.replace(write_ahead.log_of(kept))
    os.link(target, kept)  # the name itself is only replaced: at no time is there no store
    return kept


def _moment() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"


def _copy(source: Path, target: Path) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    shutil.copyfile(source, target)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
