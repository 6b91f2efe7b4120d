"""Measure the page in headless Chromium, on loopback, over 4,162,024 items: time to load, and what it fetches.

    python benchmarks/page.py [ITEMS]

The baseline of the same run is `/docs`, a page of the same service without scripts or data.
"""

import json
import platform
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import httpx
from playwright.sync_api import Page, sync_playwright

import treeward as tw
from serve import running as serving
from treeward.client import Client
from treeward.data.synthetic import synthetic_catalogue

ITEMS, DIM, WIDTHS, TIMES = 4_162_024, 32, (50, 5_000, 50_000), 7
FIRST_VIEW = 500_000
OUT = Path("bench-out")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
FIRST = "document.querySelector('#verdict') !== null && document.querySelector('#curve')?.firstChild"
READY = "document.querySelectorAll('.chart .slice').length > 0 && document.querySelectorAll('#list button').length > 0"


def shop(items: int) -> tuple[Path, Path]:
    """Return where the catalogue and its tree are, made where they are not."""
    place, tree = OUT / f"page-items-{items}", OUT / f"page-tree-{items}"
    if not tree.exists():
        made = synthetic_catalogue(items, DIM, seed=0)
        made.save(place, overwrite=True)
        widths = WIDTHS if items >= 1_000_000 else None
        grown = tw.ItemTree.build(made.vectors, widths, seed=0)
        start = perf_counter()
        named = grown.named(made.titles)
        print(f"naming {len(grown.parent):,} nodes: {perf_counter() - start:.1f} s")
        named.save(tree)
    return place, tree


def wait(page: Page, expression: str, seconds: float = 60) -> None:
    end = perf_counter() + seconds
    while not page.evaluate(expression):
        if perf_counter() > end:
            raise TimeoutError(expression)
        page.wait_for_timeout(10)


def opened(browser, url: str, ready: str, path: str) -> dict[str, float]:
    """Open a page in a browser that has seen nothing, and return milliseconds and bytes."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    faults, sizes = [], {}
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda answer: sizes.__setitem__(answer.url, answer))
    # The moment is noted in the page: asking from here would add the way.
    page.add_init_script(
        f"const look = () => {{ if (document.body && {ready}) window.readyAt = performance.now(); "
        "else requestAnimationFrame(look); }; requestAnimationFrame(look);"
    )
    page.goto(url + path)
    wait(page, f"window.readyAt !== undefined && {PAINT} !== undefined")
    told = {"paint": page.evaluate(PAINT), "ready": page.evaluate("window.readyAt"), "faults": len(faults)}
    lengths = {one: answer.request.sizes()["responseBodySize"] for one, answer in list(sizes.items())}
    told["largest"] = max((size for one, size in lengths.items() if "plotly" not in one), default=0)
    told["plotly"] = max((size for one, size in lengths.items() if "plotly" in one), default=0)
    told["all"] = sum(size for one, size in lengths.items() if "plotly" not in one)
    if path == "/#/catalogue":
        times = []
        for _ in range(2):  # down two levels
            start = perf_counter()
            before = page.inner_text("#title")
            page.locator("#list li button").first.click()
            wait(page, f"document.querySelector('#title').textContent !== {json.dumps(before)}")
            times.append(1e3 * (perf_counter() - start))
        told["zoom"] = max(times)
    context.close()
    return told


def main() -> None:
    items = int(sys.argv[1]) if len(sys.argv) > 1 else ITEMS
    place, tree = shop(items)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        start = perf_counter()
        with serving(Path(folder), place.absolute(), "--tree", tree.absolute(), "--set", "log=off") as (url, _):
            print(f"ready after {perf_counter() - start:.1f} s")
            with Client(url) as client:
                for i in range(300):
                    [made] = client.recommend(f"user {i % 10}")
                    client.feedback(made["decision_id"], float(i % 2))
            browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            opened(browser, url, READY, "/#/catalogue")  # plotly.js is compressed once, for the first caller
            firsts = [opened(browser, url, FIRST, "/") for _ in range(TIMES)]
            runs = [opened(browser, url, READY, "/#/catalogue") for _ in range(TIMES)]
            plain = [opened(browser, url, "true", "/docs") for _ in range(TIMES)]
            browser.close()
            with httpx.Client(base_url=url, timeout=60) as http:
                routes = {}
                for path in ("/v1/tree/0/map", "/v1/tree/1/map", "/v1/search?q=lunar", "/v1/users/user%201/field",
                             "/v1/live", "/v1/users", "/v1/overview", "/v1/crowd"):  # fmt: skip
                    took, size = [], 0
                    for _ in range(TIMES):
                        start = perf_counter()
                        size = len(http.get(path).raise_for_status().content)
                        took.append(1e3 * (perf_counter() - start))
                    routes[path] = {"ms": round(statistics.median(took), 1), "bytes": size}
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    first = {name: statistics.median(run[name] for run in firsts) for name in firsts[0]}
    base = statistics.median(run["paint"] for run in plain)
    told = {
        "items": items, "first paint ms": round(first["paint"]), "first view ready ms": round(first["ready"]),
        "first view bytes": first["all"], "first view plotly bytes": first["plotly"],
        "catalogue's first paint ms": round(middle["paint"]), "catalogue interactive ms": round(middle["ready"]),
        "plain page's first paint ms": round(base), "ratio": round(first["paint"] / base, 2),
        "zoom ms": round(middle["zoom"]), "largest other request": middle["largest"],
        "plotly.js": middle["plotly"], "console errors": sum(run["faults"] for run in firsts + runs),
        "routes": routes, "machine": platform.machine(),
    }  # fmt: skip
    print(json.dumps(told, indent=2))
    OUT.mkdir(exist_ok=True)
    (OUT / "page.json").write_text(json.dumps(told, indent=2))
    largest = max(middle["largest"], *(one["bytes"] for one in routes.values()))
    small = first["all"] < FIRST_VIEW and not first["plotly"]
    met = max(first["paint"], middle["paint"]) < 1000 and middle["ready"] < 2000 and largest < 1 << 20 and small
    met = met and not told["console errors"]
    print("first paint under 1 s, first view under 500 KB without plotly, catalogue interactive under 2 s, no other "
          "request over 1 MB, no error:", "met" if met else "MISSED")  # fmt: skip
    sys.exit(not met)


if __name__ == "__main__":
    main()
