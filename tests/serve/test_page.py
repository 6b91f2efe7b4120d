"""The service's page in a real browser, as a person would use it."""

import re

import httpx
import pytest

import treeward as tw
from tests.browsing import browser, look, needs_browser, shoot, until, watched  # noqa: F401
from tests.serve.asking import live_a_while
from tests.serving import kill, serving, start, stop
from tests.waiting import wait_until
from treeward.data.synthetic import synthetic_catalogue
from treeward.serve.keys import new_key


@pytest.fixture(scope="module")
def service(visited_service):
    return visited_service


@pytest.fixture
def tab(browser, service):  # noqa: F811
    made = watched(browser.new_page(viewport={"width": 1280, "height": 900}))
    made.base = service.url
    yield made
    assert made.faults == []
    made.close()


@needs_browser
def test_groups_and_items_of_the_catalogue_can_be_opened(tab):
    look(tab)
    tab.wait_for_selector(".chart .slice")
    assert re.fullmatch(r"all: 3,000 items, \d+ groups", tab.inner_text("#title"))
    assert "3,000 items" in tab.inner_text("#facts")
    assert "PHCB(LinUCB)" in tab.inner_text("#facts")
    assert "shown 120 times" in tab.inner_text("main")
    shoot(tab, "catalogue")
    group = tab.inner_text("#list li button span >> nth=0")
    tab.locator("#list li button").first.click()
    until(tab, "name => document.querySelector('#title').textContent.startsWith(name)", arg=group)
    assert tab.locator("nav.path button").all_inner_texts() == ["all", group]
    # Down to a leaf, whose items are listed; an item is told.
    tab.locator("#list li button").first.click()
    until(tab, "document.querySelectorAll('nav.path button').length === 3")
    until(tab, "document.querySelectorAll('#list li').length > 0")
    item = tab.inner_text("#list li button span >> nth=0")
    tab.locator("#list li button").first.click()
    tab.wait_for_selector("#item")
    assert tab.inner_text("#item h3") == item
    tab.go_back()
    tab.wait_for_selector("#item", state="detached")
    # Clicking the drawing opens what was clicked.
    tab.locator("nav.path button").first.click()
    until(tab, "document.querySelector('#title').textContent.startsWith('all')")
    tab.get_by_role("button", name="Treemap").click()
    until(tab, "document.querySelectorAll('.chart .treemap .slice').length > 5")
    tab.locator(".chart .treemaplayer .slice").nth(3).click(force=True)
    until(tab, "document.querySelectorAll('nav.path button').length > 1")
    for name in ("Reward", "Exposure"):
        tab.get_by_role("button", name=name).click()
        tab.wait_for_selector(".legend .ramp")
    shoot(tab, "exposure")


@needs_browser
def test_search_finds_groups_and_items(tab, http):
    name = http.get("/v1/tree/0/map").json()["nodes"]["name"][1]
    title = http.get("/v1/tree/0/items").json()["items"][0]["title"]
    look(tab)
    tab.fill("#search", name.split(",")[0].upper())
    until(tab, "document.querySelector('#title').textContent.includes('match')")
    assert name in tab.locator("#list li button span:first-child").all_inner_texts()
    tab.fill("#search", title)
    until(tab, "title => [...document.querySelectorAll('#list span')].some(x => x.textContent === title)", arg=title)
    # Typed and picked at once: the search that was still to come does not take the item away.
    row = tab.locator("#list li button", has_text=title).last.element_handle()
    tab.evaluate("row => { search.dispatchEvent(new Event('input')); row.click(); }", row)
    tab.wait_for_selector("#item")
    tab.wait_for_timeout(400)
    assert tab.inner_text("#item h3", timeout=1_000) == title
    tab.fill("#search", "no such thing at all")
    tab.wait_for_selector("text=Nothing has that name")


