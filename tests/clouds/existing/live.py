"""Objects of an existing cluster, and an environment on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.clouds.existing.preflight.cluster import LiveCluster
from gpuform.kubernetes.kinds import (
    CLUSTER_POLICY,
    CLUSTER_QUEUE,
    DAEMON_SET,
    DEPLOYMENT,
    LIMIT_RANGE,
    NODE,
    PROMETHEUS,
    RESOURCE_FLAVOR,
    RESOURCE_QUOTA,
    SERVICE,
    STATEFUL_SET,
    Kind,
)
from infra.model.environment import Environment
from tests.build.environments import on

Json = dict[str, Any]
Release = tuple[str, str] | None
OWN = ("gpu-operator", "gpu-operator")
OTHER = ("gpu-operator", "nvidia-gpu-operator")
NVIDIAS = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ALL = {"operator": "Exists", "effect": "NoSchedule"}


def env(pool: Json | None = None, own: Json | None = None, **operator: Any) -> Environment:
    """With these fields of the pool, of the top level and of ``gpu_operator``."""
    t4 = {"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}, **(pool or {})}
    return on("existing", t4, gpu_operator=operator, **(own or {}))


def live(
    env: Environment, objects: Mapping[Kind, Sequence[Json]] | None = None, has_release: bool | None = None
) -> LiveCluster:
    kinds = (CLUSTER_POLICY, CLUSTER_QUEUE, DAEMON_SET, DEPLOYMENT, LIMIT_RANGE, NODE)
    kinds += (PROMETHEUS, RESOURCE_FLAVOR, RESOURCE_QUOTA, SERVICE, STATEFUL_SET)
    return LiveCluster(env, has_release, {**dict.fromkeys(kinds, ()), **(objects or {})}.__getitem__)


def _metadata(name: str, release: Release) -> Json:
    keys = ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
    return {"name": name, "annotations": dict(zip(keys, release, strict=True)) if release else {}}


def policy(release: Release = None, **toolkit: Any) -> Json:
    return {"metadata": _metadata("cluster-policy", release), "spec": {"toolkit": toolkit}}


def daemons(image: str, release: Release, *tolerations: Json, owned: bool = False, nodes: int = 1) -> Json:
    """A DaemonSet on this many nodes; ``owned`` by NVIDIA's operator."""
    owners = [{"kind": "ClusterPolicy", "name": "cluster-policy"}] if owned else []
    pod = {"containers": [{"image": image}], "tolerations": list(tolerations)}
    about = {**_metadata("daemons", release), "namespace": "there", "ownerReferences": owners}
    status = {"desiredNumberScheduled": nodes}
    return {"metadata": about, "spec": {"template": {"spec": pod}}, "status": status}


def node(
    name: str = "n",
    pool: str = "b",
    labels: Json | None = None,
    runtime: str = "containerd://2.1.0",
    kubelet: str = "v1.34.2",
) -> Json:
    about = {"name": name, "labels": {"a": pool, **(labels or {})}}
    info = {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet}
    return {"metadata": about, "status": {"nodeInfo": info}}
