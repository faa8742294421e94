"""Behaviour of the toolchain's own Kubernetes provider that differs from later official releases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.cluster, pytest.mark.nightly]

PROGRAM = """
import pulumi
import pulumi_kubernetes as k8s
cluster = k8s.Provider("cluster", kubeconfig={kubeconfig!r})
opts = pulumi.ResourceOptions(provider=cluster, aliases={aliases})
meta = {{"name": "kept", "namespace": {space!r}}}
k8s.core.v1.ConfigMap({name!r}, metadata=meta, data={{"a": "b"}}, opts=opts)
"""


@pytest.mark.parametrize("alias", [True, False])
def test_a_renamed_resource_keeps_its_object_only_with_an_alias(
    alias: bool, control_plane: Any, tmp_path: Path
) -> None:
    """As the warning of real stacks says. A release of April 2026 or later refuses to create it."""
    space, root = f"renamed-{os.getpid()}-{alias}".lower(), tmp_path / "checkout"
    control_plane.kubectl("create", "namespace", space)
    (root / "infra").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
    (root / "Pulumi.local.yaml").write_text("config: {}\n")
    paths = Paths(root, root / ".gpuform", tmp_path / "cache")
    engine = Engine(paths, control_plane.toolchain, say=lambda line: None)

    def up(name: str, *aliases: str) -> dict[str, int]:
        kubeconfig = str(control_plane.kubeconfig)
        given = [f"pulumi.Alias(name={other!r})" for other in aliases]
        (root / "infra" / "__main__.py").write_text(
            PROGRAM.format(kubeconfig=kubeconfig, space=space, name=name, aliases=f"[{', '.join(given)}]")
        )
        return dict(engine.up(on_event=lambda event: None).changes)

    up("first")
    changes = up("second", *(["first"] if alias else []))
    there = control_plane.kubectl("get", "configmaps", "-n", space, "-o", "name")
    assert ("configmap/kept" in there) is alias
    assert changes == ({"same": 3} if alias else {"same": 2, "create": 1, "delete": 1})