@needs_browser
def test_a_users_field_can_be_replayed_and_a_recommendation_liked(tab, http):
    look(tab, "user")
    assert "Whose interests?" in tab.inner_text("#view")
    tab.get_by_role("button", name="ada", exact=True).click()
    tab.wait_for_selector(".chart .slice")
    opened = int(re.search(r"The field has ([\d,]+) visible", tab.inner_text("#field"))[1])
    assert opened > 1
    assert tab.locator("#interests tbody tr").count() > 1
    assert tab.inner_text("#when").startswith("After 120 of 120 events")
    shoot(tab, "user")
    # Back to before the first event, by the keyboard: the field is the root alone.
    tab.focus("#time")
    tab.keyboard.press("Home")
    until(tab, "document.querySelector('#when').textContent.startsWith('After 0 of 120')")
    assert tab.inner_text("#field") == "The field has 1 visible node."
    tab.click("#play")
    until(tab, "document.querySelector('#play').textContent === 'Stop'")
    until(tab, "document.querySelector('#when').textContent.startsWith('After 120 of 120')", seconds=60)
    until(tab, "document.querySelector('#play').textContent === 'Play'")
    assert int(re.search(r"The field has ([\d,]+) visible", tab.inner_text("#field"))[1]) == opened
    # Recommend, ask why, like: real events.
    tab.click("#recommend")
    tab.wait_for_selector(".offer h3")
    tab.click(".offer summary")
    tab.wait_for_selector(".offer table")
    steps = tab.locator(".offer caption").all_inner_texts()
    assert "which group" in steps[0]
    assert "which item" in steps[-1]
    assert tab.locator(".offer tr.chosen").count() == len(steps)
    before = http.get("/v1/users/ada").json()["events"]
    tab.get_by_role("button", name="Like").click()
    tab.wait_for_selector("text=Liked, and on disk.")
    told = http.get("/v1/users/ada").json()
    assert told["events"] == before + 1
    assert told["history"][-1]["reward"] == 1.0
    until(tab, f"document.querySelector('#when').textContent.startsWith('After {before + 1} of {before + 1}')")
    until(tab, "document.querySelector('#history li').innerText.endsWith('reward 1')")
    assert tab.get_by_role("button", name="Like").is_disabled()
    shoot(tab, "recommended")
    tab.locator("#interests button.link").first.click()
    until(tab, "document.querySelectorAll('nav.path button').length > 1")


@needs_browser
def test_new_users_and_integer_users_can_be_typed(tab, http):
    look(tab, "user")
    tab.fill("#who", "<b>new & odd/100%</b>")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=has been here")
    assert "What interests <b>new & odd/100%</b>" in tab.inner_text("#view")
    tab.click("#recommend")
    tab.wait_for_selector(".offer h3")
    tab.get_by_role("button", name="Skip").click()
    tab.wait_for_selector("text=Skipped, and on disk.")
    assert http.get("/v1/users/%3Cb%3Enew%20%26%20odd%2F100%25%3C%2Fb%3E").json()["events"] == 2
    tab.fill("#who", "7")
    until(tab, "[...document.querySelectorAll('#users option')].some(x => x.value === '7')")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=After 120 of 120 events")
    assert "#/user/int%3A7" in tab.url


@needs_browser
def test_live_charts_colours_and_reports_are_shown(tab):
    look(tab, "live")
    until(tab, "document.querySelectorAll('.grid .scatterlayer .js-line').length >= 7", seconds=20)
    assert "decisions since the start" in tab.inner_text(".numbers")
    assert "takes writes" in tab.inner_text(".numbers")
    shoot(tab, "live")
    for theme, background in (("light", "rgb(247, 246, 242)"), ("dark", "rgb(20, 24, 29)")):
        tab.click("#theme")
        assert tab.evaluate("document.documentElement.dataset.theme") == theme
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == background
    shoot(tab, "dark")
    tab.reload()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    look(tab, "experiments")
    assert [text.split("\n")[0] for text in tab.locator("#reports li").all_inner_texts()] == [
        "evil · evil.html",
        "Experiment: <rewards> · one/report.html",
    ]
    tab.locator("#reports button", has_text="rewards").click()
    frame = tab.frame_locator("iframe")
    assert frame.locator("#told").inner_text() == "Hello"
    assert tab.frames[1].evaluate("typeof Plotly.react") == "function"
    shoot(tab, "experiments")
    # A report has no origin: it cannot reach the page it is shown in.
    tab.locator("#reports button", has_text="evil").click()
    until(tab, "document.querySelector('iframe')?.title.includes('evil')")
    tab.wait_for_timeout(500)
    [fault] = [one for one in tab.faults if "document" in one]
    assert "cross-origin" in fault or "sandboxed" in fault
    tab.faults.clear()


