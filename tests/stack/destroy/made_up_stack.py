"""A stack with a cluster at Magnum, its engine and the cluster's own API, all played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, EngineFailure, Result
from gpuform.stack.destroy import Options, Site
from gpuform.stack.destroy.cluster import SERVICE, Cluster
from infra.config import parse
from tests.stack.preflight.made_up_cloud import PROJECT

BASE = "urn:pulumi:s::gpuform::"
TOKEN = "openstack:containerinfra/cluster:Cluster"
KUBERNETES = f"{BASE}pulumi:providers:kubernetes::k::id"
OUTPUTS = {
    "name": "research",
    "apiAddress": "https://10.0.0.5:6443",
    "projectId": PROJECT,
    "region": "cern",
    "kubeconfig": {"4dabf18193072939515e22adb298388d": "1", "plaintext": '{"rawConfig": "kind: Config"}'},
}
CLUSTER = {"urn": f"{BASE}{TOKEN}::c", "type": TOKEN, "custom": True, "id": "c-1", "outputs": OUTPUTS}
POD = {
    "urn": f"{BASE}kubernetes:core/v1:Pod::p",
    "type": "kubernetes:core/v1:Pod",
    "custom": True,
    "id": "lab/p",
    "provider": KUBERNETES,
}
QUEUE_TYPE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"
QUEUE = {**POD, "urn": f"{BASE}{QUEUE_TYPE}::team", "type": QUEUE_TYPE, "id": "science"}
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
SOMEBODY_S = {
    **BALANCER,
    "id": "lb-2",
    "description": "Kubernetes external service shop/web from cluster c-10",
}


class PlayedEngine:
    def __init__(self, resources: Sequence[dict[str, Any]], fails: int = 0) -> None:
        self.resources, self.fails = list(resources), fails
        self.asked: list[tuple[str, ...]] = []

    def environment(self, stack: str) -> tuple[dict[str, str], None]:
        return {"PULUMI_BACKEND_URL": ""}, None

    def export(self, stack: str) -> dict[str, Any]:
        return {"deployment": {"resources": self.resources}}

    def deployment(self, env: Any, stack: str, show_secrets: bool = False) -> dict[str, Any]:
        assert show_secrets
        return self.export(stack)

    def restore(self, stack: str, state: dict[str, Any]) -> None:
        self.resources = state["deployment"]["resources"]

    def destroy(self, stack: str, on_event: Any, spared: Sequence[str] = ()) -> Result:
        self.asked.append(tuple(spared))
        if self.fails:
            self.fails -= 1
            raise EngineFailure(Result("destroy", stack, {}, 1.0), "timed out", "see the log")
        self.resources = []
        return Result("destroy", stack, {"delete": 2}, 1.0)


class Played:
    """A cluster with one LoadBalancer Service and no controller: octavia's load balancer stays."""

    def __init__(self, problem: str = "") -> None:
        self.problem, self.services = problem, [_service("web")]

    def reachable(self) -> str:
        return self.problem

    def objects(self, kind: Any, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        return self.services if kind is SERVICE else []

    def queued(self, environment: str) -> dict[str, list[str]]:
        return {"science": ["Job lab/train"]}

    def find(self, kind: Any, namespace: str, name: str) -> None:
        return None

    def delete(self, kind: Any, one: Any, with_owned: bool = False) -> None:
        self.services = []


def _service(name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "uid": "u"}, "spec": {"type": "LoadBalancer"}}


def site(tmp_path: Path, *resources: dict[str, Any], fails: int = 0, **options: Any) -> Site:
    cluster = {"kind": "openstack", "region": "cern", "template": "kubernetes-1.30.2-2", "version": "1.30"}
    pool = {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 1}
    env = parse({"name": "research", "cluster": cluster, "pools": [pool]})
    engine = PlayedEngine(resources or (CLUSTER, POD), fails)
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    return Site(env, paths, cast(Engine, engine), "research", Options(**options), say=lambda line: None)


@contextmanager
def playing(monkeypatch: pytest.MonkeyPatch, problem: str = "") -> Iterator[Played]:
    played, given = Played(problem), []

    @contextmanager
    def opened(access: Any) -> Iterator[Cluster]:
        given.append(access)
        yield cast(Cluster, played)

    monkeypatch.setattr("gpuform.stack.destroy.site.Cluster", opened)
    yield played
    assert set(given) <= {"kind: Config"}, "the state's own kubeconfig"
