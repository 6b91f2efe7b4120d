"""The HTTP service: one explorer behind a few routes. Needs the extra `serve`."""

from treeward.serve.settings import Settings, read_settings

__all__ = ["Settings", "read_settings"]