@needs_browser
def test_the_page_says_what_the_crowd_has_learned(tab, http):
    for n in range(12):
        [shown] = http.post("/v1/recommend", json={"user": f"crowd-{n}"}).json()["items"]
        http.post("/v1/feedback", json={"decision_id": shown["decision_id"], "reward": 1.0})
    wait_until(lambda: http.get("/v1/crowd").json()["waiting"] == 0, "an edition knows it")
    told = http.get("/v1/crowd").json()
    look(tab, "crowd")
    tab.wait_for_selector("#risen table")
    until(tab, "document.querySelectorAll('.grid .scatterlayer .js-line').length >= 2", seconds=20)
    assert "What the crowd has learned" in tab.inner_text("#view")
    assert "present edition" in tab.inner_text("#crowd-numbers")
    assert tab.locator("#risen tbody tr").count() == len(told["risen"])
    shoot(tab, "crowd")
    tab.get_by_role("button", name="Colour the tree by the crowd").click()
    tab.wait_for_selector(".chart .slice")
    assert tab.locator("button[data-choice=crowd]").get_attribute("aria-pressed") == "true"
    assert "expected reward for a new user" in tab.inner_text(".legend")
    tab.locator("button[data-choice=groups]").click()  # which the next view begins with
    assert tab.inner_text(".legend") == ""


@needs_browser
def test_on_a_phone_nothing_is_wider_than_the_screen(tab):
    tab.set_viewport_size({"width": 390, "height": 844})
    for where in ("overview", "catalogue", "user/ada", "crowd", "live", "experiments"):
        look(tab, where)
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, where
    look(tab, "user/ada")
    shoot(tab, "phone")


@needs_browser
def test_controls_have_names_and_work_by_keyboard(tab):
    for where in ("overview", "catalogue", "user/ada", "crowd", "live", "experiments"):
        look(tab, where)
        tab.wait_for_timeout(300)
        nameless = tab.evaluate(
            """[...document.querySelectorAll('button, a, input, select')].filter((x) => !x.hidden &&
            !(x.textContent.trim() || x.getAttribute('aria-label') || x.labels?.length)).map((x) => x.outerHTML)"""
        )
        assert nameless == [], where
        assert tab.locator("h1").count() == 1
        assert tab.locator("main").count() == 1
        assert tab.locator("nav a[aria-current=page]").count() == 1
        drawn = tab.locator("[role=img]").all()
        assert all(one.get_attribute("aria-label") for one in drawn)
    # By the keyboard alone: skip to the content, open a group.
    look(tab)
    tab.wait_for_selector("#list button")
    tab.locator("#search").focus()
    tab.keyboard.press("Tab")
    while tab.evaluate("document.activeElement.parentElement.parentElement.id") != "list":
        tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    until(tab, "document.querySelectorAll('nav.path button').length === 2")


