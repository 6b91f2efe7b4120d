"""Batches of requests."""

import asyncio
import threading

import pytest

from treeward.serve.batch import Batcher, Full


def test_a_batch_is_accepted_whole_or_not_at_all():
    async def go():
        gate = threading.Event()
        batcher = Batcher("test", lambda asked: (gate.wait(5), list(asked))[1], 10)
        batcher.start()
        first = batcher.ask_many(range(30))  # an empty queue accepts any number
        with pytest.raises(Full):
            batcher.ask_many([1])
        with pytest.raises(Full):
            batcher.ask(1)
        gate.set()
        assert await asyncio.gather(*first) == list(range(30))
        assert batcher.waiting == 0
        assert await batcher.ask(5) == 5
        await asyncio.to_thread(batcher.close)

    asyncio.run(go())


def test_slow_requests_are_prepared_aside_and_then_answered_with_the_others():
    async def go():
        gate, prepared, answered = threading.Event(), [], []

        def prepare(asked):
            assert gate.wait(60)
            prepared.extend(asked)

        def work(asked):
            answered.extend(asked)
            return [-one for one in asked]

        batcher = Batcher("test", work, 100, slow=lambda asked: asked >= 10, prepare=prepare)
        batcher.start()
        slow, quick = batcher.ask_many([10, 11, 12]), batcher.ask_many([1, 2, 3])
        assert await asyncio.gather(*quick) == [-1, -2, -3], "they need not wait"
        assert not any(one.done() for one in slow)
        assert batcher.waiting == 3
        await batcher.passed()
        gate.set()
        assert await asyncio.gather(*slow) == [-10, -11, -12]
        assert (sorted(prepared), sorted(answered)) == ([10, 11, 12], [1, 2, 3, 10, 11, 12])
        assert batcher.waiting == 0
        last = batcher.ask_many([20, 4])
        await asyncio.to_thread(batcher.close)
        assert await asyncio.gather(*last) == [-20, -4], "the last are answered before the end"

    asyncio.run(go())
