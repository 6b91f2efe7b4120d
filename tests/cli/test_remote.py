"""Commands that call a service: addresses, and which of its two ports they need."""

from unittest.mock import Mock

import pytest

from tests.commands import run
from tests.serving import serving
from treeward.cli.remote import is_address
from treeward.client import ServiceError
from treeward.data.synthetic import synthetic_catalogue


@pytest.mark.parametrize(
    "text", ["localhost:8001", "http://shop:80", "https://shop.example", "127.0.0.1:1", "[::1]:8000", ":8001"]
)
def test_addresses_need_no_scheme(text):  # fmt: skip
    assert is_address(text)


@pytest.mark.parametrize("text", ["items", "items.csv", "a/b:c", "localhost", ""])
def test_paths_are_no_addresses(text):
    assert not is_address(text)


@pytest.mark.parametrize("words", [("swap", "nonsense"), ("items", "remove", "nonsense", "1")])
def test_a_word_that_is_no_address_is_refused(words):
    kind = "admin" if words[0] == "swap" else "public"
    assert f"SERVICE must be the {kind} address of a service" in run(*words, code=2, width=300)


def test_an_address_where_nothing_listens_says_which_port_is_needed():
    told = run("swap", "localhost:9", code=2, width=300)
    assert "http://localhost:9: no service answers" in told
    assert "needs the admin address of a service (its setting admin_port)" in told
    assert "its setting port)" in run("items", "remove", "localhost:9", "1", code=2, width=300)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("tw_very-secret\n", "no service answers"),
        ("tw_very\n-secret", "must be printable ASCII"),
        ("tw_very-secr\u00e9t", "must be printable ASCII"),
    ],
)
def test_a_key_is_never_printed(monkeypatch, key, why):
    monkeypatch.setenv("TREEWARD_KEY", key)
    for words in (("swap", "localhost:9"), ("tree", "health", "localhost:9"), ("items", "remove", "localhost:9", "1")):
        told = run(*words, code=2, width=300)
        assert why in told
        assert "tw_very" not in told


def test_a_key_without_its_line_break_is_sent(monkeypatch):
    monkeypatch.setenv("TREEWARD_KEY", "tw_secret\n")
    made = Mock(side_effect=ServiceError(401, "unauthorized", "who are you?"))
    monkeypatch.setattr("treeward.client.Client", made)
    assert "who are you?" in run("swap", "localhost:9", code=2, width=300)
    assert made.call_args.kwargs["key"] == "tw_secret"


def test_the_other_port_of_a_service_is_named(tmp_path):
    synthetic_catalogue(60, dim=4, seed=0).save(tmp_path / "items")
    with serving(tmp_path, tmp_path / "items") as running:
        public, admin = (one.removeprefix("http://") for one in (running.url, running.admin))
        assert "now: items" in run("swap", admin)
        assert "1 of 1 item(s) were there" in run("items", "remove", public, "3")
        for words in (("swap", public), ("tree", "health", public)):
            told = run(*words, code=2, width=300)
            assert f"http://{public} is a public address" in told
            assert "needs the admin address of a service (its setting admin_port)" in told
        told = run("items", "put", admin, tmp_path / "items", code=2, width=300)
        assert f"{tmp_path / 'items'} to http://{admin} is an admin address" in told.replace("\n", "")
