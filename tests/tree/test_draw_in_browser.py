"""The drawing, opened in a real browser."""

import time

import numpy as np
import pytest

import treeward as tw
from tests.browsing import browser, needs_browser, watched  # noqa: F401
from treeward.simulate import draw_curves

pytestmark = needs_browser


@pytest.fixture
def tab(browser):  # noqa: F811
    made = watched(browser.new_page(viewport={"width": 1200, "height": 850}))
    made.on("request", lambda request: made.faults.append(request.url) if request.url.startswith("http") else None)
    yield made
    assert made.faults == []
    made.close()


def open_page(tab, path):
    tab.goto(path.as_uri())
    tab.wait_for_selector("#chart .slice")


def test_clicks_walk_through_the_tree(tab, tmp_path):
    paths = [("<b>bold</b> & co", "inner"), ("toys", "cars"), ("toys", "trains"), ("toys", "trains")]
    tree = tw.ItemTree.from_paths(np.eye(4), paths)
    open_page(tab, tree.draw(tmp_path / "t.html", titles=["A", "B", "C <i>", "D"], heading="Shop"))
    assert tab.inner_text("#title") == "all: 4 items, 2 groups"
    assert tab.inner_text("#facts") == "4 items, 6 nodes, 3 levels"
    tab.get_by_role("button", name="toys").click()
    assert tab.inner_text("#title") == "toys: 3 items, 2 groups"
    tab.get_by_role("button", name="trains").first.click()
    assert tab.locator("#list li").all_inner_texts() == ["C <i>", "D"]
    tab.locator("#path button").first.click()
    tab.get_by_role("button", name="Treemap").click()
    tab.wait_for_function("document.querySelectorAll('#chart .treemap .slice').length > 0")
    tab.locator("#chart .slice", has_text="cars").click(force=True)
    assert tab.inner_text("#title").startswith("cars: 1 items")
    tab.fill("#search", "BOLD")
    assert tab.inner_text("#title") == "1 groups match"
    assert "<b>bold</b> & co" in tab.inner_text("#list")
    tab.fill("#search", "")
    assert tab.inner_text("#title").startswith("cars")


def test_fifty_thousand_leaves_open_at_once(tab, tmp_path):
    count = 50_000
    paths = [(f"top{row % 50}", f"mid{row % 5000}", f"leaf{row}") for row in range(count)]
    tree = tw.ItemTree.from_paths(np.ones((count, 2), dtype=np.float32), paths)
    path = tree.draw(tmp_path / "t.html")
    start = time.perf_counter()
    open_page(tab, path)
    assert time.perf_counter() - start < 60  # about 2 s; the bound only tells "at once" from "hangs"
    assert tab.locator("#chart .slice").count() < 3000
    for _ in range(3):
        tab.locator("#list button").first.click()
    assert "leaf" in tab.inner_text("#title")


def test_a_node_with_many_small_children_is_not_blank(tab, tmp_path):
    tree = tw.ItemTree.from_categories(np.ones((4000, 2), dtype=np.float32), list(range(4000)))
    open_page(tab, tree.draw(tmp_path / "t.html"))
    assert tab.locator("#chart .slice").count() == 102
    assert "3,900 more" in tab.inner_text("#chart")


def test_on_a_phone_nothing_is_wider_than_the_screen(tab, tmp_path):
    tab.set_viewport_size({"width": 390, "height": 800})
    open_page(
        tab, tw.ItemTree.build(np.random.default_rng(0).standard_normal((500, 4)), (9, 60)).draw(tmp_path / "t.html")
    )
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [400, 1400])
def test_every_large_group_has_a_label_and_a_ring(width, tab, tmp_path):
    names = [
        "girl, kizumonogatari, robert",
        "american, with, thirteen",
        "and, movie, adventures",
        "dead, ii, halloween",
    ]
    paths = [(name, f"small {row}") for name in names for row in range(1_000)]  # no part is worth drawing
    paths += [("watson, carlin, holmes", "one"), ("watson, carlin, holmes", "two")] * 500
    tab.set_viewport_size({"width": width, "height": 900})
    open_page(tab, tw.ItemTree.from_paths(np.ones((5_000, 2)), paths).draw(tmp_path / "t.html"))
    shown = "all => all.filter(one => one.getBoundingClientRect().width > 1).map(one => one.textContent)"
    told = tab.locator("#chart text.slicetext").evaluate_all(shown)
    for name in (*names, "watson"):
        assert any(text.startswith(name[:4]) for text in told), told
    assert sum(text.replace(" ", "").startswith("1,000") for text in told) == 4


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_covers_the_legend_of_a_report(width, tab, tmp_path):
    world = tw.World.synthetic(items=300, users=3, dim=4, seed=0)
    results = [
        tw.simulate(policy, world, rounds=20, seed=0) for policy in (tw.HCB(), tw.PHCB(), tw.Flat(), tw.CBLeaf())
    ]
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(draw_curves(results, tmp_path / "curves.html").as_uri())
    tab.locator("figure").first.hover()
    assert tab.locator(".modebar:visible").count() == 0
    legend = tab.locator(".legend .traces").all()
    assert len(legend) >= 4
    assert all(one.bounding_box()["x"] + one.bounding_box()["width"] <= width for one in legend)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
