"""The routes of Azure Personalizer: requests as its published Python clients send them, and what may go wrong."""

import asyncio
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import httpx
import pytest
from starlette.datastructures import Headers

import treeward as tw
from tests.commands import run as cli
from tests.pg import cluster, needs_postgres  # noqa: F401
from tests.serving import kill, serving, start, stop
from treeward.core.errors import InvalidArgument, UnknownDecision
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve.keys import new_key
from treeward.serve.personalizer import PERSONALIZER, Personalizer
from treeward.serve.personalizer_wire import Action, RankRequest
from treeward.serve.service import Served, Service
from treeward.serve.settings import Settings, read_settings

OLD = {
    "accept": "application/json", "content-type": "application/json; charset=utf-8",
    "user-agent": "python/3.11.7 msrest/0.7.1 azure-cognitiveservices-personalizer/0.1.1",
    "x-bingapis-sdk-client": "Python-SDK",
}  # fmt: skip
"""Headers of azure-cognitiveservices-personalizer 0.1.1, whose paths begin with /personalizer/v1.0."""
NEW = {
    "accept": "application/json", "content-type": "application/json",
    "user-agent": "azsdk-python-ai-personalizer/1.0.0b1 Python/3.11.7",
    "x-ms-client-request-id": "676a750a-e45e-11f1-be41-02fc00000001",
}  # fmt: skip
"""Headers of azure-ai-personalizer 1.0.0b1, whose version is in the query."""
VERSION = "?api-version=2022-09-01-preview"
RANK = (
    '{"contextFeatures": [{"user": {"id": "ada", "profileType": "AnonymousUser"}}, {"environment": {"weather": '
    '"Sunny"}}, {"device": {"kind": "phone", "mobile": true}}], "actions": [{"id": "3", "features": [{"taste": '
    '"salty"}, {"nutritionLevel": 5}]}, {"id": "1", "features": [{"taste": "sweet"}]}, {"id": "7", "features": '
    '[{"taste": "salty"}]}], "excludedActions": ["1", "juice"], "eventId": "75269AD0-BFEE", "deferActivation": false}'
)


@pytest.fixture(scope="module")
def personalizer(items, tmp_path_factory):
    folder = tmp_path_factory.mktemp("personalizer")
    shop = tw.Catalogue.load(items)
    tw.Crossed.over(shop, {"kind": ["phone", "desk"], "hour": 24}, dims=4).save(folder / "crossed")
    with serving(
        folder, items, "--set", "personalizer=true", "--set", "repeats=true", "--set", "features=crossed"
    ) as running:
        yield running


@pytest.fixture
def http(personalizer):
    with httpx.Client(base_url=personalizer.url, timeout=20) as client:
        yield client


def rank(http, actions=("3", "1", "7"), path="/personalizer/rank" + VERSION, headers=None, **more):
    body = {"actions": [{"id": id, "features": [{"a": 1}]} for id in actions], **more}
    return http.post(path, json=body, headers=headers)


def reward(http, event, value=1.0):
    return http.post(f"/personalizer/events/{event}/reward{VERSION}", json={"value": value})


def activate(http, event):
    return http.post(f"/personalizer/events/{event}/activate{VERSION}")


def history(http, user):
    return [(event["kind"], event["reward"]) for event in http.get(f"/v1/users/{user}").json()["history"]]


def events_of(http, user):
    return [kind for kind, _ in history(http, user)]


