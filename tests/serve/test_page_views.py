"""Every view of the page: the first one, a user's story, what is said where there is nothing, accessibility, sizes."""

import json
import re

import httpx
import numpy as np
import pytest

from tests.browsing import AXE, browser, look, needs_axe, needs_browser, shoot, until, watched  # noqa: F401
from tests.serve.asking import live_a_while
from tests.serving import kill, serving, start
from tests.waiting import wait_until
from treeward.client import Client
from treeward.serve import wire
from treeward.serve.groups import GroupCounts, Groups
from treeward.serve.live import Periods
from treeward.serve.story import story
from treeward.store.events import EVENT, REWARD, SHOWN
from treeward.store.memory import MemoryStore

VIEWS = ("overview", "catalogue", "user", "user/user-1", "user/nobody", "crowd", "live", "experiments")
FIRST_VIEW = 500_000


@pytest.fixture(scope="module")
def service(large_items, tmp_path_factory):
    """Half of the users are held out, so that both groups have some."""
    folder = tmp_path_factory.mktemp("views")
    with serving(folder, large_items, "--set", "holdout=0.5", "--policy", "phcb", "--reports", folder) as running:
        live_a_while(running.url, users=[f"user-{i}" for i in range(40)], rounds=5)
        with Client(running.url) as client:
            wait_until(lambda: client.crowd()["waiting"] == 0, "an edition knows all rewards")
        yield running


def opened(browser, url, width=1440, height=900, **options):  # noqa: F811
    tab = watched(browser.new_page(viewport={"width": width, "height": height}, **options))
    tab.base = url
    return tab


@pytest.fixture
def tab(browser, service):  # noqa: F811
    made = opened(browser, service.url)
    yield made
    assert made.faults == []
    made.close()


# --- the first view --------------------------------------------------------------------------------------------------


@needs_browser
def test_the_first_view_compares_both_groups_of_users(tab, http):
    look(tab, "")
    tab.wait_for_selector("#groups .versus")
    lift, told = http.get("/v1/lift").json(), http.get("/v1/overview").json()
    assert tab.locator("nav a[aria-current=page]").inner_text() == "Overview"
    seen = tab.locator("#groups .versus").all_inner_texts()
    for text, group in zip(seen, (lift["explored"], lift["held_out"]), strict=True):
        assert f"{100 * group['reward']:.1f} %" in text
        assert f"{group['users']} users, {group['decisions']} visits" in text
    verdict = tab.inner_text("#verdict")
    if lift["low"] > 0:
        assert re.fullmatch(r"Exploring brings [\d.]+ more clicks per 100 visits\.", verdict)
    elif lift["high"] < 0:
        assert re.fullmatch(r"Exploring costs [\d.]+ clicks per 100 visits\.", verdict)
    else:
        assert verdict == "Whether exploring brings more cannot be said yet."
    assert "95 % interval" in tab.inner_text("#groups")
    assert tab.locator("svg .middle").count() == 1
    assert f"{told['decisions']} visits and {told['earned']:.0f} clicks" in tab.inner_text("#story")
    assert f"{told['covered']} of 3,000 items" in tab.inner_text("#found")
    assert f"{told['found']} items with 5 clicks or more" in tab.inner_text("#found")
    nodes = http.get("/v1/tree/0/map").json()["nodes"]
    tried = [i for i, parent in enumerate(nodes["parent"]) if i and parent == 0 and nodes["shown"][i] >= 20]
    best = max(tried, key=lambda i: nodes["earned"][i] / nodes["shown"][i])
    first = tab.locator("#learned .liked").first.inner_text()
    assert nodes["name"][best] in first
    assert f"{100 * nodes['earned'][best] / nodes['shown'][best]:.1f} %" in first
    label = "document.querySelector('#curve').getAttribute('aria-label')"
    until(tab, rf"/explored for: [\d.]+ % at first, [\d.]+ % now; held out: [\d.]+ % at first/.test({label})")
    assert tab.locator("#curve path.curve").count() == 2
    assert not tab.evaluate("Boolean(window.Plotly)")
    shoot(tab, "overview")
    tab.locator("#learned button.link").first.click()
    tab.wait_for_selector("#list button")


