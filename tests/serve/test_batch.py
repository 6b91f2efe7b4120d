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