def test_requests_of_the_first_client_are_answered_as_it_reads_them(http):
    answer = http.post("/personalizer/v1.0/rank", content=RANK, headers=OLD)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert list(told) == ["ranking", "eventId", "rewardActionId"]
    assert told["eventId"] == "75269AD0-BFEE"
    assert told["rewardActionId"] in ("3", "7")
    assert told["ranking"][1] == {"id": "1", "probability": 0.0}, "an excluded action stays in its place"
    assert told["ranking"][0]["id"] == told["rewardActionId"]
    assert {one["id"] for one in told["ranking"]} == {"1", "3", "7"}
    assert sum(one["probability"] for one in told["ranking"]) == pytest.approx(1)
    again = http.post("/personalizer/v1.0/rank", content=RANK, headers=OLD)
    assert (again.status_code, again.json()) == (201, told), "a retry gets the same answer"
    path = "/personalizer/v1.0/events/75269AD0-BFEE"
    answer = http.post(f"{path}/reward", content='{"value": 0.5}', headers=OLD)
    assert (answer.status_code, answer.content) == (204, b"")
    assert http.post(f"{path}/activate", headers=OLD).status_code == 204
    assert history(http, "ada")[-2:] == [("shown", None), ("reward", 0.5)]
    assert events_of(http, "ada").count("shown") == 1


def test_requests_of_the_newest_client_are_answered(http):
    body = (
        '{"actions": [{"id": "5", "features": [{"videoLength": 35}]}, {"id": "6", "features": [{"videoLength": 20}]}], '
        '"excludedActions": [], "contextFeatures": [{"userId": "bob"}, {"currentFeatures": {"day": "tuesday"}}]}'
    )
    answer = http.post("/personalizer/rank" + VERSION, content=body, headers=NEW)
    assert answer.status_code == 201
    event = answer.json()["eventId"]
    assert len(event) <= 256, "the clients refuse longer ones"
    assert http.post(f"/personalizer/events/{event}/activate{VERSION}", headers=NEW).status_code == 204
    assert reward(http, event).status_code == 204
    assert history(http, "bob") == [("shown", None), ("reward", 1.0)]


@pytest.mark.parametrize("version", ["v1.0", "v1.1-preview.1", "v1.1-preview.3"])
def test_versions_in_the_path_are_known(http, version):
    assert rank(http, path=f"/personalizer/{version}/rank", eventId=f"of {version}").status_code == 201
    event = f"/personalizer/{version}/events/of%20{version}"
    assert http.post(f"{event}/activate").status_code == 204
    assert http.post(f"{event}/reward", json={"value": 1}).status_code == 204


def test_other_versions_and_multi_slot_are_not_there(http):
    for path in ("/personalizer/v9/rank", "/personalizer/multislot/rank", "/personalizer/configurations/service"):
        answer = rank(http, path=path)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "ResourceNotFound"
    answer = http.get("/personalizer/rank")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "MethodNotAllowed")


def test_a_long_event_id_with_slashes_and_letters_beyond_ascii_works(http):
    event = "é/ü 1?" + "x" * 250
    assert rank(http, eventId=event, contextFeatures=[{"userId": "long"}]).status_code == 201
    assert reward(http, quote(event, safe="")).status_code == 204
    assert history(http, "long") == [("shown", None), ("reward", 1.0)]
    answer = rank(http, eventId=event + "x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRankRequest")


def test_bad_rank_requests_are_refused_and_record_nothing(http):
    cases = {
        "unknown": ("3", "nope"), "not one of the integers": ("3", "03"), "too large": ("3", "9" * 40),
        "repeated": ("3", "3"), "none": (), "too many": tuple(map(str, range(51))), "empty": ("3", ""),
    }  # fmt: skip
    for name, actions in cases.items():
        answer = rank(http, actions, eventId=f"bad {name}", contextFeatures=[{"userId": "careful"}])
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRankRequest"), name
        assert reward(http, f"bad {name}").status_code == 404, "the event does not exist"
    assert "got ['nope']" in rank(http, ("3", "nope")).json()["error"]["message"]
    answer = rank(http, excludedActions=["1", "3", "7"])
    assert "excludedActions must be fewer than all actions" in answer.json()["error"]["message"]
    for more in ({"eventId": ""}, {"actions": 3}, {"contextFeatures": {}}, {"contextFeatures": [{"userId": ""}]}):
        answer = http.post("/personalizer/rank", json={"actions": [{"id": "3"}], **more})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRankRequest"), more
    answer = http.post("/personalizer/rank", content=b"{", headers=NEW)
    assert answer.json()["error"]["code"] == "InvalidRankRequest"
    answer = http.post("/personalizer/rank", content=b"a=1", headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "UnsupportedMediaType")
    assert events_of(http, "careful") == []