@needs_browser
def test_the_page_asks_for_a_key_and_shows_what_it_may_do(browser, large_items, tmp_path):  # noqa: F811
    keys = {role: new_key() for role in ("read", "write")}
    lines = "".join(f'[[keys]]\nname = "{role}r"\nrole = "{role}"\nsha256 = "{key[1]}"\n' for role, key in keys.items())
    (tmp_path / "settings.toml").write_text(lines)
    with serving(tmp_path, large_items, "--config", tmp_path / "settings.toml") as running:
        tab = watched(browser.new_page())
        tab.goto(running.url)
        tab.wait_for_selector("#key-input")
        shoot(tab, "key")
        for wrong in ("tw_wrong", "“tw_quoted”"):
            tab.fill("#key-input", wrong)
            tab.keyboard.press("Enter")
            tab.wait_for_selector("text=does not know that key")
        tab.fill("#key-input", keys["read"][0])
        tab.keyboard.press("Enter")
        tab.wait_for_selector("text=Nobody was here yet")
        assert "this key may only look" in tab.inner_text("#facts")
        assert tab.evaluate("Object.values(localStorage).join()").find("tw_") < 0
        tab.goto(running.url + "/#/user/ada")
        tab.click("#recommend")
        tab.wait_for_selector("text=This key may look but not act")
        tab.click("#key")
        tab.wait_for_selector("#key-input")
        tab.fill("#key-input", keys["write"][0])
        tab.keyboard.press("Enter")
        tab.wait_for_selector("text=has been here")
        tab.click("#recommend")
        tab.wait_for_selector(".offer h3")
        assert all("401" in fault or "403" in fault for fault in tab.faults)
        tab.close()
    assert keys["read"][0] not in (tmp_path / "stderr").read_text()


@needs_browser
def test_the_page_recovers_when_the_service_is_back(browser, large_items, tmp_path):  # noqa: F811
    running = start(tmp_path, large_items)
    tab = watched(browser.new_page())
    tab.goto(running.url + "/#/user")
    tab.wait_for_selector("text=There are no users yet")
    tab.goto(running.url + "/#/live")
    tab.wait_for_selector("text=Nothing was recommended since the start")
    kill(running)
    tab.wait_for_selector("#state[data-is=bad]", timeout=60_000)
    tab.goto(running.url + "/#/catalogue")
    tab.wait_for_selector("text=The service does not answer")
    shoot(tab, "gone")
    tab.wait_for_timeout(300)
    port = running.url.rpartition(":")[2]
    again = start(tmp_path, large_items, "--port", port)
    try:
        tab.wait_for_selector("#state[data-is=good]", timeout=60_000)
        tab.wait_for_selector(".chart .slice", timeout=60_000)
        assert all("ERR_" in fault or "503" in fault for fault in tab.faults)  # gone, or still starting
    finally:
        tab.close()
        stop(again)


def slowly(tab, part, milliseconds):
    """Have requests whose address contains something take their time."""
    tab.add_init_script(
        f"""const plain = window.fetch; window.fetch = (url, options) => new Promise((done) =>
        setTimeout(done, String(url).includes({part!r}) ? {milliseconds} : 0)).then(() => plain(url, options));"""
    )


@needs_browser
@pytest.mark.parametrize("where", ["live", "experiments", "user/ada", "crowd"])
def test_late_answers_do_not_replace_another_view(tab, where):
    slowly(
        tab, {"live": "/v1/live", "crowd": "/v1/crowd", "experiments": "/v1/reports", "user/ada": "/field"}[where], 700
    )
    tab.goto(f"{tab.base}/#/{where}")
    tab.wait_for_timeout(350)
    tab.click("nav a[data-view=catalogue]")
    tab.wait_for_selector(".chart .slice")
    tab.wait_for_timeout(900)
    assert tab.locator("#search").count() == 1
    assert tab.locator("#reports, .numbers, #recommend").count() == 0


@needs_browser
def test_late_items_are_not_added_to_another_group(tab):
    slowly(tab, "/v1/tree/0/items", 600)
    look(tab)
    tab.locator("#list button", has_text="Show its items").click()
    tab.locator("#list li button").first.click()
    until(tab, "document.querySelectorAll('nav.path button').length === 2")
    before = tab.locator("#list li").count()
    tab.wait_for_timeout(900)
    assert tab.locator("#list li").count() == before
    assert tab.evaluate("document.activeElement.id") == "title"  # so that a screen reader says where it is


