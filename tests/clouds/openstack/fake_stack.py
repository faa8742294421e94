"""A stack with a cluster at Magnum, its engine and the cluster's own API, all played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.kubernetes.kinds import SERVICE
from gpuform.stack.destroy import StackTeardown
from infra.config import parse
from tests.clouds.openstack.fake_cloud import PROJECT
from tests.stack.destroy.engine_state import BASE, PlayedCluster, patch_cluster, resource, teardown_of

KUBERNETES = f"{BASE}pulumi:providers:kubernetes::k::id"
OUTPUTS = {
    "name": "research",
    "apiAddress": "https://10.0.0.5:6443",
    "projectId": PROJECT,
    "region": "cern",
    "kubeconfig": {"4dabf18193072939515e22adb298388d": "1", "plaintext": '{"rawConfig": "kind: Config"}'},
}
CLUSTER = resource(f"{BASE}openstack:containerinfra/cluster:Cluster::c", id="c-1", outputs=OUTPUTS)
POD = resource(f"{BASE}kubernetes:core/v1:Pod::p", id="lab/p", provider=KUBERNETES)
QUEUE = resource(
    f"{BASE}kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::q", id="science", provider=KUBERNETES
)
LIVE = {
    "uuid": "c-1",
    "name": "research",
    "status": "DELETE_FAILED",
    "status_reason": "in use",
    "stack_id": "s-1",
}
BALANCER = {
    "id": "lb-1",
    "name": "kube_service_c-1_shop_web",
    "description": "Kubernetes external service shop/web from cluster c-1",
    "provisioning_status": "ACTIVE",
}
FOREIGN_BALANCER = {
    **BALANCER,
    "id": "lb-2",
    "description": "Kubernetes external service shop/web from cluster c-10",
}


def make_teardown(
    tmp_path: Path, *resources: dict[str, Any], fails: int = 0, **options: Any
) -> StackTeardown:
    cluster = {"kind": "openstack", "region": "cern", "template": "kubernetes-1.30.2-2", "version": "1.30"}
    pool = {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 1}
    env = parse({"name": "research", "cluster": cluster, "pools": [pool]})
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    state = {"deployment": {"resources": list(resources or (CLUSTER, POD))}}
    return teardown_of(env, state, paths=paths, fails=fails, **options)


def play_cluster(
    monkeypatch: pytest.MonkeyPatch, problem: str = "", access: Any = "kind: Config"
) -> PlayedCluster:
    """A cluster with one LoadBalancer Service and no controller: octavia's load balancer stays."""
    service = {"metadata": {"namespace": "shop", "name": "web", "uid": "u"}, "spec": {"type": "LoadBalancer"}}
    cluster = PlayedCluster({SERVICE: [service]}, problem, waiting={"science": ["Job lab/train"]})
    patch_cluster(monkeypatch, cluster, access)
    return cluster
