"""What a column of a table may be."""

ITEM_ROLES = ("id", "vector", "title", "category")
LOG_ROLES = ("user", "item", "reward", "action", "time")
