"""What Magnum would have answered: ids and the like, the same for the same resource and inputs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from gpuform.plugins.offline.cluster import handed_over
from gpuform.plugins.offline.openstack.row import Row
from gpuform.plugins.offline.templates import address, filled, uuid
from gpuform.plugins.properties import UNKNOWN, Secret, reveal


def made_up_name(row: Row, urn: str, name: str, inputs: Mapping[str, Any]) -> str:
    """The name that the provider gives where the program gives none: the resource's, and seven digits."""
    return f"{name}-{_digest(row, urn, inputs)[:7]}"


def computed(
    row: Row, region: str, urn: str, inputs: Mapping[str, Any], found: str = ""
) -> tuple[str, dict[str, Any]]:
    """Id and every output of a resource with these inputs, which are known; ``found`` is the id it has."""
    id = found or uuid(_digest(row, urn, inputs))
    plain = reveal(inputs)
    facts = {
        "uuid": id,
        "region": plain.get("region") or region,
        "endpoint": endpoint(),
        "ip": address(int(id[:8], 16)),
    }
    made: dict[str, Any] = {**filled(row.outputs, facts), **inputs}
    if row.has_kubeconfig:
        made["kubeconfig"] = Secret(kubeconfig(str(plain.get("name") or "")))
    return id, made


def planned(row: Row, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of a resource that is not there yet: what Magnum decides is unknown."""
    own = {"kubeconfig": UNKNOWN} if row.has_kubeconfig else {}
    return {**dict.fromkeys(row.outputs, UNKNOWN), **own, **inputs}


def endpoint() -> str:
    """Where the cluster's API is: the embedded control plane's address, or one that nobody has."""
    cluster = handed_over()
    return cluster.endpoint if cluster else "https://198.51.100.1:6443"


def kubeconfig(name: str) -> dict[str, str]:
    """The five parts that the provider gives: addresses and certificates, alone and as one file.

    They are the embedded control plane's where the run has one; else nobody answers there.
    """
    cluster = handed_over()
    none = "no certificate: offline\n"
    authority = base64.b64decode(cluster.certificate).decode() if cluster else none
    certificate = cluster.client_certificate if cluster else none
    key = cluster.client_key if cluster else none
    server, user = endpoint(), f"{name}-admin"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"certificate-authority-data": _coded(authority), "server": server}}
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": _coded(certificate), "client-key-data": _coded(key)},
            }
        ],
    }
    return {
        "raw_config": yaml.safe_dump(document, sort_keys=False),
        "host": server,
        "cluster_ca_certificate": authority,
        "client_certificate": certificate,
        "client_key": key,
    }


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _digest(row: Row, urn: str, inputs: Mapping[str, Any]) -> str:
    """Differs for a replacement from what is replaced: whatever a program does that for is part of it."""
    decisive = {key: repr(reveal(value)) for key, value in inputs.items() if key != "name"}
    return hashlib.sha256(f"{urn} {json.dumps(decisive, sort_keys=True)}".encode()).hexdigest()