def test_the_overview_counts_both_groups_and_what_was_found(http):
    wait_until(lambda: sum(http.get("/v1/overview").json()["periods"]["explored"]) >= 1, "a sample was taken")
    before = http.get("/v1/overview").json()
    assert before["decisions"] == before["rewards"] == 200
    assert before["first_shown"] == before["covered"] > 0
    assert before["users"] == 40
    items = http.get("/v1/tree/0/items", params={"n": 500}).json()
    pages = [http.get("/v1/tree/0/items", params={"n": 500, "after": n}).json() for n in range(500, 3_000, 500)]
    listed = [one for page in (items, *pages) for one in page["items"]]
    assert before["covered"] == sum(one["shown"] > 0 for one in listed)
    assert before["found"] == sum(one["earned"] >= before["found_at"] for one in listed)
    assert before["found_at"] == 5.0
    periods, lift = before["periods"], http.get("/v1/lift").json()
    assert sum(periods["explored"]) == lift["explored"]["decisions"]
    assert sum(periods["held_out"]) == lift["held_out"]["decisions"]
    assert sum(periods["explored_earned"]) + sum(periods["held_out_earned"]) == pytest.approx(before["earned"])


def test_risen_items_have_their_showings_and_rewards(http):
    risen = http.get("/v1/crowd").json()["risen"]
    assert risen
    listed = http.get("/v1/search", params={"q": risen[0]["title"], "n": 100}).json()["items"]
    [same] = [one for one in listed if one["item"] == risen[0]["item"]]
    assert (same["shown"], same["earned"]) == (risen[0]["shown"], risen[0]["earned"])
    assert risen[0]["shown"] > 0


def test_periods_halve_when_there_are_too_many():
    kept = Periods(4)
    for second in range(1, 10):
        kept.add(wire.Period(float(second), 1, 0.5, 2, 0.25, 10 * second))
    told = kept.columns()
    assert told["time"] == [4.0, 8.0, 9.0]
    assert told["explored"] == [4, 4, 1]
    assert told["explored_earned"] == [2.0, 2.0, 0.5]
    assert told["held_out"] == [8, 8, 2]
    assert told["covered"] == [40, 80, 90]
    for second in range(10, 2_000):
        kept.add(wire.Period(float(second), 1, 0.5, 2, 0.25, 10 * second))
        assert len(kept.columns()["time"]) <= 4
    assert sum(kept.columns()["explored"]) == 1_999


def test_a_slow_comparison_of_groups_holds_longer(monkeypatch):
    clock, groups = [1_000.0], Groups(MemoryStore(), 0.1, GroupCounts())
    monkeypatch.setattr("treeward.serve.groups.monotonic", lambda: clock[0])
    compared, plain = [], groups._compared

    def slowly():
        compared.append(clock[0])
        clock[0] += 10
        return plain()

    monkeypatch.setattr(groups, "_compared", slowly)
    for moment in (1_000.0, 1_070.0, 1_199.0, 1_201.0):
        clock[0] = moment
        groups.lift()
    assert compared == [1_000.0, 1_201.0]


def test_a_story_has_at_most_thirty_parts_that_begin_with_an_item():
    assert story(np.zeros(0, EVENT)) == []
    events = np.zeros(401, EVENT)
    events["kind"] = [SHOWN, REWARD] * 200 + [SHOWN]
    events["reward"] = [0.3, 1.0] * 200 + [0.3]  # an exposure has its propensity there
    parts = story(events)
    assert len(parts) == 30
    assert parts[-1].upto == 401
    assert [sum(getattr(one, name) for one in parts) for name in ("shown", "rewards", "earned")] == [201, 200, 200.0]
    assert all(one.upto % 2 == 0 for one in parts[:-1])
    assert max(one.shown for one in parts) - min(one.shown for one in parts) <= 1
    events["kind"] = REWARD  # imported
    assert [one.rewards for one in story(events[:3])] == [1, 1, 1]


