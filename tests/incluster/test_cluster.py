"""The programs' client of the API server."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from infra.incluster.cluster import Cluster
from tests.kubernetes.refusing_server import serve_refusals
from tests.openstack.authority import write_certificates

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("authority", "answer"), [("served", "HTTP Error 401"), ("other", "CERTIFICATE_VERIFY_FAILED")]
)
def test_certificates_without_key_identifiers_are_verified(
    tmp_path: Path, authority: str, answer: str
) -> None:
    for name in ("served", "other"):
        write_certificates(tmp_path / name, name)
    for name in ("namespace", "token"):
        (tmp_path / authority / name).write_text("gpu-operator")
    with serve_refusals(tmp_path / "served") as server:
        cluster = Cluster(tmp_path / authority, server)
        with pytest.raises(urllib.error.URLError, match=answer):
            cluster.request("GET", "/version")
