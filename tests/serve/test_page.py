"""The service's page, in a real browser, as a person would use it; and the routes behind it."""

import gzip
import os
import re
import time

import httpx
import numpy as np
import pytest

import treeward as tw
from tests.browsing import SHOTS, browser, needs_browser, watched  # noqa: F401
from tests.serving import kill, serving, start, stop
from tests.waiting import wait_until
from treeward.client import Client
from treeward.core.page import page as report_page
from treeward.data.synthetic import synthetic_catalogue
from treeward.explorer.records import Totals
from treeward.serve.keys import new_key
from treeward.serve.live import percentile
from treeward.serve.metrics import STEPS
from treeward.serve.reports import PLOTLY, plotly


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "items"
    synthetic_catalogue(3_000, dim=8, seed=0).save(path)
    return path


def live_a_while(url, users=("ada", 7), rounds=60, key=None):
    """Let users come who like what lies under some of the root's children."""
    with Client(url, key=key) as client:
        for i in range(rounds):
            for user in users:
                [made] = client.recommend(user)
                client.feedback(made["decision_id"], float(made["path"][0] % 3 == 0 if made["path"] else i % 2))


@pytest.fixture(scope="module")
def service(items, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    runs = folder / "runs"
    (runs / "one").mkdir(parents=True)
    (runs / "one" / "report.html").write_bytes(report_page("Experiment: <rewards>", ["<p id=told>Hello</p>"]))
    (runs / "evil.html").write_text("<title>evil</title><script>document.title = parent.document.title</script>")
    (runs / "notes.txt").write_text("not a page")
    (folder / "secret.html").write_text("nobody may read this")
    (runs / "link.html").symlink_to(folder / "secret.html")
    (runs / "up").symlink_to(folder)
    (runs / os.fsdecode(b"\xff.html")).write_text("a name that is no text")
    with serving(folder, items, "--policy", "phcb", "--reports", runs) as running:
        live_a_while(running.url)
        yield running


@pytest.fixture
def http(service):
    with httpx.Client(base_url=service.url, timeout=10) as client:
        yield client


@pytest.fixture
def tab(browser, service):  # noqa: F811
    made = watched(browser.new_page(viewport={"width": 1280, "height": 900}))
    made.base = service.url
    yield made
    assert made.faults == []
    made.close()


def look(tab, where=""):
    tab.goto(f"{tab.base}/#/{where}")
    tab.wait_for_selector("#view:not([aria-busy])")


def until(tab, expression, arg=None, seconds=120):
    """Wait until something holds; playwright's own way evaluates text in the page, which the page's policy forbids."""
    wait_until(lambda: tab.evaluate(expression, arg), expression, seconds)


def shoot(tab, name):
    SHOTS.mkdir(exist_ok=True)
    tab.wait_for_timeout(600)  # until plotly has come to rest
    tab.screenshot(path=SHOTS / f"{name}.png")


@needs_browser
def test_walking_the_catalogue(tab):
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
def test_searching(tab, http):
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
def test_a_user_from_first_look_to_like_and_replay(tab, http):
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
def test_somebody_new_and_somebody_with_a_number(tab, http):
    look(tab, "user")
    tab.fill("#who", "<b>new & odd/100%</b>")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=No events yet")
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
def test_live_and_reports_and_colours(tab):
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
    # A report is nobody: it cannot reach the page it is shown in.
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
    tab.get_by_role("button", name="Colour the tree by what everybody thinks").click()
    tab.wait_for_selector(".chart .slice")
    assert tab.locator("button[data-choice=crowd]").get_attribute("aria-pressed") == "true"
    assert "expected reward of a newcomer" in tab.inner_text(".legend")
    tab.locator("button[data-choice=groups]").click()  # which the next view begins with
    assert tab.inner_text(".legend") == ""


@needs_browser
def test_on_a_phone_nothing_is_wider_than_the_screen(tab):
    tab.set_viewport_size({"width": 390, "height": 844})
    for where in ("catalogue", "user/ada", "crowd", "live", "experiments"):
        look(tab, where)
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, where
    look(tab, "user/ada")
    shoot(tab, "phone")


@needs_browser
def test_it_can_be_used_without_seeing_it(tab):
    for where in ("catalogue", "user/ada", "crowd", "live", "experiments"):
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
def test_keys_wrong_and_right_and_rights(browser, items, tmp_path):  # noqa: F811
    keys = {role: new_key() for role in ("read", "write")}
    lines = "".join(f'[[keys]]\nname = "{role}r"\nrole = "{role}"\nsha256 = "{key[1]}"\n' for role, key in keys.items())
    (tmp_path / "settings.toml").write_text(lines)
    with serving(tmp_path, items, "--config", tmp_path / "settings.toml") as running:
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
        tab.wait_for_selector(".chart .slice")
        assert "this key may only look" in tab.inner_text("#facts")
        assert tab.evaluate("Object.values(localStorage).join()").find("tw_") < 0
        tab.goto(running.url + "/#/user/ada")
        tab.click("#recommend")
        tab.wait_for_selector("text=This key may look but not act")
        tab.click("#key")
        tab.wait_for_selector("#key-input")
        tab.fill("#key-input", keys["write"][0])
        tab.keyboard.press("Enter")
        tab.wait_for_selector("text=No events yet")
        tab.click("#recommend")
        tab.wait_for_selector(".offer h3")
        assert all("401" in fault or "403" in fault for fault in tab.faults)
        tab.close()
    assert keys["read"][0] not in (tmp_path / "stderr").read_text()


@needs_browser
def test_a_service_that_is_gone_and_back(browser, items, tmp_path):  # noqa: F811
    running = start(tmp_path, items)
    tab = watched(browser.new_page())
    tab.goto(running.url + "/#/user")
    tab.wait_for_selector("text=Nobody was here yet")
    tab.goto(running.url + "/#/live")
    tab.wait_for_selector("text=Nothing was recommended since the start")
    kill(running)
    tab.wait_for_selector("#state[data-is=bad]", timeout=60_000)
    tab.goto(running.url + "/#/catalogue")
    tab.wait_for_selector("text=The service does not answer")
    shoot(tab, "gone")
    tab.wait_for_timeout(300)
    port = running.url.rpartition(":")[2]
    again = start(tmp_path, items, "--port", port)
    try:
        tab.wait_for_selector("#state[data-is=good]", timeout=60_000)
        tab.wait_for_selector(".chart .slice", timeout=60_000)
        assert all("ERR_" in fault for fault in tab.faults)
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
def test_what_comes_late_finds_nobody_elses_place(tab, where):
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
def test_items_that_come_late_are_not_anothers(tab):
    slowly(tab, "/v1/tree/0/items", 600)
    look(tab)
    tab.locator("#list button", has_text="Show its items").click()
    tab.locator("#list li button").first.click()
    until(tab, "document.querySelectorAll('nav.path button').length === 2")
    before = tab.locator("#list li").count()
    tab.wait_for_timeout(900)
    assert tab.locator("#list li").count() == before
    assert tab.evaluate("document.activeElement.id") == "title"  # and whoever cannot see it is told where they are


@needs_browser
def test_stopping_and_seeking_while_answers_are_on_their_way(tab, http):
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
def test_the_way_to_the_content(tab):
    look(tab, "live")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "view"
    assert tab.url.endswith("#/live")
    look(tab, "constructor")
    tab.wait_for_selector(".chart .slice")


@needs_browser
def test_ids_that_no_javascript_number_holds(browser, tmp_path):  # noqa: F811
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
def test_held_out_and_apprentices(browser, items, tmp_path):  # noqa: F811
    with serving(tmp_path, items, "--set", "holdout=0.999999") as running:
        tab = watched(browser.new_page())
        tab.base = running.url
        look(tab, "user/ada")
        assert "held out" in tab.inner_text("#view")
        tab.click("#recommend")
        tab.wait_for_selector("text=popular: this user is held out")
        tab.click(".offer summary")
        tab.wait_for_selector("text=It earned most so far")
        [made] = httpx.post(running.url + "/v1/recommend", json={"user": "ada"}).json()["items"]
        assert httpx.get(running.url + "/v1/decisions/" + made["decision_id"]).json()["steps"] == []
        assert tab.faults == []
        tab.close()
    with serving(tmp_path, items, "--mode", "apprentice") as running:
        tab = watched(browser.new_page())
        tab.goto(running.url + "/#/user/ada")
        tab.wait_for_selector("text=An apprentice serves")
        assert tab.locator("#recommend").is_disabled()
        tab.close()


def test_files_of_the_page(http):
    index = http.get("/")
    assert index.headers["content-type"].startswith("text/html")
    policy = index.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert not re.search(rb"<script[^>]*>[^<]", index.content)
    names = set(re.findall(r"/assets/([\w.-]+)", index.text)) - {PLOTLY}
    assert {"main.js", "style.css", "icon.svg"} <= names
    for name in names:
        answer = http.get(f"/assets/{name}")
        assert answer.status_code == 200
        assert len(answer.content) < 1 << 20
        kept = http.get(f"/assets/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (kept.status_code, kept.content) == (304, b"")
    with http.stream("GET", f"/assets/{PLOTLY}", headers={"accept-encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    assert "immutable" in answer.headers["cache-control"]
    assert len(packed) < 2 << 20
    assert gzip.decompress(packed) == plotly()
    plain = http.get(f"/assets/{PLOTLY}", headers={"accept-encoding": "identity"})
    assert plain.content == plotly()
    for name in ("nothing.js", "..%2Fapp.py", "%2e%2e%2fapp.py", "__init__.py", ""):
        assert http.get(f"/assets/{name}").status_code == 404


def test_maps_add_up(http):
    told = http.get("/v1/tree/0/map").json()
    nodes = told["nodes"]
    assert nodes["node"][0] == 0
    ring = [i for i, parent in enumerate(nodes["parent"]) if parent == 0]
    assert sum(nodes["items"][i] for i in ring) == nodes["items"][0] == 3_000
    assert sum(nodes["shown"][i] for i in ring) == nodes["shown"][0] >= 120
    assert sum(nodes["earned"][i] for i in ring) == pytest.approx(nodes["earned"][0])
    known = set(nodes["node"])
    assert all(parent in known for parent in nodes["parent"][1:])
    inside = http.get("/v1/tree/0/items", params={"after": 2_990, "n": 50}).json()
    assert (inside["total"], len(inside["items"])) == (3_000, 10)
    for path in ("/v1/tree/99999/map", "/v1/tree/x/map", "/v1/tree/99999/items"):
        assert http.get(path).status_code == 404
    for query in ("after=-1", "n=0", "n=501", "n=x", "wrong=1", "n=1&n=2", "after=1e400", "%ff=1"):
        assert http.get(f"/v1/tree/0/items?{query}").status_code == 400, query


def test_the_field_then_and_now(http):
    now = http.get("/v1/users/ada/field").json()
    assert (now["upto"], now["events"]) == (now["events"], now["events"])
    first = http.get("/v1/users/ada/field", params={"upto": 0}).json()
    assert (first["opened"], first["last"]) == (1, None)
    opened = [http.get("/v1/users/ada/field", params={"upto": n}).json()["opened"] for n in range(0, 120, 12)]
    assert opened == sorted(opened)
    assert opened[-1] > 1
    # The nodes that are drawn and visible do not lie in each other.
    visible = {node for node, seen in zip(now["nodes"]["node"], now["visible"], strict=True) if seen}
    parent = dict(zip(now["nodes"]["node"], now["nodes"]["parent"], strict=True))
    for node in visible:
        above = parent[node]
        while above in parent:
            assert above not in visible
            above = parent[above]
    told = http.get("/v1/users/ada").json()["interests"]
    means = dict(zip(now["nodes"]["node"], now["mean"], strict=True))
    assert all(means[one["node"]] == pytest.approx(one["mean"], rel=1e-4) for one in told if one["node"] in means)
    assert http.get("/v1/users/nobody/field", params={"upto": 5}).json()["upto"] == 0
    assert http.get("/v1/users/ada/field", params={"node": 10**6}).status_code == 404


def test_children_part_by_part(http):
    told = http.get("/v1/tree/0/children", params={"n": 5}).json()
    rest = http.get("/v1/tree/0/children", params={"after": 5, "n": 500}).json()
    nodes = told["nodes"]["node"] + rest["nodes"]["node"]
    sizes = told["nodes"]["items"] + rest["nodes"]["items"]
    assert told["total"] == len(set(nodes)) == len(nodes)
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == 3_000


def test_live_knows_rewards_that_were_changed(items, tmp_path):
    with serving(tmp_path, items, "--set", "on_repeat=last") as running, Client(running.url) as client:
        [made] = client.recommend("ada")
        client.feedback(made["decision_id"], 0.25)
        client.feedback(made["decision_id"], 1.0)
        told = httpx.get(running.url + "/v1/live").json()
        assert (told["rewards"], told["earned"]) == (1, 1.0)


def test_search_and_users(http):
    assert http.get("/v1/search").json() == {"items": [], "all_items": 0, "nodes": [], "all_nodes": 0}
    assert [one["node"] for one in http.get("/v1/search?q=node 5").json()["nodes"]] == [5]
    assert http.get("/v1/search?q=17").json()["items"][0]["item"] == 17
    for rubbish in ("(", "[a-", "\\", "%", "*", "\x00", "é" * 200):
        assert http.get("/v1/search", params={"q": rubbish}).status_code == 200, rubbish
    assert http.get("/v1/search", params={"q": "a" * 201}).status_code == 400
    told = http.get("/v1/users").json()
    assert {"ada", 7} <= set(told["users"])
    assert http.get("/v1/users?q=AD").json()["users"] == ["ada"]


def test_explanations(http):
    [made] = http.post("/v1/recommend", json={"user": "ada"}).json()["items"]
    told = http.get("/v1/decisions/" + made["decision_id"]).json()
    assert (told["reproduced"], told["item"]) == (True, made["item"])
    assert [one["id"] for one in told["way"]] == made["path"]
    assert [sum(one["chosen"] for one in step["considered"]) for step in told["steps"]] == [1] * len(told["steps"])
    assert http.get("/v1/decisions/" + made["decision_id"][:-2] + "AA").status_code == 404


def test_reports_are_read_by_links_alone(http):
    link = http.get("/v1/reports/one%2Freport.html").json()["url"]
    answer = http.get(link)
    assert b"Hello" in answer.content
    assert len(answer.content) < 1 << 20
    assert "sandbox allow-scripts" in answer.headers["content-security-policy"]
    name, _, ticket = link.partition("?")
    assert http.get(name).status_code == 404
    assert http.get(f"/reports/evil.html?{ticket}").status_code == 404
    assert http.get(link.replace("until=", "until=9")).status_code == 404
    assert [one["name"] for one in http.get("/v1/reports").json()["reports"]] == ["evil.html", "one/report.html"]
    for other in ("..%2Fsecret.html", "%2Fetc%2Fpasswd", "notes.txt", "one", "link.html", "up%2Fsecret.html"):
        assert http.get(f"/v1/reports/{other}").status_code == 404


def test_what_live_says(http):
    while not (before := http.get("/v1/live").json())["seconds"]["time"]:
        time.sleep(0.2)
    [made] = http.post("/v1/recommend", json={"user": "lee"}).json()["items"]
    http.post("/v1/feedback", json={"decision_id": made["decision_id"], "reward": 0.25})
    since = {"after": before["seconds"]["time"][-1]}
    wait_until(lambda: sum(http.get("/v1/live", params=since).json()["seconds"]["decisions"]), "its second is over")
    after = http.get("/v1/live", params=since).json()
    assert after["decisions"] - before["decisions"] == 1
    assert after["rewards"] - before["rewards"] == 1
    assert after["earned"] - before["earned"] == pytest.approx(0.25)
    assert sum(after["seconds"]["decisions"]) >= 1
    assert min(after["seconds"]["time"]) > before["seconds"]["time"][-1]
    shown = http.get("/v1/tree/0/items", params={"n": 500}).json()["items"]
    assert after["seconds"]["covered"][-1] >= sum(one["shown"] > 0 for one in shown)


def test_percentiles_from_counts():
    counts = [0] * (len(STEPS) + 1)
    assert percentile(counts, 0.5) is None
    counts[3] = 100
    assert percentile(counts, 0.5) == pytest.approx(1e3 * (STEPS[2] + STEPS[3]) / 2)
    counts[-1] = 100
    assert percentile(counts, 0.99) > 1e3 * STEPS[-1]


@pytest.mark.parametrize("name", ["phcb", "hcb", "beam", "flat"])
def test_fields_of_every_kind(name):
    shop = synthetic_catalogue(600, dim=8, seed=0)
    made = tw.Explorer(shop, policy=tw.policy.TREE_POLICIES[name](), seed=0, counts=True)
    for i in range(60):
        [d] = made.recommend(["ada"])
        made.feedback({d.id: float(i % 2)})
    told = made.inspect.field("ada")
    assert (told.upto, told.events) == (60, 60)
    assert told.visits[0] == 60
    assert told.reward[0] == 30.0
    assert np.isfinite(told.mean).all()
    assert min(told.width) > 0
    interests = {one.node: one for one in made.inspect.interests("ada")}
    for i, node in enumerate(told.nodes.node):
        if node in interests:
            assert told.mean[i] == pytest.approx(interests[node].mean, abs=1e-5)
            assert told.visits[i] == interests[node].visits
    counts = made.inspect.item_counts()
    assert counts.earned.sum() == 30.0
    assert made.forget("ada") == 60
    assert made.inspect.item_counts().earned.sum() == 0.0
    with pytest.raises(tw.InvalidArgument, match="counts"):
        tw.Explorer(shop, seed=0).inspect.item_counts()


def test_counts_are_those_of_the_store():
    shop, store = synthetic_catalogue(300, dim=4, seed=0), tw.MemoryStore()
    first = tw.Explorer(shop, store=store, exposures="all", on_repeat="last", counts=True, seed=0)
    for i in range(40):
        for d in first.recommend(["ada", "bob"], n=2):
            first.feedback({d.id: i / 40})
            first.feedback({d.id: 1.0})
    first.ingest(tw.Interactions(["eva"] * 3, shop.ids[:3]))
    again = tw.Explorer(shop, store=store, exposures="all", counts=True, seed=0)
    mine, theirs = first.inspect.item_counts(), again.inspect.item_counts()
    np.testing.assert_allclose(mine.shown, theirs.shown)
    np.testing.assert_allclose(mine.earned, theirs.earned)
    assert (mine.shown.sum(), mine.earned.sum()) == (160, pytest.approx(163.0))
    assert first.inspect.totals() == Totals(int((mine.shown > 0).sum()), 163, pytest.approx(163.0))
    assert (again.inspect.totals().rewards, again.inspect.totals().earned) == (0, 0.0)
    nodes = np.arange(len(first.tree.parent))
    assert first.inspect.node_counts(nodes).shown[0] == 160


def test_decisions_say_whether_they_were_bold():
    shop = synthetic_catalogue(500, dim=8, seed=0)
    meek = tw.Explorer(shop, policy=tw.Beam(tw.LinUCB(alpha=0.0), fresh=0.0), seed=0)
    bold = tw.Explorer(shop, policy=tw.Beam(tw.LinUCB(alpha=5.0)), seed=0)
    said = {}
    for name, made in (("meek", meek), ("bold", bold)):
        told = []
        for i in range(80):
            [d] = made.recommend(["ada"])
            made.feedback({d.id: float(i % 3 == 0)})
            best = max(one.mean for one in made.explain(d).steps[-1].considered)
            assert d.bold == (best > d.mean + 1e-6) or abs(best - d.mean) < 1e-5
            told.append(d.bold)
        said[name] = sum(told)
    assert said["meek"] == 0
    assert said["bold"] > 20