# --- a user ----------------------------------------------------------------------------------------------------------


@needs_browser
def test_a_users_story_is_told_and_its_events_lead_back(tab, http):
    explored = next(f"user-{i}" for i in range(40) if not http.get(f"/v1/users/user-{i}").json()["held_out"])
    look(tab, f"user/{explored}")
    told = http.get(f"/v1/users/{explored}").json()
    assert f"5 items were shown, {sum(one['earned'] for one in told['story']):.0f} of them clicked" in tab.inner_text(
        "#story"
    )
    assert tab.locator("#strip rect.bar-past").count() == len(told["story"]) == 5
    assert tab.get_by_role("button", name="Now", exact=True).is_disabled()
    # An event of the history leads to the moment after it.
    assert tab.locator("#history button").count() == 5  # what was shown, with its reward
    tab.locator("#history button").nth(3).click()
    until(tab, "document.querySelector('#when').textContent.startsWith('After 4 of 10 events')")
    assert tab.locator("#history [aria-current=true]").get_attribute("data-upto") == "4"
    assert tab.locator("#strip rect.bar-past").count() == 2
    assert tab.locator("#strip rect.bar-later").count() == 3
    assert tab.get_attribute("#time", "aria-valuetext") == "after 4 of 10 events"
    shoot(tab, "story")
    tab.get_by_role("button", name="Now", exact=True).click()
    until(tab, "document.querySelector('#when').textContent.startsWith('After 10 of 10 events')")


@needs_browser
def test_escape_ends_a_replay_and_closes_what_is_open(tab):
    look(tab, "user/user-1")
    tab.click("#play")
    until(tab, "document.querySelector('#play').textContent === 'Stop'")
    tab.keyboard.press("Escape")
    assert tab.inner_text("#play") == "Play"
    tab.click("#recommend")
    tab.wait_for_selector(".offer h3")
    tab.click(".offer summary")
    until(tab, "document.querySelector('details').open")
    tab.keyboard.press("Escape")
    assert not tab.evaluate("document.querySelector('details').open")
    assert tab.evaluate("document.activeElement.tagName") == "SUMMARY"
    look(tab)
    tab.get_by_role("button", name="Show its items").click()
    until(tab, "[...document.querySelectorAll('#list button')].some((x) => x.textContent.includes('shown'))")
    tab.locator("#list button", has_text="shown").first.click()
    tab.wait_for_selector("#item")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#item", state="detached")


@needs_browser
def test_a_replay_has_few_steps_for_those_who_want_little_motion(browser, service):  # noqa: F811
    tab = opened(browser, service.url, reduced_motion="reduce")
    look(tab, "user/user-1")
    fields = []
    tab.on("request", lambda request: fields.append(request.url) if "/field" in request.url else None)
    tab.click("#play")
    until(tab, "document.querySelector('#play').textContent === 'Play'")
    assert 5 <= len(fields) <= 9
    moving = "[...document.querySelectorAll('*')].filter((x) => parseFloat(getComputedStyle(x).transitionDuration) > 0)"
    assert tab.evaluate(f"{moving}.length") == 0
    assert tab.faults == []
    tab.close()


# --- nothing there, or something wrong -------------------------------------------------------------------------------


