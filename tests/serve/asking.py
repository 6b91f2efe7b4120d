"""Shorthands for requests."""

from treeward.client import Client


def ask(http, **body):
    answer = http.post("/v1/recommend", json={"user": "ada", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def live_a_while(url, users=("ada", 7), rounds=60, key=None):
    """Let users ask and give feedback; they like the items under a third of the root's children."""
    with Client(url, key=key) as client:
        for i in range(rounds):
            for user in users:
                [made] = client.recommend(user)
                client.feedback(made["decision_id"], float(made["path"][0] % 3 == 0 if made["path"] else i % 2))