def test_fifty_actions_are_ranked(http):
    answer = rank(http, tuple(map(str, range(50))), contextFeatures=[{"userId": "many"}])
    assert sorted(int(one["id"]) for one in answer.json()["ranking"]) == list(range(50))
    assert events_of(http, "many") == ["shown"]


def test_bad_rewards_are_refused_and_record_nothing(http):
    rank(http, eventId="picky", contextFeatures=[{"userId": "picky"}])
    for body in ({"value": 1.5}, {"value": -1}, {"value": "1"}, {"value": None}, {}, 1.0):
        answer = http.post("/personalizer/events/picky/reward", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRewardRequest"), body
    for answer in (reward(http, "never"), activate(http, "never")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "ResourceNotFound")
    assert events_of(http, "picky") == ["shown"]


def test_an_event_id_belongs_to_one_request(http):
    first = rank(http, eventId="once").json()
    assert rank(http, eventId="once").json() == first
    answer = rank(http, ("3", "1"), eventId="once")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "Conflict")


def test_concurrent_requests_for_one_event_count_once(personalizer, http):
    def ranked(_):
        with httpx.Client(base_url=personalizer.url, timeout=60) as client:
            return rank(client, eventId="busy", contextFeatures=[{"userId": "busy"}]).json()

    def rewarded(i):
        with httpx.Client(base_url=personalizer.url, timeout=60) as client:
            return reward(client, "busy", (i % 4) / 4).status_code

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ranked, range(24)))
        assert all(answer == answers[0] for answer in answers)
        assert set(pool.map(rewarded, range(24))) == {204}
    assert events_of(http, "busy") == ["shown", "reward"]


def test_a_deferred_event_is_recorded_when_it_is_activated(personalizer, http):
    given = {"eventId": "later", "deferActivation": True, "contextFeatures": [{"userId": "late"}, {"kind": "desk"}]}
    chosen = rank(http, **given).json()["rewardActionId"]
    assert events_of(http, "late") == []
    answer = reward(http, "later")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "Conflict")
    assert "activate it" in answer.json()["error"]["message"]

    def activated(_):
        with httpx.Client(base_url=personalizer.url, timeout=60) as client:
            return activate(client, "later").status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(activated, range(16))) == {204}
    assert reward(http, "later").status_code == 204
    [shown, rewarded] = http.get("/v1/users/late").json()["history"]
    assert (shown["kind"], rewarded["kind"], str(rewarded["item"])) == ("shown", "reward", chosen)


def test_who_asks_is_told_by_a_header_or_a_feature(http):
    rank(http, headers={"treeward-user": "of-header"}, contextFeatures=[{"userId": "ignored"}])
    assert events_of(http, "of-header") == ["shown"]
    assert events_of(http, "ignored") == []
    for feature, user in (
        ({"user_id": "u1"}, "u1"), ({"user": {"id": "u2"}}, "u2"), ({"user": {"userId": "u3"}}, "u3"),
        ({"user": "u4"}, "u4"), ({"userId": 5}, "int:5"),
    ):  # fmt: skip
        rank(http, contextFeatures=[{"other": 1}, feature])
        assert events_of(http, user) == ["shown"], feature


def test_a_header_that_does_not_name_one_user_is_refused(personalizer, http):
    body = b'{"actions": [{"id": "3"}]}'

    def asked(*values):
        headers = [*NEW.items(), *(("treeward-user", value) for value in values)]
        return http.post("/personalizer/rank", content=body, headers=headers)

    assert asked("josé ü".encode()).status_code == 201
    assert events_of(http, "josé ü") == ["shown"]
    for values in ((b"jos\xe9",), (b"one", b"two"), (b"one", b"one"), (b"x" * 513,), (b"",)):
        answer = asked(*values)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRankRequest"), values
    assert [events_of(http, user) for user in ("one", "two", "jos\xe9")] == [[], [], []]


