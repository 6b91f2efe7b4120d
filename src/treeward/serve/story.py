"""A user's history in a few parts, from which a page draws how rewards changed with time."""

import numpy as np

from treeward.core.types import AnyArray
from treeward.serve import wire
from treeward.store.events import NOTED, REWARD, SHOWN

_PARTS = 30


def story(events: AnyArray) -> list[wire.Part]:
    """Return events in at most thirty parts of about equal length; each begins where an item was shown."""
    shown = events["kind"] == SHOWN
    begins = np.flatnonzero(shown)
    if not len(begins):  # imported events may be rewards only
        begins = np.arange(len(events))
    chosen = begins[np.arange(min(_PARTS, len(begins))) * len(begins) // max(min(_PARTS, len(begins)), 1)]
    edges = np.append(chosen, len(events))
    edges[0] = 0
    columns = (shown, np.isin(events["kind"], (REWARD, NOTED)), np.where(shown, 0.0, events["reward"]))
    shows, rewards, earned = (np.concatenate([[0], np.cumsum(one)]) for one in columns)
    return [
        wire.Part(last, int(shows[last] - shows[first]), int(rewards[last] - rewards[first]),
                  round(float(earned[last] - earned[first]), 6))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        if last > first
    ]  # fmt: skip
