"""Every error treeward raises on purpose.

::

    TreewardError
    ├── InvalidArgument     (ValueError)         a parameter breaks its rule
    ├── UnknownId           (KeyError)           an id that is not in the catalogue
    ├── UnknownDecision     (KeyError)           a decision id from elsewhere, or of a forgotten user
    ├── FeedbackConflict    (ValueError)         another reward for a decision that has one already
    ├── FeedbackLate        (ValueError)         feedback after its time window
    ├── NothingLeft         (ValueError)         fewer items to show than were asked for
    ├── ExtraMissing        (ImportError)        a package of an extra is not installed
    ├── PlatformUnsupported                      this operating system lacks what treeward needs
    ├── DataError           (ValueError)         a file the caller gave does not hold what it should
    ├── StoreError                               a store of events
    │   ├── StoreInUse                           another process has it open
    │   ├── StoreDamaged                         bytes differ from what was written
    │   ├── StoreVersion                         a version that this treeward does not know, or not a store
    │   └── StoreFailed     (OSError)            could not be written, or is closed; accepts nothing more
    └── ArtefactError                            something treeward saved
        ├── ArtefactMissing (FileNotFoundError)  nothing there, or not written by treeward
        ├── ArtefactExists  (FileExistsError)    would overwrite
        ├── ArtefactCorrupt                      bytes differ from what was written
        ├── ArtefactVersion                      a kind or version this treeward does not know
        └── ArtefactWrite   (OSError)            could not be written; nothing has changed
"""

import sys
from typing import Self


class TreewardError(Exception):
    """The root of the tree above: ``except TreewardError`` catches all of it."""


class InvalidArgument(TreewardError, ValueError):
    """A parameter breaks its rule. All such messages have the same shape.

    Examples
    --------
    >>> str(InvalidArgument("ItemTree.build", "widths", "strictly increasing", (10, 5)))
    'ItemTree.build: widths must be strictly increasing, got (10, 5)'
    """

    def __init__(self, owner: str, parameter: str, rule: str, value: object) -> None:
        self.owner, self.parameter, self.rule, self.value = owner, parameter, rule, value
        shown = repr(value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        super().__init__(f"{owner}: {parameter} must be {rule}, got {shown}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str, object]]:  # a worker process sends it back
        return type(self), (self.owner, self.parameter, self.rule, self.value)


class UnknownId(TreewardError, KeyError):
    """An id that is not in the catalogue."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownDecision(TreewardError, KeyError):
    """A decision id that is malformed, forged, or belongs to a user who was forgotten."""

    def __str__(self) -> str:
        return str(self.args[0])


class FeedbackConflict(TreewardError, ValueError):
    """A decision that has a reward got another one, and settings reject that."""


class FeedbackLate(TreewardError, ValueError):
    """Feedback came after its time window."""


class NothingLeft(TreewardError, ValueError):
    """Fewer items may be shown to a user than were asked for."""


class ExtraMissing(TreewardError, ImportError):
    """A package that comes with an extra is not installed.

    Examples
    --------
    >>> str(ExtraMissing.of("treeward serve", "uvicorn", "serve"))
    "treeward serve needs uvicorn: pip install 'treeward[serve]'"
    """

    @classmethod
    def of(cls, what: str, package: str | None, extra: str) -> Self:
        """Return the error that says what needs which package, and how to install it."""
        return cls(f"{what} needs {package}: pip install 'treeward[{extra}]'")


class PlatformUnsupported(TreewardError):
    """The operating system lacks what treeward needs: on Windows, its file locks."""

    @classmethod
    def here(cls) -> Self:
        """Return the error that names this system."""
        return cls(f"treeward needs Linux or macOS, got {sys.platform!r}; on Windows, run it in WSL or a container")


class DataError(TreewardError, ValueError):
    """A file or table the caller gave does not hold what it should."""


class StoreError(TreewardError):
    """A store of events cannot be opened, read or written."""


class StoreInUse(StoreError):
    """Another process has the store open."""


class StoreDamaged(StoreError):
    """The bytes in the store are not the bytes that were written."""


class StoreVersion(StoreError):
    """The store has a version that this treeward does not know, or the file is not a store."""


class StoreFailed(StoreError, OSError):
    """A write did not reach the disk, or the store is closed: it accepts nothing until it is opened again."""

    def __str__(self) -> str:
        return str(self.args[0])


class ArtefactError(TreewardError):
    """Something treeward saved cannot be read or written."""


class ArtefactMissing(ArtefactError, FileNotFoundError):
    """Nothing is there, or treeward did not write it."""


class ArtefactExists(ArtefactError, FileExistsError):
    """Something is at the path already."""


class ArtefactCorrupt(ArtefactError):
    """The bytes on disk are not the bytes that were written."""


class ArtefactVersion(ArtefactError):
    """A kind or format version that this version of treeward does not know."""


class ArtefactWrite(ArtefactError, OSError):
    """The artefact could not be written; what was there before is unchanged."""
