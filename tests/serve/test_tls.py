"""The public listener with a certificate: https, and nothing else."""

import shutil
import ssl
import subprocess

import httpx
import pytest

from tests.commands import run as cli
from tests.serving import serving
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
