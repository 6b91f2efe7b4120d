"""Putting a backup in place of a store, so that a crash half-way never mixes two stores."""

import os
import secrets
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from treeward.core.errors import InvalidArgument, StoreDamaged, StoreError
from treeward.core.files import sync_folder
from treeward.core.progress import Progress, silent
from treeward.store import write_ahead
from treeward.store.check import Report, check, copy_at_rest, copy_private
from treeward.store.journal import connect


class Restored(NamedTuple):
    """The result of a restore."""

    report: Report
    """Of the backup."""
    kept: Path | None
    """The former store; None if there was none."""


def restore(backup: str | Path, store: str | Path, progress: Progress = silent) -> Restored:
    """Put a backup in place of a store, after checking all of it; the former store is kept under another name.

    Nothing changes if the backup is damaged, or if a service has the store open.
    """
    source, target = Path(backup), Path(store)
    if not source.is_file():
        raise StoreError(f"{source}: there is no such backup")
    if target.is_dir() or (target.exists() and target.samefile(source)):
        raise InvalidArgument("restore", "STORE", "a file other than the backup", str(target))
    write_ahead.refuse_if_used(target)
    target = target.resolve()  # a link stays a link
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        copy_at_rest(source, part)
        report = _checked(part, source, progress)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        kept = _replaced(target, part)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreError(f"{target}: could not be restored ({error})") from error
    finally:
        for left in (part, write_ahead.log_of(part)):
            left.unlink(missing_ok=True)
    return Restored(report, kept)


def _checked(part: Path, source: Path, progress: Progress) -> Report:
    """Check a copy of the backup, and give it a token of its own; errors name the backup."""
    try:
        report = check(part, progress)
    except StoreError as error:
        raise type(error)(f"{str(error).replace(str(part), str(source))}; nothing was restored") from error
    if report.problems:
        raise StoreDamaged(f"{source}: {report.problems[0].replace(str(part), str(source))}; nothing was restored")
    with closing(connect(part, create=False)) as file:
        write_ahead.renew(file)
    return report


def _replaced(target: Path, part: Path) -> Path | None:
    """Put a file in place of a store, and return the path of the former store; on an error nothing has changed.

    The log is moved before the file is replaced: a file without its log is refused, never served. The file is replaced
    in one step, so that a service never finds the name unused and starts with an empty store.
    """
    there = target.exists()
    kept = target.with_name(f"{target.name}.before-restore-{_moment()}")
    moved: list[tuple[Path, Path]] = []
    try:
        if there:
            _keep(target, kept)
        for suffix in ("-wal", "-journal"):
            old = target.with_name(target.name + suffix)
            if old.exists():
                moved.append((old, old.replace(kept.with_name(kept.name + suffix))))
        part.replace(target)
    except OSError:
        for old, now in moved:
            now.replace(old)
        kept.unlink(missing_ok=True)
        raise
    return kept if there else None


def _keep(target: Path, kept: Path) -> None:
    try:
        os.link(target, kept)
    except OSError:  # a file system without links
        copy_private(target, kept)


def _moment() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
