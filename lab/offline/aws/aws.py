"""``aws`` of offline runs: ``aws eks get-token``, which the kubeconfig of an EKS cluster runs.

The embedded control plane stands in for that cluster, if it runs: ``GPUFORM_OFFLINE_KUBECONFIG`` names its
kubeconfig. The program gets the same as from AWS (an address, a certificate authority and, through this
command, credentials), and needs no change.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_VERSION = "client.authentication.k8s.io/v1"
VARIABLE = "GPUFORM_OFFLINE_KUBECONFIG"


@dataclass(frozen=True)
class EksStandIn:
    """Address, certificate authority (base64) and the client's certificate and key (PEM)."""

    endpoint: str
    certificate: str
    client_certificate: str
    client_key: str


def eks_stand_in(environ: Mapping[str, str] = os.environ) -> EksStandIn | None:
    """The cluster of this run, or None. Raises ValueError for the kubeconfig of another kind of cluster."""
    file = Path(environ.get(VARIABLE) or "")
    if not environ.get(VARIABLE) or not file.is_file():
        return None
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        cluster: dict[str, Any] = document["clusters"][0]["cluster"]
        user: dict[str, Any] = document["users"][0]["user"]
        return EksStandIn(
            endpoint=cluster["server"],
            certificate=cluster["certificate-authority-data"],
            client_certificate=base64.b64decode(user["client-certificate-data"]).decode(),
            client_key=base64.b64decode(user["client-key-data"]).decode(),
        )
    except (yaml.YAMLError, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"{VARIABLE}: {file} is not the kubeconfig of an embedded control plane ({error})"
        ) from None


def answer(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """The ExecCredential with the client certificate of the cluster that stands in for EKS.

    Raises ValueError for any other command, and if the run has no cluster.
    """
    if list(arguments[:2]) != ["eks", "get-token"] or "--cluster-name" not in arguments:
        raise ValueError(
            f"aws {' '.join(arguments[:2])}: offline runs answer `aws eks get-token --cluster-name NAME` only"
        )
    cluster = eks_stand_in(environ)
    if cluster is None:
        raise ValueError(
            f"there is no cluster in this offline run; start one (gpuform local start) or set {VARIABLE}"
        )
    api_version = json.loads(environ.get("KUBERNETES_EXEC_INFO") or "{}").get("apiVersion", _VERSION)
    status = {"clientCertificateData": cluster.client_certificate, "clientKeyData": cluster.client_key}
    return json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": status})


def main() -> None:
    try:
        print(answer(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"gpuform offline: {error}")


if __name__ == "__main__":
    main()
