"""The kubeconfig of the embedded control plane."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

CONTEXT = "gpuform-local"


def render(server: str, pki: Path) -> str:
    """A kubeconfig for ``server`` with the administrator's certificate inside; it names no file."""

    def data(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": data("ca.crt")}}
        ],
        "users": [
            {
                "name": CONTEXT,
                "user": {
                    "client-certificate-data": data("admin.crt"),
                    "client-key-data": data("admin.key"),
                },
            }
        ],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(document, sort_keys=False)
