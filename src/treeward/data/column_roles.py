"""The roles that columns of a table may have."""

from collections.abc import Iterable, Mapping, Sequence

from treeward.core.errors import DataError

ITEM_ROLES = ("id", "vector", "title", "category")
LOG_ROLES = ("user", "item", "reward", "action", "time")


def check_roles(columns: Iterable[str], roles: Sequence[str]) -> None:
    """Refuse a role that does not exist."""
    for role in columns:
        if role not in roles:
            raise DataError(f"cannot map a column to {role!r}: the roles are {', '.join(roles)}")


def split_roles(columns: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns of a log and those of items, by role.

    Examples
    --------
    >>> split_roles({"user": "visitor", "id": "sku"})
    ({'user': 'visitor'}, {'id': 'sku'})
    """
    check_roles(columns, (*LOG_ROLES, *ITEM_ROLES))
    of_log, of_items = ({role: columns[role] for role in columns if role in roles} for roles in (LOG_ROLES, ITEM_ROLES))
    return of_log, of_items
