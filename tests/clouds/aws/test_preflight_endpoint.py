"""This machine's place in the network, with a metadata service and an address service on loopback."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuform.clouds.aws.preflight import endpoint
from gpuform.clouds.aws.preflight.endpoint import LocalMachine
from tests.openstack.authority import write_certificates

pytestmark = pytest.mark.tools

MACS = "/latest/meta-data/network/interfaces/macs/"
PAGES = {
    MACS: "02:00:00:00:00:01/\n02:00:00:00:00:02/",
    f"{MACS}02:00:00:00:00:01/vpc-id": "vpc-1",
    f"{MACS}02:00:00:00:00:02/vpc-id": "vpc-2",
    "/version": "{}",
    "/me": "203.0.113.7\n",
    "/portal": "<html>log in</html>",
}


class Metadata(BaseHTTPRequestHandler):
    """Version 2 of the metadata service: no answer without the token."""

    def do_PUT(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._say("token")

    def do_GET(self) -> None:
        if self.path.startswith("/latest") and self.headers["X-aws-ec2-metadata-token"] != "token":
            self.send_error(401)
        else:
            self._say(PAGES[self.path])

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """No line per request."""


@contextmanager
def served(shown: ssl.SSLContext | None = None) -> Iterator[str]:
    """Host and port of the server, which speaks TLS if a certificate is given."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    if shown:
        server.socket = shown.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with served() as at:
        monkeypatch.setattr(endpoint, "_METADATA", f"http://{at}/latest")
        monkeypatch.setattr(endpoint, "_ADDRESS_SERVICE", f"http://{at}/me")
        yield f"http://{at}"


def test_an_instance_finds_its_vpcs_and_its_address(url: str) -> None:
    assert LocalMachine({}).vpc_ids() == ("vpc-1", "vpc-2")
    assert LocalMachine({}).public_address() == "203.0.113.7"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_EC2_METADATA_DISABLED"])
def test_no_request_if_aws_is_simulated_or_metadata_is_off(url: str, name: str) -> None:
    assert LocalMachine({name: "true"}).vpc_ids() == ()
    assert LocalMachine({"AWS_ENDPOINT_URL": url}).public_address() == ""


def test_another_page_is_not_an_address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_ADDRESS_SERVICE", f"{url}/portal")
    assert LocalMachine({}).public_address() == ""


def test_a_machine_without_these_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_METADATA", "http://127.0.0.1:9/latest")
    monkeypatch.setattr(endpoint, "_ADDRESS_SERVICE", "http://127.0.0.1:9/me")
    assert (LocalMachine({}).vpc_ids(), LocalMachine({}).public_address()) == ((), "")


def test_an_endpoint_must_show_a_certificate_of_its_authority(tmp_path: Path) -> None:
    for name in ("ours", "another"):
        write_certificates(tmp_path / name, name)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(tmp_path / "ours" / "admin.crt", tmp_path / "ours" / "admin.key")
    with served(shown) as at:
        ours, another = (
            LocalMachine({}).connect(f"https://{at}", (tmp_path / name / "ca.crt").read_text())
            for name in ("ours", "another")
        )
    assert (ours.error, ours.is_private) == ("", True)
    assert "CERTIFICATE_VERIFY_FAILED" in another.error


def test_a_closed_port_is_an_error() -> None:
    assert LocalMachine({}).connect("https://127.0.0.1:9", "").error
