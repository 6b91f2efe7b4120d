"""`benchmarks/wrk.py`: what needs neither wrk nor time."""

from pathlib import Path

import pytest


@pytest.fixture
def wrk(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import wrk

    return wrk


def test_measurement_is_found_among_the_lines_of_wrk(wrk):
    line = '@measured {"requests":100,"seconds":2.0,"p50":0.001,"p99":0.002,"p999":0.003,"wrong":20,"broken":0}'
    found = wrk.parsed(f"Running 1s test @ http://127.0.0.1:1\n  100 requests in 2.0s\n{line}\n")
    assert (found.requests, found.p50, found.p99, found.p999) == (100, 0.001, 0.002, 0.003)
    assert found.rate == 40  # only what was answered well


def test_output_without_a_measurement_is_an_error(wrk):
    with pytest.raises(ValueError, match="wrk printed no measurement"):
        wrk.parsed("unable to connect to 127.0.0.1:1")