def test_a_retry_gets_the_same_answer_whatever_the_order_of_its_features(http):
    first = rank(http, eventId="reordered", contextFeatures=[{"userId": "re", "kind": "desk", "x": {"a": 1, "b": 2}}])
    again = rank(http, eventId="reordered", contextFeatures=[{"x": {"b": 2, "a": 1}, "kind": "desk", "userId": "re"}])
    assert (again.status_code, again.json()) == (201, first.json())
    assert rank(http, eventId="reordered", contextFeatures=[{"userId": "re"}]).status_code == 409


def test_the_id_of_a_decision_is_no_name_for_another_event(http):
    made = rank(http, contextFeatures=[{"userId": "victim"}]).json()["eventId"]
    answer = rank(http, eventId=made, contextFeatures=[{"userId": "thief"}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRankRequest")
    assert made not in answer.text, "it names the user"
    assert reward(http, made).status_code == 204
    assert (events_of(http, "victim"), events_of(http, "thief")) == (["shown", "reward"], [])


def test_a_retry_gets_the_same_answer_after_its_item_was_removed(items, tmp_path):
    options = ("--set", "personalizer=true", "--set", "repeats=true")
    with serving(tmp_path, items, *options) as running, httpx.Client(base_url=running.url, timeout=20) as http:
        first = rank(http, ("3", "1"), eventId="r").json()
        assert http.request("DELETE", "/v1/items", json={"items": [3]}).json()["changed"] == 1
        again = rank(http, ("3", "1"), eventId="r")
        assert (again.status_code, again.json()) == (201, first)
        assert rank(http, ("3", "1"), eventId="new").status_code == 400


def test_a_user_who_has_only_a_deferred_event_is_found_and_erased(http):
    rank(http, eventId="of five", deferActivation=True, contextFeatures=[{"userId": 55}])
    answer = http.delete("/v1/users/55")
    assert (answer.status_code, "int:55" in answer.json()["message"]) == (400, True)
    assert activate(http, "of five").status_code == 204, "nothing was erased"
    rank(http, eventId="of five again", deferActivation=True, contextFeatures=[{"userId": 55}])
    assert http.delete("/v1/users/int:55").status_code == 200
    assert activate(http, "of five again").status_code == 404


class Meanwhile:
    """The handlers without a server, over an explorer in memory; something happens right behind a decision."""

    def __init__(self, **more):
        self.explorer = tw.Explorer(synthetic_catalogue(50, dim=4, seed=0), seed=0, repeats=True, exposures="all")
        settings = Settings(items="x", personalizer=True, repeats=True, **more)
        self.service = Service(self.explorer, settings)
        self.then = None
        self.recommend = self.feedback = self
        self.handlers = Personalizer(Served(self.service), self, SimpleNamespace(features={}))

    async def ask(self, asked):
        [answer] = self.service.recommend([asked])
        self._interrupt()
        return answer

    def _interrupt(self):
        then, self.then = self.then, None
        if then is not None:
            then()

    def rank(self, event, user, **more):
        ids = [Action(str(item)) for item in self.explorer.catalogue.ids.to_list()[:3]]
        body = RankRequest(ids, [{"userId": user}], event_id=event, **more)
        return asyncio.run(self.handlers.rank(body, SimpleNamespace(headers=Headers())))

    def activate(self, event):
        return asyncio.run(self.handlers.activate(event))

    def names(self, user):
        return self.service.named_events().exist_of(user), self.explorer.store.counts([user])[0]


def test_a_user_who_is_erased_behind_the_decision_leaves_no_record():
    one = Meanwhile()
    one.then = lambda: one.explorer.forget("ada")
    with pytest.raises(UnknownDecision):
        one.rank("order-1", "ada")
    assert one.names("ada") == (False, 0)
    assert not any(value for key, value in one.explorer.store.metadata.list("event/"))


def test_a_user_who_is_erased_while_a_deferred_event_is_ranked_leaves_no_record(monkeypatch):
    one = Meanwhile()
    plan = one.handlers._plan

    def planned(*given):
        found = plan(*given)
        one.explorer.forget("ada")
        return found

    monkeypatch.setattr(one.handlers, "_plan", planned)
    with pytest.raises(UnknownDecision):
        one.rank("order-1", "ada", defer_activation=True)
    assert one.names("ada") == (False, 0)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_activation_that_overlaps_an_erasure_does_not_bring_the_user_back(monkeypatch, moment):
    one = Meanwhile()
    one.rank("order-1", "ada", defer_activation=True)
    show = one.service.show

    def shown(*given):
        if moment == "before":
            one.explorer.forget("ada")
        made = show(*given)
        one.explorer.forget("ada")
        return made

    monkeypatch.setattr(one.service, "show", shown)
    with pytest.raises(UnknownDecision):
        one.activate("order-1")
    assert one.names("ada") == (False, 0)
    assert not any(value for key, value in one.explorer.store.metadata.list("event/"))


def test_an_exposure_is_not_stored_for_a_user_who_is_erased_at_that_moment(monkeypatch):
    one = Meanwhile()
    one.rank("order-1", "ada", defer_activation=True)
    store, append = one.explorer.store, one.explorer.store.append

    def appended(*given, **named):
        monkeypatch.setattr(store, "append", append)
        store.move("ada", None)  # as by another replica, which does not wait for this one's lock
        return append(*given, **named)

    monkeypatch.setattr(store, "append", appended)
    with pytest.raises(UnknownDecision):
        one.activate("order-1")
    assert one.names("ada") == (False, 0)


def test_a_deferred_event_that_is_activated_after_a_merge_is_the_other_users():
    one = Meanwhile()
    one.rank("order-1", "anon", defer_activation=True)
    one.explorer.merge("anon", "known")
    one.activate("order-1")
    assert (one.names("anon"), one.names("known")) == ((False, 0), (True, 1))
    one.explorer.forget("anon")
    one.rank("order-1", "anon", defer_activation=True)
    one.explorer.forget("known")
    with pytest.raises(UnknownDecision):
        one.rank("order-1", "anon", defer_activation=True)
    assert one.names("known") == (False, 0)


def test_events_are_removed_when_two_windows_have_passed(monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr("treeward.serve.service.time", lambda: now[0])
    one = Meanwhile(window=60.0)
    one.rank("order-1", "ada")
    now[0] += 119
    one.service.expire()
    assert one.names("ada")[0]
    now[0] += 2
    one.service.expire()
    assert not one.names("ada")[0]
    assert one.explorer.store.metadata.list("event") == []


def test_without_a_user_every_event_is_a_visitor_of_its_own(http):
    def visitors():
        return {user for user in http.get("/v1/users?q=event:&n=100").json()["users"]}

    before = visitors()
    for event in ("w1", "w1", "w2", None):
        assert rank(http, eventId=event, contextFeatures=[{"user": {"profileType": "x"}}]).status_code == 201
    assert len(visitors() - before) == 3
    assert reward(http, "w2").status_code == 204


def test_features_of_the_context_are_used_where_they_are_declared(personalizer, http):
    def counts():
        lines = http.get("/metrics").text.splitlines()
        return [float(line.split()[-1]) for line in lines if line.startswith("treeward_personalizer_features_total{")]

    used, ignored = counts()
    given = [
        {"userId": "ctx"},
        {"device": {"kind": "phone", "maker": "x"}},
        {"kind": "desk"},
        {"hour": "9"},
        {"l": [1]},
    ]
    assert rank(http, contextFeatures=given).status_code == 201
    assert counts() == [used + 2, ignored + 3], "hour and the first kind; maker, the second kind and a list"
    assert rank(http, contextFeatures=[{"hour": "noon"}, {"kind": 3.5}, {"hour": True}]).status_code == 201
    assert counts() == [used + 3, ignored + 5]
    assert rank(http, contextFeatures=[{"hour": 10**400}, {"kind": "x" * 201}, {"hour": "nan"}]).status_code == 201
    assert counts() == [used + 3, ignored + 8]


def test_events_survive_a_crash_and_are_erased_with_their_user(items, tmp_path):
    options = ("--set", "personalizer=true", "--set", "repeats=true", "--set", "exposures=strict")
    running = start(tmp_path, items, *options)
    with httpx.Client(base_url=running.url, timeout=20) as http:
        rank(http, eventId="kept", contextFeatures=[{"userId": "ada-secret"}])
        rank(http, eventId="deferred", deferActivation=True, contextFeatures=[{"userId": "ada-secret"}])
        made = rank(http, contextFeatures=[{"userId": "ada-secret"}]).json()["eventId"]
        rank(http, eventId="anonymous")
        assert reward(http, "kept", 0.25).status_code == 204
    kill(running)
    running = start(tmp_path, items, *options)
    try:
        with httpx.Client(base_url=running.url, timeout=20) as http:
            assert reward(http, "kept", 0.25).status_code == 204, "the same reward again"
            assert reward(http, "kept", 1.0).status_code == 204, "the first one counts"
            assert activate(http, "deferred").status_code == 204
            assert [reward(http, event).status_code for event in ("deferred", made, "anonymous")] == [204] * 3
            assert sorted(history(http, "ada-secret"), key=str) == sorted(
                [("shown", None)] * 3 + [("reward", 0.25)] + [("reward", 1.0)] * 2, key=str
            )
            assert http.delete("/v1/users/ada-secret").status_code == 200
            for answer in (reward(http, "kept"), activate(http, "deferred"), reward(http, made)):
                assert answer.status_code == 404
            again = rank(http, eventId="kept", contextFeatures=[{"userId": "ada-secret"}])
            assert (again.status_code, again.json()["error"]["code"]) == (404, "ResourceNotFound")
    finally:
        assert stop(running) == 0
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("events.db"))
    assert b"ada-secret" not in held
    with closing(sqlite3.connect(tmp_path / "events.db")) as file:
        names = [name for (name,) in file.execute("SELECT key FROM metadata")]
    assert any(name.startswith("event/") for name in names)
    assert not any("kept" in name for name in names), "names of events are hashed"
    assert "clean" in cli("store", "check", tmp_path / "events.db")


@needs_postgres
def test_replicas_know_each_others_events(items, tmp_path, cluster):  # noqa: F811
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    options = "--set", "personalizer=true", "--set", "repeats=true", "--store", cluster.database("personalizer")
    with (
        serving(folders[0], items, *options) as first, serving(folders[1], items, *options) as second,
        httpx.Client(base_url=first.url, timeout=60) as one, httpx.Client(base_url=second.url, timeout=60) as two,
    ):  # fmt: skip
        given = {"eventId": "shared", "contextFeatures": [{"userId": "ada"}]}
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: rank((one, two)[i % 2], **given).json(), range(16)))
            assert all(answer == answers[0] for answer in answers)
            assert set(pool.map(lambda i: reward((one, two)[i % 2], "shared").status_code, range(16))) == {204}
        assert events_of(two, "ada").count("reward") == 1
        rank(one, eventId="later", deferActivation=True, contextFeatures=[{"userId": "bob"}])
        assert [activate(two, "later").status_code, activate(one, "later").status_code] == [204, 204]
        assert reward(one, "later").status_code == 204
        assert events_of(two, "bob") == ["shown", "reward"]
        assert two.delete("/v1/users/ada").status_code == 200
        assert reward(one, "shared").status_code == 404


