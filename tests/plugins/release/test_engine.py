"""Releases and node resources in a program that the real engine runs, with the charts in the checkout."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import Engine, EngineFailure
from gpuform.paths import Paths

pytestmark = [pytest.mark.engine, pytest.mark.cluster, pytest.mark.nightly]

HEAD = """
import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.helm.v3 import Release
from components.node_resources import MigLayout, PoolNodes
kubeconfig = {kubeconfig!r}
opts = pulumi.ResourceOptions(provider=k8s.Provider("cluster", kubeconfig=kubeconfig))
"""
RELEASE = """
release = Release(
    "tiny",
    chart="../charts/tiny",
    name="t",
    namespace="{namespace}",
    values={{"text": {text}}},
    timeout=4,
    opts=opts,
)
pulumi.export("revision", release.status.revision)
"""


class Checkout:
    """A copy of a small project, with an engine of its own."""

    def __init__(self, root: Path, chart: Path, plane: Any) -> None:
        (root / "infra").mkdir(parents=True)
        (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
        (root / "Pulumi.local.yaml").write_text("config: {}\n")
        shutil.copytree(chart, root / "charts" / "tiny")
        self.root, self.plane = root, plane
        self.engine = Engine(
            Paths(root, root / ".gpuform", root / "cache"), plane.toolchain, say=lambda line: None
        )

    def program(self, source: str) -> Checkout:
        head = HEAD.format(kubeconfig=str(self.plane.kubeconfig))
        (self.root / "infra" / "__main__.py").write_text(head + textwrap.dedent(source))
        return self


@pytest.fixture
def checkout(tmp_path: Path, chart: Path, control_plane: Any) -> Checkout:
    return Checkout(tmp_path / "checkout", chart, control_plane)


@pytest.fixture
def namespace(control_plane: Any, request: pytest.FixtureRequest) -> str:
    name = f"engine-{os.getpid()}-{abs(hash(request.node.name)) % 10000}"
    control_plane.kubectl("create", "namespace", name)
    return name


def test_a_release_lives_through_the_engine(checkout, namespace):
    source = RELEASE.format(namespace=namespace, text='"one"')
    assert checkout.program(source).engine.up().changes["create"] == 3
    assert checkout.engine.outputs()["revision"] == 1
    assert not checkout.engine.preview().changed
    assert not checkout.engine.refresh().changed
    assert not checkout.engine.up().changed
    changed = checkout.program(RELEASE.format(namespace=namespace, text='"two"'))
    assert changed.engine.preview().changes["update"] == 1
    changed.engine.up()
    assert checkout.engine.outputs()["revision"] == 2
    checkout.engine.destroy()
    assert checkout.plane.kubectl("get", "cm,secret", "-n", namespace, "-o", "name").splitlines() == [
        "configmap/kube-root-ca.crt"
    ]


def test_a_secret_value_is_encrypted_in_state(checkout, namespace):
    source = RELEASE.format(namespace=namespace, text='pulumi.Output.secret("canary-4711")')
    checkout.program(source).engine.up()
    data = checkout.plane.kubectl("get", "cm", "t-cm", "-n", namespace, "-o", "jsonpath={.data.text}")
    assert data == "canary-4711"
    assert "canary" not in json.dumps(checkout.engine.export())
    written = [item for item in (checkout.root / ".gpuform").rglob("*") if item.is_file()]
    assert not [item for item in written if b"canary-4711" in item.read_bytes()]
    checkout.engine.destroy()


def test_a_value_that_is_not_known_yet_is_previewed(checkout, namespace):
    made = 'k8s.core.v1.Namespace("other", opts=opts).metadata.name'
    result = checkout.program(RELEASE.format(namespace=namespace, text=made)).engine.preview()
    assert result.changes["create"] == 4


def test_a_failed_install_is_kept_and_repaired_by_the_next_up(checkout, namespace):
    source = RELEASE.format(namespace=namespace, text='"x", "stuck": True')
    with pytest.raises(EngineFailure) as failure:
        checkout.program(source).engine.up()
    assert "Deployment t-stuck: 0 of 1 replicas are available" in "\n".join(failure.value.result.errors)
    checkout.program(RELEASE.format(namespace=namespace, text='"x"')).engine.up()
    assert checkout.engine.outputs()["revision"] == 2
    assert not checkout.engine.preview().changed
    checkout.engine.destroy()


def test_nodes_get_and_lose_what_a_pool_gives_them(checkout, kubectl):
    name = "engine-pool-0"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"found": "engine"}}}
    kubectl("create", "-f", "-", input=json.dumps(node))
    label = ("get", "node", name, "-o", r"jsonpath={.metadata.labels.gpuform\.io/pool}")
    source = """
        taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
        labels = {"gpuform.io/pool": "a"}
        pool = PoolNodes("a", kubeconfig=kubeconfig, selector="found=engine", labels=labels, taints=[taint])
        pulumi.export("nodes", pool.nodes)
    """
    try:
        checkout.program(source).engine.up()
        assert checkout.engine.outputs()["nodes"] == [name]
        assert kubectl(*label) == "a"
        assert not checkout.engine.preview().changed
        kubectl("label", "node", name, "gpuform.io/pool-", "--field-manager=hand")
        assert checkout.engine.preview().changes["update"] == 1
        checkout.engine.up()
        assert kubectl(*label) == "a"
        checkout.engine.destroy()
        assert kubectl(*label) == ""
        assert "nvidia.com/gpu" not in kubectl("get", "node", name, "-o", "jsonpath={.spec.taints}")
    finally:
        kubectl("delete", "node", name)
