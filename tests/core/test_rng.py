import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import naive
from treeward.core import rng
from treeward.core.errors import InvalidArgument

NUMBERS = st.integers(0, 2**63 - 1)

# The known answers published with the algorithm (Random123's kat_vectors): counter words, key words, result.
KNOWN = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
]


@pytest.mark.parametrize(("block", "key", "expected"), KNOWN)
def test_philox_gives_the_published_numbers(block, key, expected):
    joined = [low | high << 32 for low, high in (block[:2], block[2:], key)]
    counter, stream, seed = (np.uint64(value) for value in joined)
    assert [int(word) for word in rng.philox(seed, stream, counter)] == expected
    assert list(naive.philox(joined[2], joined[1], joined[0])) == expected


@given(NUMBERS, NUMBERS, NUMBERS)
def test_philox_equals_its_naive_twin(seed, stream, counter):
    assert tuple(int(word) for word in rng.philox(seed, stream, counter)) == naive.philox(seed, stream, counter)


@given(NUMBERS, NUMBERS, st.integers(0, 2**62), st.integers(1, 20))
def test_array_draws_equal_single_draws(seed, stream, start, count):
    assert rng.uniforms(seed, stream, count, start).tolist() == [
        rng.uniform(seed, stream, start + i) for i in range(count)
    ]
    assert rng.normals(seed, stream, count, start).tolist() == [
        rng.normal(seed, stream, start + i) for i in range(count)
    ]


@given(NUMBERS, NUMBERS, st.integers(1, 50), st.data())
def test_sample_is_without_replacement(seed, stream, population, data):
    count = data.draw(st.integers(0, population))
    drawn = rng.sample(seed, stream, population, count).tolist()
    assert len(drawn) == len(set(drawn)) == count
    assert all(0 <= value < population for value in drawn)


@given(NUMBERS, NUMBERS, NUMBERS, st.integers(1, 2**31))
def test_below_stays_within_its_limit(seed, stream, counter, limit):
    assert 0 <= rng.below(seed, stream, counter, limit) < limit


def test_draws_look_uniform_and_normal():
    draws = 4_000
    flat = rng.uniforms(1, 2, draws)
    counts = np.bincount((flat * 20).astype(int), minlength=20)
    assert ((counts - draws / 20) ** 2 / (draws / 20)).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
    bell = rng.normals(1, 3, draws)
    assert abs(bell.mean()) < 3.3 / draws**0.5
    assert abs(bell.var() - 1) < 3.3 * (2 / draws) ** 0.5
    assert 0.03 < (np.abs(bell) > 1.96).mean() < 0.07


def test_sample_is_uniform_in_every_position():
    firsts = np.bincount([rng.sample(7, stream, 5, 2)[0] for stream in range(1000)], minlength=5)
    assert ((firsts - 200) ** 2 / 200).sum() < 18.5  # 4 degrees of freedom, p = 0.001


def test_streams_and_seeds_are_independent():
    a, b, c = rng.uniforms(0, 0, 2000), rng.uniforms(0, 1, 2000), rng.uniforms(1, 0, 2000)
    for one, other in ((a, b), (a, c), (b, c), (a[1:], a[:-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.08


@pytest.mark.parametrize("count", [-1, 6])
def test_sample_larger_than_the_population_is_refused(count):
    with pytest.raises(InvalidArgument, match="count must be from 0 to the population"):
        rng.sample(0, 0, 5, count)


def test_different_names_give_different_streams():
    assert rng.stream("a", "b") != rng.stream("ab") != rng.stream("a", 1) != rng.stream("a", "1")
    assert 0 <= rng.stream("anything") < 2**63