def test_schemathesis_finds_no_violation(personalizer, tmp_path):
    done = subprocess.run(
        [Path(sys.executable).with_name("schemathesis"), "--config-file", Path(__file__).with_name("schemathesis.toml"),
         "run", f"{personalizer.url}/openapi.json", "--include-path-regex", "^/personalizer/", "--checks", "all",
         "--phases", "coverage,fuzzing", "--max-examples", "10", "--generation-deterministic"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:]
    assert "Tested: 6" in done.stdout


def test_roles_and_subscription_keys(items, tmp_path):
    keys = {role: new_key() for role in ("read", "write")}
    lines = "".join(f'[[keys]]\nname = "{role}r"\nrole = "{role}"\nsha256 = "{key[1]}"\n' for role, key in keys.items())
    (tmp_path / "settings.toml").write_text(f"personalizer = true\nrepeats = true\nrate = 100\n{lines}")
    with serving(tmp_path, items, "--config", tmp_path / "settings.toml") as running:
        tried = {"": (401, "Unauthorized"), "tw_wrong": (401, "Unauthorized"), keys["read"][0]: (403, "Forbidden")}
        for one in PERSONALIZER:
            path = running.url + one.path.replace("{version}", "v1.0").replace("{event}", "never")
            body = {"json": {}} if one.takes else {}
            for key, expected in tried.items():
                headers = {"ocp-apim-subscription-key": key} if key else {}
                answer = httpx.post(path, headers=headers, **body)
                assert (answer.status_code, answer.json()["error"]["code"]) == expected, one.path
            allowed = {"Ocp-Apim-Subscription-Key": keys["write"][0]}, {"authorization": f"Bearer {keys['write'][0]}"}
            for headers in allowed:
                assert httpx.post(path, headers=headers, **body).status_code in (400, 404), one.path
        own = httpx.get(f"{running.url}/v1/about", headers={"ocp-apim-subscription-key": keys["write"][0]})
        assert own.status_code == 401, "this header is read under /personalizer only"
        paths = httpx.get(f"{running.url}/openapi.json").json()
        assert "/personalizer/{version}/rank" in paths["paths"]
        assert paths["components"]["securitySchemes"]["subscription"]["name"] == "Ocp-Apim-Subscription-Key"
    assert keys["write"][0] not in (tmp_path / "stderr").read_text()


def test_in_apprentice_mode_the_first_action_is_chosen(items, tmp_path):
    options = ("personalizer=true", "repeats=true", "mode=apprentice", "where=id > 0")
    with (
        serving(tmp_path, items, *(word for one in options for word in ("--set", one))) as running,
        httpx.Client(base_url=running.url, timeout=20) as http,
    ):
        for event in ("now", "later"):
            more = {"excludedActions": ["5"], "contextFeatures": [{"userId": event}]}
            answer = rank(http, ("5", "4", "0"), eventId=event, deferActivation=event == "later", **more)
            assert answer.status_code == 201, answer.text
            chances = [(one["id"], one["probability"]) for one in answer.json()["ranking"]]
            assert chances == [("5", 0.0), ("4", 1.0), ("0", 0.0)]
            again = rank(http, ("0", "4"), eventId=f"closed {event}", deferActivation=event == "later")
            assert again.json()["rewardActionId"] == "0", "an apprentice shows what its caller shows, also beyond where"
        assert events_of(http, "now") == ["shown"]
        assert activate(http, "later").status_code == 204
        assert reward(http, "later").status_code == 204
        assert events_of(http, "later") == ["shown", "reward"]


def test_without_the_setting_there_are_no_such_routes(items, tmp_path):
    with serving(tmp_path, items) as running:
        answer = httpx.post(f"{running.url}/personalizer/rank", json={})
        assert (answer.status_code, answer.json()["error"]) == (404, "no_route")


def test_the_setting_needs_repeats():
    with pytest.raises(InvalidArgument, match="serve: repeats must be True where personalizer is on"):
        read_settings(flags={"items": "x", "personalizer": True}, environment={})
    assert read_settings(flags={"items": "x", "personalizer": True, "repeats": True}, environment={}).personalizer
