"""A log of items shown at random, as of a shop that does not personalise."""

from collections.abc import Sequence

import numpy as np

from treeward.core import checks, rng
from treeward.core.checks import Count, Seed
from treeward.core.errors import InvalidArgument
from treeward.data.interactions import Interactions
from treeward.simulate.world import World


@checks.checked()
def random_log(world: World, users: Sequence[int], shown: Count = 100, seed: Seed = 0) -> Interactions:
    """Return clicks (1) and skips (0) of some of a world's users on items drawn uniformly from the catalogue.

    Parameters
    ----------
    world
        The world that answers.
    users
        Which users, by number; the log has their ids if the world has any.
    shown
        How many items each user was shown; an item may occur twice.
    seed
        Same seed: same log.

    Examples
    --------
    >>> world = World.synthetic(items=500, users=20, dim=4, seed=0)
    >>> random_log(world, range(10), shown=30)
    Interactions(300 events, 10 users, 228 items)
    """
    if not len(users):
        raise InvalidArgument("random_log", "users", "at least one", "none")
    who = np.repeat(np.asarray(users, dtype=np.int64), shown)
    drawn, luck = rng.uniforms(seed, rng.stream("logged"), 2 * len(who)).reshape(2, -1)
    rows = (drawn * len(world.catalogue)).astype(np.int64)
    clicked = (luck < world.chances(who, rows)).astype(np.float64)
    names = who if world.user_ids is None else world.user_ids[who]
    return Interactions(names, world.catalogue.ids[rows], rewards=clicked)
