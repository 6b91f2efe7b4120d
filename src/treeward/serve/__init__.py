"""The HTTP service: one explorer behind a few routes. Needs the extra `serve`."""

import treeward.core.locks  # noqa: F401  # refuses a system that treeward cannot run on, in words
from treeward.serve.settings import Settings, read_settings

__all__ = ["Settings", "read_settings"]
