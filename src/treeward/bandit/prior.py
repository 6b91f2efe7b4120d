"""What is believed of a user before their first event."""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeward.core.errors import InvalidArgument
from treeward.engine.posterior import Start


@dataclass(frozen=True, eq=False)
class Prior:
    """theta ~ N(mean, covariance / ridge), in every slot: A = ridge * covariance^-1 and b = A mean at the start.

    Parameters
    ----------
    mean
        (d,) numbers; by default zero.
    covariance
        (d, d), symmetric and positive definite; by default the identity. The ridge is the bandit's.

    Examples
    --------
    >>> start = Prior(mean=[1, 0], covariance=[[0.5, 0], [0, 2]]).start(2, ridge=1.0)
    >>> start.theta, start.precision.diagonal()
    (array([1., 0.], dtype=float32), array([2. , 0.5]))
    """

    mean: ArrayLike | None = None
    covariance: ArrayLike | None = None

    @property
    def informed(self) -> bool:
        """Whether it says what people like, so that little has to be explored: it has a mean."""
        return self.mean is not None

    @property
    def digest(self) -> str:
        """The SHA-256 of its numbers: a tree records which prior it was built with."""
        parts = (None if part is None else np.asarray(part, dtype=np.float64) for part in (self.mean, self.covariance))
        return sha256(b"".join(b"none" if part is None else part.tobytes() for part in parts)).hexdigest()

    def start(self, dim: int, ridge: float) -> Start:
        """Return the posterior before the first event, checked."""
        mean = np.zeros(dim) if self.mean is None else _numbers("mean", self.mean, (dim,))
        spread = np.eye(dim) if self.covariance is None else _numbers("covariance", self.covariance, (dim, dim))
        rule = "symmetric and positive definite"
        if not np.allclose(spread, spread.T, rtol=1e-6, atol=1e-12):
            raise InvalidArgument("Prior", "covariance", rule, "another transpose")
        spread = (spread + spread.T) / 2
        lowest = float(np.linalg.eigvalsh(spread)[0])
        if not lowest > 1e-10 * float(np.abs(spread).max()):
            raise InvalidArgument("Prior", "covariance", rule, f"a lowest eigenvalue of {lowest:.3g}")
        precision = ridge * np.linalg.inv(spread)
        precision = (precision + precision.T) / 2
        return Start(
            precision, precision @ mean, (spread / ridge).astype(np.float32), np.ascontiguousarray(mean, np.float32)
        )


def _numbers(parameter: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    try:
        made = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgument("Prior", parameter, f"numbers of shape {shape}", value) from error
    if made.shape != shape or not np.isfinite(made).all():
        raise InvalidArgument("Prior", parameter, f"finite numbers of shape {shape}", f"shape {made.shape}")
    return made
