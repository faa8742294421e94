"""A cluster's kubeconfig: kept from run to run, made anew where it ends or the cluster is not as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from gpuform.plugins.properties import Secret
from tests.plugins.openstack.driving import CLUSTER, WANTED, Driver
from tests.plugins.openstack.fake import Fake, error

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("quick")]


def test_a_certificate_that_expires_or_another_address_gives_a_new_kubeconfig(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    before = driver.shown["kubeconfig"]
    fake.clusters[driver.id]["api_address"] = "https://10.0.0.9:6443"
    driver.refresh()
    assert driver.shown["kubeconfig"]["host"] == "https://10.0.0.9:6443"
    assert driver.shown["kubeconfig"]["client_key"] != before["client_key"]


def test_an_authority_that_was_rotated_is_noticed_by_a_refresh(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    before = driver.shown["kubeconfig"]
    driver.refresh()
    assert driver.shown["kubeconfig"] == before
    rotated = {"pem": "-----BEGIN CERTIFICATE-----\nROTATED\n"}
    fake.ca = 200, rotated
    driver.refresh()
    assert driver.shown["kubeconfig"]["cluster_ca_certificate"] == rotated["pem"]
    assert driver.shown["kubeconfig"]["client_key"] != before["client_key"]


def test_a_refresh_goes_on_where_nobody_may_ask_for_the_authority(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    before = driver.shown["kubeconfig"]
    fake.ca = error(403, "Policy does not allow it")
    assert driver.refresh()
    assert driver.shown["kubeconfig"] == before


def ending(days: int, since: int = 900) -> str:
    """A client certificate that ends so many days from now, and began so many ago, PEM."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "admin")])
    begun = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    begun = begun.serial_number(1).not_valid_before(now - timedelta(days=since))
    made = begun.not_valid_after(now + timedelta(days=days)).sign(key, hashes.SHA256())
    return made.public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("days", "since", "steps"),
    [
        (400, 900, []),
        (20, 900, ["update"]),
        (-5, 900, ["update"]),
        (20, 1, []),
        (6, 15, ["update"]),
    ],
)
def test_a_certificate_that_ends_soon_is_renewed_by_an_unchanged_program(
    fake: Fake, days: int, since: int, steps: list[str]
) -> None:
    """Of a cloud whose Magnum signs for three weeks, what it has just signed is as good as it gets."""
    driver = Driver(CLUSTER)
    before = driver.up(**WANTED)["kubeconfig"]
    driver.outputs["kubeconfig"] = Secret({**before, "client_certificate": ending(days, since)})
    fake.requests.clear()
    driver.up(**WANTED)
    assert driver.steps == ["create", *steps]
    assert [path for _, path, _ in fake.changes()] == ["/magnum/v1/certificates"] * len(steps)
    assert (driver.shown["kubeconfig"]["client_key"] == before["client_key"]) is not bool(steps)