@needs_browser
def test_every_view_says_what_to_do_where_there_is_nothing(browser, large_items, tmp_path):  # noqa: F811
    running = start(tmp_path, large_items)
    tab = opened(browser, running.url)
    for where, text in (
        ("overview", "Nobody was here yet"),
        ("overview", "POST /v1/recommend"),
        ("catalogue", "never shown yet"),
        ("user", "There are no users yet"),
        ("user/ada", "Nobody called ada has been here"),
        ("crowd", "send them with POST /v1/feedback"),
        ("live", "Nothing was recommended since the start"),
        ("live", "POST /v1/recommend"),
        ("experiments", "No folder of reports is set"),
    ):
        look(tab, where)
        tab.wait_for_selector(f"text={text}")
    # Visits without feedback: nothing can be learned. Without a control, the page says how to get one.
    httpx.post(running.url + "/v1/recommend", json={"user": "ada"}).raise_for_status()
    look(tab, "overview")
    tab.wait_for_selector("text=No reward has come")
    tab.wait_for_selector("text=--set holdout=0.1")
    tab.wait_for_selector("text=No edition knows a reward yet")
    assert tab.faults == []
    # The service is gone: every view says so, and the header too.
    kill(running)
    tab.wait_for_selector("#state[data-is=bad]", timeout=60_000)
    assert tab.inner_text("#state-text") == "no answer; trying again"
    for where in ("catalogue", "user", "crowd", "live", "experiments", "overview"):
        tab.evaluate("where => { location.hash = where; }", f"#/{where}")
        tab.wait_for_selector("text=The service does not answer")
        until(tab, "!document.querySelector('#view').hasAttribute('aria-busy')")
        assert tab.get_by_role("button", name="Try again").is_visible()
    assert all("ERR_" in fault for fault in tab.faults)
    tab.close()


@needs_browser
def test_a_missing_plotting_library_is_explained(browser, service):  # noqa: F811
    tab = opened(browser, service.url)
    tab.route("**/plotly-*.js", lambda route: route.abort())
    for where in ("live", "crowd", "catalogue"):
        look(tab, where)
        tab.wait_for_selector("text=the plotting library cannot be fetched")
    assert all("ERR_" in fault for fault in tab.faults)
    tab.close()


# --- accessibility ---------------------------------------------------------------------------------------------------


@needs_axe
@needs_browser
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_on_any_view(browser, service, width, colours):  # noqa: F811
    assert AXE.exists(), "no axe-core on this machine: npm install --prefix .venv/npm axe-core"
    tab, checker = opened(browser, service.url, width, 844, color_scheme=colours), AXE.read_text()
    drawn = {"overview": "#curve svg", "experiments": "#view .empty", "user": "#view .empty"}
    for where in VIEWS:
        look(tab, where)
        tab.wait_for_selector(drawn.get(where, ".chart svg"))
        if where == "user/nobody":
            tab.click("#recommend")  # an offer, too
            tab.wait_for_selector(".offer h3")
        tab.evaluate(checker + "; 0")
        found = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        assert [(one["id"], one["impact"], one["nodes"][0]["target"]) for one in found] == [], where
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, where
    assert tab.faults == []
    tab.close()


@needs_browser
def test_focus_goes_through_the_page_in_order_and_is_visible(tab):
    look(tab, "user/user-1")
    seen = []
    for _ in range(30):
        tab.keyboard.press("Tab")
        at = tab.evaluate(
            """(() => { const x = document.activeElement, box = x.getBoundingClientRect();
            const seen = box.width > 0 && getComputedStyle(x).outlineStyle !== 'none';
            return [x.id || x.textContent.trim().slice(0, 20), seen]; })()"""
        )
        seen.append(at[0])
        assert at[1], at
        if at[0] == "recommend":
            break
    order = ["Skip to the content", "Overview", "Experiments", "theme", "who", "time", "play", "recommend"]
    assert [seen.index(name) for name in order] == sorted(seen.index(name) for name in order)


# --- sizes -----------------------------------------------------------------------------------------------------------


@needs_browser
@pytest.mark.parametrize("where", ["", "catalogue", "user/user-1", "crowd"])
def test_a_view_is_small_without_the_plotting_library(browser, service, where):  # noqa: F811
    tab = opened(browser, service.url)
    sizes = {}
    tab.on("response", lambda answer: sizes.__setitem__(answer.url, answer))
    look(tab, where)
    if where:
        tab.wait_for_selector(".chart svg")
    lengths = {url: len(answer.body()) for url, answer in list(sizes.items())}
    plotting = [url for url in lengths if "plotly" in url]
    assert (len(plotting) == 0) == (where == "")  # the first view draws without it
    rest = sum(size for url, size in lengths.items() if url not in plotting)
    assert 10_000 < rest < FIRST_VIEW, json.dumps(lengths)
    assert not [url for url in lengths if not url.startswith(service.url)]
    tab.close()