@needs_browser
def test_replay_stops_while_answers_are_pending(tab, http):
    slowly(tab, "/field", 300)
    look(tab, "user/zoe")
    tab.click("#recommend")
    tab.wait_for_selector(".offer h3")
    tab.get_by_role("button", name="Like").click()
    tab.wait_for_selector("text=Liked, and on disk.")
    until(tab, "document.querySelector('#when').textContent.startsWith('After 2 of 2')")
    tab.click("#play")
    tab.wait_for_timeout(100)
    tab.click("#play")
    tab.wait_for_timeout(800)
    at = tab.inner_text("#when")
    tab.wait_for_timeout(600)
    assert tab.inner_text("#when") == at
    assert tab.inner_text("#play") == "Play"
    tab.click("#recommend")
    tab.focus("#time")
    tab.keyboard.press("Home")
    tab.wait_for_selector(".offer h3")
    assert "aborted" not in tab.inner_text("#view")


@needs_browser
def test_the_skip_link_leads_to_the_content(tab):
    look(tab, "live")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "view"
    assert tab.url.endswith("#/live")
    look(tab, "constructor")
    tab.wait_for_selector("#verdict")


@needs_browser
def test_ids_beyond_javascripts_integers_are_kept_exactly(browser, tmp_path):  # noqa: F811
    large = 2**60
    shop = synthetic_catalogue(50, dim=4, seed=0)
    tw.Catalogue([large + row for row in range(50)], shop.vectors, titles=shop.titles).save(tmp_path / "items")
    with serving(tmp_path, tmp_path / "items") as running:
        user = 2**53 + 1
        live_a_while(running.url, users=(user, 12345, "..", "int:9"), rounds=3)
        tab = watched(browser.new_page())
        tab.base = running.url
        look(tab, "user")
        tab.get_by_role("button", name=str(user)).click()
        tab.wait_for_selector("text=After 6 of 6 events")
        tab.click("#recommend")
        tab.wait_for_selector(".offer h3")
        assert tab.inner_text(".offer h3") in shop.titles.to_list()
        tab.get_by_role("button", name="Like").click()
        tab.wait_for_selector("text=Liked, and on disk.")
        users = httpx.get(running.url + "/v1/users").json()["users"]
        assert set(users) == {user, 12345, "..", "int:9"}
        for typed, events in (("12345", 6), ("int:12345", 6), ("..", 6), (str(user), 8)):
            tab.fill("#who", typed)
            tab.keyboard.press("Enter")  # faster than the list of suggestions
            tab.wait_for_selector(f"text=After {events} of {events} events")
            look(tab, "user")
        look(tab)
        tab.fill("#search", str(large + 7))
        tab.wait_for_selector("text=0 groups and 1 items match")
        tab.locator("#list li button").first.click()
        tab.wait_for_selector("#item")
        assert str(large + 7) in tab.inner_text("#item")
        assert tab.faults == []
        tab.set_viewport_size({"width": 390, "height": 844})
        live_a_while(running.url, users=("x" * 500,), rounds=1)
        look(tab, "user")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        tab.close()


@needs_browser
def test_the_page_explains_held_out_users_and_apprentices(browser, large_items, tmp_path):  # noqa: F811
    with serving(tmp_path, large_items, "--set", "holdout=0.999999") as running:
        tab = watched(browser.new_page())
        tab.base = running.url
        look(tab, "user/ada")
        assert "held out" in tab.inner_text("#view")
        tab.click("#recommend")
        tab.wait_for_selector("text=popular: this user is held out")
        tab.click(".offer summary")
        tab.wait_for_selector("text=It has earned most so far")
        [made] = httpx.post(running.url + "/v1/recommend", json={"user": "ada"}).json()["items"]
        assert httpx.get(running.url + "/v1/decisions/" + made["decision_id"]).json()["steps"] == []
        assert tab.faults == []
        tab.close()
    with serving(tmp_path, large_items, "--mode", "apprentice") as running:
        tab = watched(browser.new_page())
        tab.goto(running.url + "/#/user/ada")
        tab.wait_for_selector("text=An apprentice serves")
        assert tab.locator("#recommend").is_disabled()
        tab.close()
