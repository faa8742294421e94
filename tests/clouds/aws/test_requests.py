"""Requests to AWS over HTTP: how errors are reported, and what this machine's place in the network is."""

from __future__ import annotations

import ssl
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gpuform.checkout.errors import Failure
from gpuform.clients.aws.api import AwsError, create_client, translate_errors
from gpuform.clouds.aws.preflight import endpoint
from gpuform.clouds.aws.preflight.endpoint import LocalMachine
from tests.fakes.http_server import serving
from tests.openstack.authority import write_certificates

pytestmark = pytest.mark.tools

CLOSED = "127.0.0.1:9"


def test_an_error_of_aws_keeps_its_code(moto: str) -> None:
    ec2 = create_client("ec2", "us-west-2")
    said = r"aws ec2 describe-vpcs: InvalidVpcID.NotFound: .*vpc-0"
    with pytest.raises(AwsError, match=said) as raised, translate_errors("aws ec2 describe-vpcs"):
        ec2.describe_vpcs(VpcIds=["vpc-0"])
    assert raised.value.code == "InvalidVpcID.NotFound"


def test_an_endpoint_that_does_not_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch, moto: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{CLOSED}")
    with pytest.raises(Failure, match="Could not connect"), translate_errors("aws ec2 describe-vpcs"):
        create_client("ec2", "us-west-2").describe_vpcs()


def test_an_answer_that_is_not_of_aws_is_a_failure(moto: str) -> None:
    """A response of a proxy, or of moto for an unknown call: a page in HTML."""
    said = r"aws ec2 describe-capacity-reservations: is not a response from AWS: .*; check the network"
    with pytest.raises(Failure, match=said), translate_errors("aws ec2 describe-capacity-reservations"):
        create_client("ec2", "us-west-2").describe_capacity_reservations()


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


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def use_services(monkeypatch: pytest.MonkeyPatch, at: str, address: str = "me") -> None:
    monkeypatch.setattr(endpoint, "_METADATA", f"http://{at}/latest")
    monkeypatch.setattr(endpoint, "_ADDRESS_SERVICE", f"http://{at}/{address}")


def test_this_machine_finds_its_vpcs_and_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Metadata) as at:
        use_services(monkeypatch, at)
        assert LocalMachine({}).vpc_ids() == ("vpc-1", "vpc-2")
        assert LocalMachine({}).public_address() == "203.0.113.7"
        for name in ("AWS_ENDPOINT_URL", "AWS_EC2_METADATA_DISABLED"):
            assert LocalMachine({name: "true"}).vpc_ids() == ()
        assert LocalMachine({"AWS_ENDPOINT_URL": "true"}).public_address() == ""
        use_services(monkeypatch, at, "portal")
        assert LocalMachine({}).public_address() == "", "another page is not an address"
    use_services(monkeypatch, CLOSED)
    assert (LocalMachine({}).vpc_ids(), LocalMachine({}).public_address()) == ((), "")


def test_an_endpoint_must_show_a_certificate_of_its_authority(tmp_path: Path) -> None:
    for name in ("ours", "another"):
        write_certificates(tmp_path / name, name)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(tmp_path / "ours" / "admin.crt", tmp_path / "ours" / "admin.key")
    with serving(Metadata, shown) as at:
        ours, another = (
            LocalMachine({}).connect(f"https://{at}", (tmp_path / name / "ca.crt").read_text())
            for name in ("ours", "another")
        )
    assert (ours.error, ours.is_private) == ("", True)
    assert "CERTIFICATE_VERIFY_FAILED" in another.error
    assert LocalMachine({}).connect(f"https://{CLOSED}", "").error, "the port is closed"
