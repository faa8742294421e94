"""The kubeconfig of an EKS cluster."""

from __future__ import annotations

import json

from infra.plan.node_groups import Joining


def kubeconfig(region: str, joining: Joining) -> str:
    """A kubeconfig, as JSON, that gets a token from the AWS command line."""
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "aws",
        "args": ["eks", "get-token", "--region", region, "--cluster-name", joining.name, "--output", "json"],
        "interactiveMode": "Never",
    }
    name = joining.name
    cluster = {"server": joining.endpoint, "certificate-authority-data": joining.certificate_authority}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"exec": command}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return json.dumps(content)
