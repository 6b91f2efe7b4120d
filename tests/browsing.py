"""A real browser for tests, and tabs in which nothing may go wrong unnoticed."""

import os
import shutil
from pathlib import Path

import pytest

from tests.waiting import wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SHOTS = Path(__file__).parent.parent / "test-shots"
"""Where screenshots go, to be looked at."""

AXE = Path(__file__).parent.parent / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
"""Checks of accessibility, which the Makefile installs."""

# In CI a browser that cannot be had is a failure, told by the first test that wants one.
needs_browser = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"),
    reason="no Chromium on this machine (Debian: apt-get install chromium)",
)

needs_axe = pytest.mark.skipif(
    not AXE.exists() and not os.environ.get("CI"), reason="no axe-core on this machine (make test installs it with npm)"
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "no Chromium on this machine (Debian: apt-get install chromium)"
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def watched(page):
    """Have a page note its errors in `page.faults`."""
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    return page


def look(tab, where="catalogue"):
    tab.goto(f"{tab.base}/#/{where}")
    tab.wait_for_selector("#view:not([aria-busy])")


def until(tab, expression, arg=None, seconds=120):
    """Wait until something holds; playwright's own way evaluates text in the page, which the page's policy forbids."""
    wait_until(lambda: tab.evaluate(expression, arg), expression, seconds)


def shoot(tab, name):
    SHOTS.mkdir(exist_ok=True)
    tab.wait_for_timeout(600)  # until plotly has come to rest
    tab.screenshot(path=SHOTS / f"{name}.png")
