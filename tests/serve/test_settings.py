"""Settings: where they come from, and which are refused."""

import io
import os
import re
import socket
import tomllib
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.commands import run as cli
from treeward.cli.key import _write
from treeward.core.errors import InvalidArgument
from treeward.serve.keys import Keys
from treeward.serve.parts import check
from treeward.serve.settings import Key, Settings, is_loopback, read_settings, secret_of, table
from treeward.store.opening import without_password


def test_settings_are_read_in_order_and_bad_ones_are_refused(tmp_path, items):
    path = tmp_path / "settings.toml"
    path.write_text('items = "a.npy"\nport = 9000\nmode = "frozen"\n')
    made = read_settings(path, {"TREEWARD_PORT": "9001", "TREEWARD_REPEATS": "false", "HOME": "x"}, {"mode": "online"})
    assert (made.items, made.port, made.repeats, made.mode) == ("a.npy", 9_001, False, "online")
    assert {name for name, _, _ in table()} == {one for one in Settings.__dataclass_fields__}
    docs = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
    for name, default, about in table():
        assert f"| `{name}` | {f'`{default}`' if default else ''} | {about} |" in docs
    for text, why in (
        ("prot = 1", "did you mean 'port'"),
        ("port = 'x'", "Expected `int`, got `str` - at `.*port`"),
        ("port = 70000", "port must be an integer from 0 to 65535"),
        ("host = '0.0.0.0'", "as long as there are no keys"),
        ("holdout = 1.0", "holdout"),
        ("default_reward = 0.0", "window must be above 0"),
        ("policy = 'hmab'", "policy must be one of"),
        ("mode = 'of'", "Invalid enum value 'of'"),
        ("[[keys]]\nname = 'a'\nsha256 = 'x'", "64 hexadecimal digits"),
        ("port = ", "a TOML file"),
        ("bandit = 'linucbb'", "did you mean 'linucb'"),
        ("bandit = 'epsilon'\nstrength = 5.0", "epsilon must be"),
        ("tree = '/nowhere/tree'", "a saved tree that exists"),
        ("store = '/nowhere/x.db'", "in a folder that exists"),
        ("memory = 99999999999", "memory must be"),
    ):
        path.write_text(f"items = 'x'\n{text}\n")
        with pytest.raises(InvalidArgument, match=why):
            check(read_settings(path, {}))
    with pytest.raises(InvalidArgument, match="did you mean 'port'"):
        read_settings(None, {"TREEWARD_PROT": "1"})
    with pytest.raises(InvalidArgument, match="TREEWARD_PORT"):
        read_settings(None, {"TREEWARD_PORT": "many"})
    with pytest.raises(InvalidArgument, match="path of a catalogue"):
        read_settings(None, {})
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    told = cli("serve", items, "--check")
    assert "sound: beam with linucb" in told
    assert "a file or folder that exists" in cli("serve", tmp_path / "no", "--check", code=2)
    (tmp_path / "rubbish.csv").write_text("a,b\n1,2\n")
    assert "no column 'vector'" in cli("serve", tmp_path / "rubbish.csv", "--check", code=2)
    assert "--set" in cli("serve", items, "--set", "port", "--check", code=2)
    assert "no keys" in cli("serve", items, "--host", "0.0.0.0", code=2)
    key = cli("key", "new", "shop", "--role", "read")
    assert 'role = "read"' in key
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = cli("serve", items, "--port", taken.getsockname()[1], code=2)
        assert "one that is free here" in busy


def test_unknown_fields_of_keys_are_refused(tmp_path):
    key = f'items = "x"\n[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\n'
    (tmp_path / "good.toml").write_text(f'{key}role = "read"\n')
    assert read_settings(tmp_path / "good.toml").keys[0].role == "read"
    for wrong in ('Role = "read"', 'role = "reader"', "rate = 5.0"):
        (tmp_path / "bad.toml").write_text(key + wrong)
        with pytest.raises(InvalidArgument, match="keys"):
            read_settings(tmp_path / "bad.toml")


def test_null_by_set_overrules_the_file(tmp_path, items):
    config = tmp_path / "settings.toml"
    config.write_text("default_reward = 0.5\n")
    words = ("serve", items, "--config", config, "--set", "store=memory", "--check")
    assert "window must be above 0" in cli(*words, code=2, width=300)
    assert "sound: " in cli(*words, "--set", "default_reward=null", width=300)


def _settings(folder, text):
    path = folder / "settings.toml"
    path.write_text(f"items = 'x'\n{text}\n")
    return path


def test_a_key_in_a_file_is_known_by_its_hash(tmp_path):
    file = tmp_path / "shop.key"
    told = cli("key", "new", "shop", "--out", file)
    key = file.read_text().strip()
    assert key.startswith("tw_")
    assert key not in told
    assert file.stat().st_mode & 0o777 == 0o600
    assert "a new file" in cli("key", "new", "shop", "--out", file, code=2)
    assert file.read_text().strip() == key
    made = read_settings(_settings(tmp_path, told.partition("\n")[2]), {}, {"host": "0.0.0.0"})
    assert key not in repr(made)
    found = Keys(made.keys).find(f"Bearer {key}".encode())
    assert found is not None
    assert (found.name, found.role) == ("shop", "write")
    assert Keys(made.keys).find(f"Bearer {key}x".encode()) is None


