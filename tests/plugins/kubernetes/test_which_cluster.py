"""When another configuration means another cluster, and with it other objects: one table."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuform.plugins.handler import Engine
from gpuform.plugins.kubernetes.provider import KubernetesProvider
from gpuform.plugins.properties import UNKNOWN

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("news", "changed", "replaced"),
    [
        ({"kubeconfig": "a", "clusterIdentifier": "1"}, [], []),
        ({"kubeconfig": "b", "clusterIdentifier": "1"}, ["kubeconfig"], []),
        ({"kubeconfig": UNKNOWN, "clusterIdentifier": "1"}, ["kubeconfig"], []),
        ({"kubeconfig": "a", "clusterIdentifier": "2"}, ["clusterIdentifier"], ["clusterIdentifier"]),
        (
            {"kubeconfig": UNKNOWN, "clusterIdentifier": UNKNOWN},
            ["clusterIdentifier", "kubeconfig"],
            ["clusterIdentifier"],
        ),
    ],
    ids=["nothing", "a new kubeconfig", "one not known yet", "another cluster", "a cluster that goes"],
)
def test_an_identified_cluster_is_another_by_its_identifier_alone(
    news: dict[str, Any], changed: list[str], replaced: list[str]
) -> None:
    provider = KubernetesProvider(Engine())
    found = asyncio.run(provider.diff_config({"kubeconfig": "a", "clusterIdentifier": "1"}, news))
    assert sorted(found.changes) == changed
    assert list(found.replaces) == replaced
