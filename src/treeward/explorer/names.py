"""Who may be a user."""

from collections.abc import Iterable, Sequence

import numpy as np

from treeward.core.errors import InvalidArgument
from treeward.store.base import User

LONGEST = 512
"""Characters of a user's name."""


def users_of(owner: str, users: Sequence[User]) -> list[User]:
    """Return users as plain strings and integers, checked: all can be users, and no two are the same."""
    if isinstance(users, str | bytes) or not isinstance(users, Iterable):
        raise InvalidArgument(owner, "users", "a list of users", users)
    who: list[User] = []
    for user in users:
        whole = isinstance(user, int | np.integer) and not isinstance(user, bool)
        if not (whole and -(2**63) <= int(user) < 2**63) and not (isinstance(user, str) and _is_name(user)):
            raise InvalidArgument(owner, "users", f"strings of at most {LONGEST} characters, or 64-bit integers", user)
        who.append(int(user) if whole else str(user))
    if len(set(who)) != len(who):
        raise InvalidArgument(owner, "users", "all different (ask for n items instead)", users)
    return who


def _is_name(user: str) -> bool:
    try:
        user.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return len(user) <= LONGEST
