import threading
import time

import pytest
from threadpoolctl import threadpool_info

from treeward.core.errors import InvalidArgument
from treeward.core.parallel import cores, workers


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_results_keep_the_order_of_the_pieces():
    def slow_first(piece):
        time.sleep(0.02 if piece == 0 else 0)
        return piece

    with workers(3) as pool:
        assert list(pool.map(slow_first, range(20))) == list(range(20))


def test_map_holds_only_a_few_results():
    started = []
    with workers(1) as pool:
        results = pool.map(started.append, range(100))
        next(results)
        time.sleep(0.05)
        assert len(started) < 10


def test_error_in_a_piece_is_raised_and_cancels_the_rest():
    ran = []

    def work(piece):
        ran.append(piece)
        if piece == 3:
            raise KeyError("three")

    with pytest.raises(KeyError, match="three"), workers(2) as pool:
        pool.each(work, range(1000))
    assert len(ran) < 20


def test_blas_uses_one_thread_inside_a_pool():
    before, inside = blas_threads(), []

    def other():
        with workers(1):
            inside.append(blas_threads())

    thread = threading.Thread(target=other)
    with workers(1), workers(1):
        thread.start()
        time.sleep(0.05)
        assert inside == []  # it waits
        assert blas_threads() == {1}
    thread.join()
    assert inside == [{1}]
    assert blas_threads() == before


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_thread_counts_are_checked(threads):
    with pytest.raises(InvalidArgument, match="threads must be an integer of at least 1"), workers(threads):
        pass


def test_cores_counts_at_least_one():
    assert cores() >= 1