def test_a_key_whose_file_was_not_read_lets_nobody_in(tmp_path):
    path = _settings(tmp_path, "host = '0.0.0.0'\n[[keys]]\nname = 'a'\nfile = '/nowhere/a.key'")
    keys = Keys(read_settings(path, {}, secrets=False).keys)
    assert [keys.find(header) for header in (None, b"Bearer ", b"Bearer x")] == [None] * 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "a file that can be read, got 'No such file or directory'"),
        ("", "a file of one line"),
        ("\n", "a file of one line"),
        ("hush-hush\nhush", "a file of one line, got '2 lines'"),
        (b"hush\xff", "a file that can be read, got 'not UTF-8'"),
        ("hush-hush\r\nhush\r\n", "a file of one line, got '2 lines'"),
    ],
)
@pytest.mark.parametrize("setting", ["store_password_file", "file"])
def test_a_secret_that_cannot_be_read_is_refused_and_not_shown(tmp_path, content, why, setting):
    file = tmp_path / "hush"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = f"{setting} = '{file}'"
    if setting == "file":
        text = f"[[keys]]\nname = 'a'\n{text}"
    else:
        text += "\nstore = 'postgresql://treeward@db/shop'"
    with pytest.raises(InvalidArgument, match=re.escape(why)) as caught:
        read_settings(_settings(tmp_path, text), {})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("path", ["hush\0", "hush\ud800", "hush" * 2_000])
def test_a_path_that_is_none_is_refused_and_not_shown(path):
    with pytest.raises(InvalidArgument, match="store_password_file must be a file that can be read") as caught:
        secret_of(path, "store_password_file")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "secret"),
    [(b"\xef\xbb\xbfhush\r\n", "hush"), (b" hush  ", " hush  "), ("hu\u2028s\x85h\n".encode(), "hu\u2028s\x85h")],
)
def test_a_secret_is_what_its_line_has(tmp_path, written, secret):
    (tmp_path / "hush").write_bytes(written)
    assert secret_of(str(tmp_path / "hush"), "store_password_file") == secret


def test_secrets_that_were_read_are_not_read_again(tmp_path):
    (tmp_path / "key").write_text("x" * 40)
    (tmp_path / "password").write_text("hush")
    made = Settings(
        items="x", keys=(Key("a", file=str(tmp_path / "key")),), store="postgresql://u@h/db",
        store_password_file=str(tmp_path / "password"),
    )  # fmt: skip
    read = made.with_secrets()
    for file in ("key", "password"):
        (tmp_path / file).unlink()
    assert read.with_secrets() == read


def test_a_key_goes_to_a_file_of_any_name_or_to_none(tmp_path, monkeypatch):
    out = tmp_path / "a\U0001f600 é.key"
    told = cli("key", "new", "shop\U0001f600", "--out", out)
    lines = told.split("settings:", 1)[1]
    [key] = tomllib.loads(lines)["keys"]
    assert (key["name"], Path(key["file"])) == ("shop\U0001f600", out)
    assert read_settings(None, {}, {"items": "x", "keys": [key]}).keys[0].sha256

    def full(self, text):
        raise OSError(28, "No space left on device")

    class Full(io.StringIO):
        write = full

    def opened(made, mode):
        os.close(made)
        return Full()

    monkeypatch.setattr(os, "fdopen", opened)
    with pytest.raises(InvalidArgument, match="out must be a new file"):
        _write(tmp_path / "b.key", "tw_x")
    assert not (tmp_path / "b.key").exists(), "half a key is no key"


def test_weak_and_doubtful_keys_in_files_are_refused(tmp_path):
    file = tmp_path / "key"
    for content in ("hush-hush", "x" * 31, "x" * 40 + " hush", "é" * 40):
        file.write_text(content)
        with pytest.raises(InvalidArgument, match=r"file of a\) must be at least 32 letters") as caught:
            read_settings(_settings(tmp_path, f"[[keys]]\nname = 'a'\nfile = '{file}'"), {})
        assert content not in str(caught.value)
    file.write_text("x" * 32)
    with pytest.raises(InvalidArgument, match="either sha256 or file"):
        read_settings(_settings(tmp_path, f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nfile = '{file}'"), {})


def test_the_password_of_a_database_is_read_from_a_file(tmp_path):
    file = tmp_path / "password"
    file.write_text("hush/@:? 100%\n")
    given = {
        "TREEWARD_STORE_PASSWORD_FILE": str(file),
        "TREEWARD_STORE": "postgresql://treeward@db:5433/shop?sslmode=require",
    }
    made = read_settings(_settings(tmp_path, ""), given)
    where = conninfo_to_dict(made.store)
    assert where == {"user": "treeward", "password": "hush/@:? 100%", "host": "db", "port": "5433", "dbname": "shop",
                     "sslmode": "require"}  # fmt: skip
    assert "hush" not in repr(made)
    assert "hush" not in without_password(made.store)
    assert read_settings(_settings(tmp_path, ""), given, secrets=False).store == given["TREEWARD_STORE"]
    for store in ("events.db", "memory", "postgresql://db/shop", "postgresql://treeward:secret@db/shop"):
        with pytest.raises(InvalidArgument, match=r"without a password, got .") as caught:
            read_settings(_settings(tmp_path, ""), {**given, "TREEWARD_STORE": store})
        assert "secret" not in str(caught.value)
        assert "hush" not in str(caught.value)
