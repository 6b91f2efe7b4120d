"""Random draws that are pure functions of (seed, stream, counter), the same inside and outside compiled code.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the seed is its
key, and the 128-bit block number is made of the stream (high half) and the counter (low half). There is no state to
carry, to share between threads or to save: the three numbers determine the draw.

Seeds, streams and counters are integers from 0 to 2**63 - 1.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from treeward.core.compiled import inner, kernel
from treeward.core.errors import InvalidArgument

# Every value below stays under 2**64, so the interpreted code needs no modular arithmetic of its own.
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLY_0 = np.uint64(0xD2511F53)
_MULTIPLY_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_ONE = np.uint64(1)
_TOP_27 = np.uint64(5)
_TOP_26 = np.uint64(6)


def stream(*parts: str | int) -> int:
    """Return the number of a stream, below 2**63, from a name of strings and integers.

    Examples
    --------
    >>> stream("tree", 2) == stream("tree", 2) != stream("tree", 3)
    True
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@inner
def philox(seed: int, stream: int, counter: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return four independent 32-bit numbers (as uint64)."""
    block, key, lane = np.uint64(counter), np.uint64(seed), np.uint64(stream)
    x0, x1 = block & _LOW, block >> _SHIFT
    x2, x3 = lane & _LOW, lane >> _SHIFT
    k0, k1 = key & _LOW, key >> _SHIFT
    for _ in range(10):
        p0 = _MULTIPLY_0 * x0
        p1 = _MULTIPLY_1 * x2
        x0, x1, x2, x3 = (p1 >> _SHIFT) ^ x1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ x3 ^ k1, p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return x0, x1, x2, x3


@inner
def uniform(seed: int, stream: int, counter: int) -> float:
    """Return a float64 in [0, 1) with 53 random bits.

    Examples
    --------
    >>> round(uniform(0, 0, 0), 6)
    0.399046
    """
    a, b, _, _ = philox(seed, stream, counter)
    return (float(a >> _TOP_27) * 67108864.0 + float(b >> _TOP_26)) / 9007199254740992.0


@inner
def below(seed: int, stream: int, counter: int, limit: int) -> int:
    """Return an integer in [0, limit); the bias is at most limit / 2**53."""
    return int(uniform(seed, stream, counter) * limit)


@inner
def normal(seed: int, stream: int, counter: int) -> float:
    """Return a standard normal float64 (Box-Muller on the four words of one block)."""
    a, b, c, d = philox(seed, stream, counter)
    radius = (float(a >> _TOP_27) * 67108864.0 + float(b >> _TOP_26) + 1.0) / 9007199254740992.0
    angle = (float(c >> _TOP_27) * 67108864.0 + float(d >> _TOP_26)) / 9007199254740992.0
    return math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)


@inner
def lane(seed: int, stream: int, counter: int) -> int:
    """Return the number of a new stream, below 2**63, for everything that belongs to one counter of a stream.

    Examples
    --------
    >>> lane(0, 1, 2) == lane(0, 1, 2) != lane(0, 1, 3)
    True
    """
    a, b, _, _ = philox(seed, stream, counter)
    return int((a << _SHIFT | b) >> _ONE)


@kernel(allocates=False, inline=True)
def _fill_uniform(seed: int, stream: int, start: int, out: NDArray[np.float64]) -> None:
    for i in range(len(out)):
        out[i] = uniform(seed, stream, start + i)


@kernel(allocates=False, inline=True)
def _fill_normal(seed: int, stream: int, start: int, out: NDArray[np.float64]) -> None:
    for i in range(len(out)):
        out[i] = normal(seed, stream, start + i)


@kernel(allocates=False, inline=True)
def _fill_lanes(seed: int, streams: NDArray[np.int64], counters: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    for i in range(len(out)):
        out[i] = lane(seed, streams[i], counters[i])


@kernel(allocates=False, inline=True)
def _fill_coins(seed: int, streams: NDArray[np.int64], counter: int, out: NDArray[np.float64]) -> None:
    for i in range(len(out)):
        out[i] = uniform(seed, streams[i], counter)


@kernel(allocates=False, inline=True)
def _swap_to_front(seed: int, stream: int, pool: NDArray[np.int64], count: int) -> None:
    for i in range(count):
        j = i + below(seed, stream, i, len(pool) - i)
        pool[i], pool[j] = pool[j], pool[i]


def uniforms(seed: int, stream: int, count: int, start: int = 0) -> NDArray[np.float64]:
    """Return the draws `uniform` gives for the counters from `start` on."""
    out = np.empty(count)
    _fill_uniform(seed, stream, start, out)
    return out


def normals(seed: int, stream: int, count: int, start: int = 0) -> NDArray[np.float64]:
    """Return the draws `normal` gives for the counters from `start` on."""
    out = np.empty(count)
    _fill_normal(seed, stream, start, out)
    return out


def lanes(seed: int, streams: NDArray[np.int64], counters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `lane` for every pair of a stream and a counter."""
    out = np.empty(len(streams), dtype=np.int64)
    _fill_lanes(seed, streams, counters, out)
    return out


def uniforms_of(seed: int, streams: NDArray[np.int64], counter: int) -> NDArray[np.float64]:
    """Return the draw `uniform` gives for one counter of every stream."""
    out = np.empty(len(streams))
    _fill_coins(seed, streams, counter, out)
    return out


def sample(seed: int, stream: int, population: int, count: int) -> NDArray[np.int64]:
    """Return `count` different integers below `population`, in random order.

    Examples
    --------
    >>> sample(0, 0, 5, 5)
    array([1, 4, 2, 0, 3])
    """
    if not 0 <= count <= population:
        raise InvalidArgument("rng.sample", "count", f"from 0 to the population ({population})", count)
    pool = np.arange(population)
    _swap_to_front(seed, stream, pool, count)
    return pool[:count].copy()


def subset(seed: int, stream: int, population: int, most: int) -> NDArray[np.int64]:
    """Return all integers below `population` in order, or `most` of them drawn at random if there are more.

    Examples
    --------
    >>> subset(0, 0, 5, 3), subset(0, 0, 2, 3)
    (array([1, 2, 4]), array([0, 1]))
    """
    return np.arange(population) if population <= most else np.sort(sample(seed, stream, population, most))
