"""An existing cluster that refuses the kubeconfig: the reason, and the command for another one."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.cli import hosts
from gpuform.cli.output import cluster_failures
from gpuform.kubernetes.kubeconfig_errors import FOLDER
from gpuform.stack.preview import snapshot
from gpuform.usage.cluster_objects import fetch_objects
from gpuform.usage.health import fetch_health as fetch_health
from infra.config import parse
from tests.build.openstack_stacks import small
from tests.fakes.client import kubeconfig as played
from tests.fakes.refusing_server import serve_refusals
from tests.openstack.authority import write_certificates

pytestmark = pytest.mark.unit

ENV = parse(small())
EXISTING = {"name": "there", "pools": [{"name": "t4", "machine": "g4dn.xlarge", "selector": {"a": "b"}}]}
AWAY = "https://127.0.0.1:1"
ANEW = "issue a new one with `gpuform recover research --renew-kubeconfig`, then `gpuform up research`"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``served`` is the server's; ``rotated`` has the same name, ``other`` another one."""
    folder = tmp_path_factory.mktemp("authorities")
    for name in ("served", "rotated", "other"):
        write_certificates(folder / name, "other" if name == "other" else "research")
    return folder


@pytest.fixture(scope="module")
def server(authorities: Path) -> Iterator[str]:
    with serve_refusals(authorities / "served") as address:
        yield address


def kubeconfig(folder: Path, address: str, authority: Path, user: Path, certificate: str = "") -> Path:
    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    own = certificate.encode() or (user / "admin.crt").read_bytes()
    key = (user / "admin.key").read_bytes()
    trusted = data((authority / "ca.crt").read_bytes())
    cluster = {"server": address, "certificate-authority-data": trusted}
    document = played(cluster, {"client-certificate-data": data(own), "client-key-data": data(key)})
    file = folder / FOLDER / "1-x" / "kubeconfig"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(document))
    return file


def refusal_of(file: Path, stack: str = "research") -> tuple[str, str]:
    with pytest.raises(Failure) as caught, cluster_failures(stack, file):
        fetch_objects(ENV, file)
    return caught.value.fact, caught.value.remedy


NO = "does not accept its kubeconfig: "
OTHER_AUTHORITY = f"{NO}the API server's certificate is from another authority ("
UNKNOWN = f"{NO}the API server rejects its credentials (HTTP 401: Unauthorized)"


@pytest.mark.parametrize(
    ("trusted", "user", "fact"),
    [
        ("rotated", "served", OTHER_AUTHORITY),
        ("other", "served", OTHER_AUTHORITY),
        ("served", "other", UNKNOWN),
    ],
)
def test_a_cluster_that_refuses_is_told_from_one_that_is_away(
    tmp_path: Path, authorities: Path, server: str, trusted: str, user: str, fact: str
) -> None:
    file = kubeconfig(tmp_path, server, authorities / trusted, authorities / user)
    message, remedy = refusal_of(file)
    assert message.startswith(fact)
    assert remedy == ANEW
    own = tmp_path / "kubeconfig"
    own.write_bytes(file.read_bytes())
    assert refusal_of(own) == (message, f"get a new one from the cluster's administrator: {own}")


def test_every_reader_of_a_cluster_says_that_it_is_refused(
    tmp_path: Path, authorities: Path, server: str
) -> None:
    """A preview continues with the declared state, but only for known errors."""
    file = kubeconfig(tmp_path, server, authorities / "served", authorities / "other")
    for read in (snapshot.read_snapshot, fetch_health):
        with pytest.raises(PermissionError, match="HTTP 401: Unauthorized"):
            read(file)
    env = parse({**EXISTING, "cluster": {"kind": "existing", "kubeconfig": str(file)}})
    with pytest.raises(Failure, match=r"^cluster of there: cannot be reached \(HTTP 401: Unauthorized\)"):
        hosts._inventory(env, "kubectl", Paths(tmp_path, tmp_path, tmp_path))


def test_a_handshake_that_the_other_side_ends_is_told_by_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authorities: Path
) -> None:
    """httpx omits the message (seen with a server that requires a client certificate of its authority)."""
    file = kubeconfig(tmp_path, AWAY, authorities / "served", authorities / "other")
    error = httpx.ReadError("")
    error.__cause__ = ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)")
    with monkeypatch.context() as patch:
        patch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", AsyncMock(side_effect=error))
        fact, _ = refusal_of(file)
    assert re.match(rf"{NO}its client certificate is refused \(.*alert unknown ca", fact)
    fact, remedy = refusal_of(file)
    assert (fact.partition("(")[0], remedy) == ("cannot be reached ", f"check {file}")


def test_a_certificate_of_the_past_is_told_with_its_day(
    tmp_path: Path, authorities: Path, server: str
) -> None:
    key = load_pem_private_key((authorities / "other/admin.key").read_bytes(), None)
    name, day = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "admin")]), timedelta(days=1)
    ended = datetime.now(UTC) - 3 * day
    made = x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())  # type: ignore[arg-type]
    made = made.serial_number(1).not_valid_before(ended - day).not_valid_after(ended)
    pem = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()  # type: ignore[arg-type]
    fact, remedy = refusal_of(
        kubeconfig(tmp_path, server, authorities / "served", authorities / "other", pem)
    )
    assert fact.startswith(f"{NO}its client certificate expired {ended:%Y-%m-%d} (")
    assert remedy == ANEW
