"""Catalogues and services that several files use."""

import os

import httpx
import pytest

from tests.serve.asking import live_a_while
from tests.serving import serving
from treeward.core.report_html import page as report_page
from treeward.data.synthetic import synthetic_catalogue


@pytest.fixture(scope="session")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "items"
    synthetic_catalogue(1_000, dim=8, seed=0).save(path)
    return path


@pytest.fixture(scope="module")
def service(items, tmp_path_factory):
    """Without keys, on loopback; items may be shown again."""
    with serving(tmp_path_factory.mktemp("service"), items, "--set", "repeats=true") as running:
        yield running


@pytest.fixture
def http(service):
    with httpx.Client(base_url=service.url, timeout=10) as client:
        yield client


@pytest.fixture(scope="session")
def large_items(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "items"
    synthetic_catalogue(3_000, dim=8, seed=0).save(path)
    return path


@pytest.fixture(scope="module")
def visited_service(large_items, tmp_path_factory):
    """A service with a page worth looking at: users with a history, and reports."""
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
    with serving(folder, large_items, "--policy", "phcb", "--reports", runs) as running:
        live_a_while(running.url)
        yield running
