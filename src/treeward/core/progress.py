"""Progress of long work: a function of (stage, done, total)."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


class Stage:
    """Counts the steps of one stage and reports them."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self.progress, self.name, self.total, self.done = progress, name, total, 0
        progress(name, 0, total)

    def step(self, steps: int = 1) -> None:
        """Count steps and report them."""
        self.done += steps
        self.progress(self.name, self.done, self.total)

    def finish(self) -> None:
        """Report the end, even if fewer steps were needed than expected."""
        self.progress(self.name, self.done, self.done)
