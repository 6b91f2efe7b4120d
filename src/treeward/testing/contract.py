"""`ContractBroken`, and helpers that raise it."""

from collections.abc import Callable


class ContractBroken(AssertionError):
    """A promise was not kept."""


def require(kept: object, promise: str) -> None:
    """Raise unless a promise was kept."""
    if not kept:
        raise ContractBroken(f"broken: {promise}")


def refuses(call: Callable[[], object], kind: type[Exception], promise: str) -> None:
    """Raise unless a call raises an error of that kind."""
    try:
        call()
    except kind:
        return
    except Exception as error:
        raise ContractBroken(f"broken: {promise}, not {error!r}") from error
    raise ContractBroken(f"broken: {promise}")
