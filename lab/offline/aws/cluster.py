"""The cluster that stands in for an offline run's EKS cluster: the embedded control plane, if it runs.

``GPUFORM_OFFLINE_KUBECONFIG`` names its kubeconfig. The program gets the same as from AWS (an address, a
certificate authority and, through ``aws eks get-token``, credentials), and needs no change.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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
