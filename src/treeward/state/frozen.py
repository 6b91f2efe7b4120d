"""One user's state as bytes: the user's row of every array, and the user's lists. Equal states are equal bytes."""

from collections.abc import Iterator

import numpy as np

from treeward.core.types import AnyArray
from treeward.engine.history import History
from treeward.engine.layout import State
from treeward.engine.posterior import BLOCK
from treeward.engine.ragged import Lists

_OF_ALL = {"prior_precision", "prior_moment", "work", "wide"}
"""Arrays without a row per seat: the prior follows from the plan, the others are room to work in."""


def freeze(state: State, seat: int) -> bytes:
    """Return a seat's state."""
    posterior = state.posterior
    waiting = np.arange(BLOCK) < (posterior.pulls[seat] % BLOCK)[:, None]
    posterior.pending[seat][~waiting] = 0  # nothing reads these again
    return b"".join(row.tobytes() for row in _rows(state, seat))


def _rows(state: State, seat: int) -> Iterator[AnyArray]:
    """Yield all that is known of a seat's user, as views."""
    for part in state:
        if isinstance(part, Lists):
            yield part.of(seat)
        elif isinstance(part, History):
            yield part.places.of(seat)
            yield part.places._replace(values=part.rewards).of(seat)  # type: ignore[arg-type]  # laid out alike
        else:
            yield from (array[seat] for name, array in part._asdict().items() if name not in _OF_ALL)
