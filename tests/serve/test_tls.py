"""The public listener with a certificate: https, and nothing else."""

import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.commands import run as cli
from tests.serving import serving, stop
from tests.waiting import wait_until
from treeward.core.errors import InvalidArgument
from treeward.serve.settings import Settings

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@needs_openssl
def test_a_service_with_a_certificate_answers_by_https_only(items, tmp_path, pair):
    cert, key = pair
    with serving(tmp_path, items, "--set", f"tls_cert={cert}", "--set", f"tls_key={key}") as running:
        assert running.url.startswith("https://127.0.0.1:")
        assert running.admin.startswith("http://127.0.0.1:"), "operators are on this machine"
        with httpx.Client(base_url=running.url, verify=ssl.create_default_context(cafile=cert)) as http:
            for _ in range(3):  # the last ones with a head that is known by then
                [one] = http.post("/v1/recommend", json={"user": "ada"}).raise_for_status().json()["items"]
            told = http.post("/v1/feedback", json={"decision_id": one["decision_id"], "reward": 1.0})
            assert told.json()["outcome"] == "recorded"
            assert http.get("/readyz").status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/livez")  # nobody vouches for this certificate
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(running.url.replace("https", "http") + "/livez")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/livez", verify=old)


def connected(url, context=None):
    """Return a connection; without a context, one that says nothing."""
    host, _, port = url.removeprefix("https://").partition(":")
    made = socket.create_connection((host, int(port)), timeout=60)
    return made if context is None else context.wrap_socket(made, server_hostname=host)


@pytest.fixture
def short(items, tmp_path, pair):
    """A service with a certificate and short timeouts, and what a caller needs to trust it."""
    cert, key = pair
    limits = "--set", "max_connections=20", "--set", "header_timeout=2", "--set", "body_timeout=2"
    with serving(tmp_path, items, "--set", f"tls_cert={cert}", "--set", f"tls_key={key}", *limits) as running:
        yield running, ssl.create_default_context(cafile=cert)


@needs_openssl
def test_silent_connections_neither_pile_up_nor_stay(short):
    running, trust = short
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(running.url)) for _ in range(300)]
        descriptors = len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))
        assert descriptors < 200, "those above the limit are closed at once"
        assert httpx.get(f"{running.admin}/metrics").status_code == 200
        for one in silent:
            with suppress(ConnectionError):
                assert one.recv(1) == b"", "closed after two seconds"
    answer = httpx.get(f"{running.url}/livez", verify=trust)
    assert answer.status_code == 200


@needs_openssl
def test_too_many_encrypted_connections_are_told_so(short):
    running, trust = short
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connected(running.url, trust))
        with connected(running.url, trust) as late:
            assert late.recv(1 << 16).startswith(b"HTTP/1.1 503 ")


@needs_openssl
def test_an_idle_caller_does_not_delay_the_end(short):
    running, trust = short
    with httpx.Client(base_url=running.url, verify=trust) as idle, connected(running.url):
        assert idle.post("/v1/recommend", json={"user": "ada"}).status_code == 200
        stop(running)
    assert "graceful shutdown exceeded" not in running.log.read_text(), "it waits only for requests that have begun"


@needs_openssl
def test_a_caller_who_never_reads_is_disconnected(short):
    running, trust = short
    body = b'{"user":"ada","n":300}'
    head = b"POST /v1/recommend HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    call = head + b"content-length: %d\r\n\r\n" % len(body) + body
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", int(running.url.rpartition(":")[2])))
        with trust.wrap_socket(raw, server_hostname="127.0.0.1") as caller:
            caller.settimeout(0.5)

            def is_cut_off():
                try:
                    caller.sendall(call)
                except TimeoutError:
                    return False
                except OSError:
                    return True
                return False

            wait_until(is_cut_off, "the service closes the connection", seconds=60)


@needs_openssl
def test_certificates_that_cannot_be_used_are_refused_before_the_start(items, tmp_path, pair):
    cert, key = pair
    with pytest.raises(InvalidArgument, match="tls_key must be given where tls_cert is"):
        Settings(items="x", tls_cert=str(cert)).check()
    with pytest.raises(InvalidArgument, match="tls_cert must be a file that exists"):
        Settings(items="x", tls_cert=str(tmp_path / "none"), tls_key=str(key)).check()
    for one, other in ((key, cert), (cert, cert)):
        words = "serve", items, "--check", "--set", f"tls_cert={one}", "--set", f"tls_key={other}"
        said = cli(*words, code=2, width=500)
        assert "tls_cert must be a certificate chain in PEM that fits the key" in said
