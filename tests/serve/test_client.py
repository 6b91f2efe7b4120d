"""The clients, sync and async, and the example shop that uses one."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.waiting import wait_until
from treeward.client import AsyncClient, Client, ServiceError


def test_both_clients_recommend_give_feedback_and_erase(service):
    with Client(service.url) as client:
        assert client.ready()
        [made] = client.recommend("cleo", where={"category": {"min": "A"}}, exclude=[1])
        assert client.feedback(made["decision_id"], 1.0)["outcome"] == "recorded"
        rows = client.feedback_many([(made["decision_id"], 1.0), ("x", 1.0)])
        assert [row["status"] for row in rows] == [200, 404]
        assert client.user("cleo")["events"] == 2
        with pytest.raises(ServiceError, match="404 unknown_decision") as told:
            client.feedback("nothing", 1.0)
        assert (told.value.status, told.value.error) == (404, "unknown_decision")
        assert client.forget("cleo") == 2

    async def both():
        async with AsyncClient(service.url) as client:
            [made] = await client.recommend("cleo", n=1, allow=[4], fallback=[2])
            told = await client.feedback(made["decision_id"], 0.5)
            [row] = await client.feedback_many([(made["decision_id"], 0.5)])
            assert (row["status"], await client.ready()) == (200, True)
            seen = told["outcome"], (await client.user("cleo"))["events"], await client.forget("cleo")
            with pytest.raises(ServiceError, match="404"):
                await client.feedback(made["decision_id"], 0.5)
            return seen

    assert asyncio.run(both()) == ("recorded", 2, 2)
    block = re.search(r"```py\n(.*?)```", (Path(__file__).parents[2] / "docs" / "serve.md").read_text(), re.DOTALL)[1]
    assert "http://127.0.0.1:8000" in block
    exec(block.replace("http://127.0.0.1:8000", service.url), {})
    with Client("http://127.0.0.1:9", tries=2) as nobody:
        assert not nobody.ready()
        with pytest.raises(httpx.ConnectError):
            nobody.recommend("ada")


def front_page(visitor):
    try:
        return visitor.get("/")
    except httpx.ConnectError:
        return None


def test_the_example_shop_shows_items_and_gives_feedback(service):
    shop = Path(__file__).parents[2] / "examples" / "shop.py"
    process = subprocess.Popen([sys.executable, shop, service.url], stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url="http://127.0.0.1:8780", follow_redirects=True) as visitor:
            page = wait_until(lambda: front_page(visitor), "the shop answers")
            assert page.text.count("<article>") == 6
            id = re.search(r"name=id value=(\S+?)>", page.text)[1]
            again = visitor.post("/", data={"id": id, "reward": "1"})
            assert again.text.count("<article>") == 6
            assert visitor.post("/", data={"id": "x", "reward": "1"}).status_code == 400
            user = visitor.cookies["user"]
        with Client(service.url) as client:
            assert [one["kind"] for one in client.user(user)["history"]] == ["shown"] * 6 + ["reward"] + ["shown"] * 6
    finally:
        process.terminate()
        process.wait()
