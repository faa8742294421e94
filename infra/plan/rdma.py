"""NVIDIA's network operator, its policy for the shared RDMA device plugin, and what a pod with RDMA needs.

Sources: Mellanox/network-operator v26.4.1 (deployment/network-operator/values.yaml, api/v1alpha1/
nicclusterpolicy_types.go, manifests/state-rdma-shared-device-plugin). The plugin's DaemonSet runs on nodes
that node feature discovery has labelled feature.node.kubernetes.io/pci-15b3.present=true, and the operator
network.nvidia.com/operator.mofed.wait=false: at once, since it installs no network driver here. The hosts
have one, of their system or of DOCA.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from infra import versions
from infra.model.base import labels
from infra.model.base.namespaces import NETWORK_OPERATOR
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.model.workload.workload import Workload
from infra.plan import gpu_operator, sharing, startup
from infra.plan.charts import ChartRelease, Values, plan_release
from infra.plan.manifest import Manifest, label_in, manifest, nonroot, own_labels, unique

NAME = "network-operator"
"""Name of the release and the chart."""
PLUGIN_IMAGE = "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin"
PLUGIN_TAG = f"network-operator-{versions.NETWORK_OPERATOR}"
"""As of every image that the operator starts (hack/release.yaml, RdmaSharedDevicePlugin)."""


def shared_pools(env: Environment) -> list[Pool]:
    """The pools of which the adapters are offered by the operator of the stack."""
    return [pool for pool in env.pools if pool.rdma and pool.rdma.mode == "shared"]


def release(env: Environment) -> ChartRelease | None:
    """The operator without node feature discovery, of which a cluster has one; None if no pool needs it."""
    if not shared_pools(env):
        return None
    values: Values = {
        "nfd": {"enabled": False},
        "operator": {"tolerations": gpu_operator.system_tolerations(env)},
    }
    repository, version = versions.GPU_OPERATOR_REPOSITORY, versions.NETWORK_OPERATOR.removeprefix("v")
    target = NETWORK_OPERATOR, NAME
    return plan_release(env, NAME, repository, version, target, values, simulated=f"{NAME}-sim")


def policy(env: Environment) -> Manifest | None:
    """The NicClusterPolicy; the operator acts only on one of this name."""
    pools = shared_pools(env)
    if not pools:
        return None
    configs = {
        pool.rdma.resource: {
            "resourceName": pool.rdma.resource.removeprefix(labels.RDMA_PREFIX),
            "rdmaHcaMax": pool.rdma.offered,
            "selectors": pool.rdma.selectors,
        }
        for pool in pools
        if pool.rdma
    }
    repository, _, image = env.image(PLUGIN_IMAGE).rpartition("/")
    plugin = {
        "repository": repository,
        "image": image,
        "version": PLUGIN_TAG,
        "config": json.dumps({"configList": [configs[name] for name in sorted(configs)]}, sort_keys=True),
    }
    term = {"matchExpressions": [label_in(labels.POOL, sorted(pool.name for pool in pools))]}
    spec: Manifest = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
        "rdmaSharedDevicePlugin": plugin,
        "tolerations": unique([*sharing.tolerations(env, pools), *startup.tolerations(env, pools)]),
    }
    metadata = {"name": "nic-cluster-policy", "labels": own_labels(env)}
    return manifest("NicClusterPolicy", metadata, "mellanox.com/v1alpha1", spec=spec)


def requests(pools: Sequence[Pool], work: Workload) -> dict[str, str]:
    """The resource that each pod requests, by the pools that it may run on."""
    rdma = next((pool.rdma for pool in pools if pool.rdma), None)
    return {rdma.resource: str(work.rdma)} if work.rdma and rdma else {}


def security(work: Workload, user: int, confined: Manifest) -> tuple[Manifest, Manifest]:
    """Security contexts of the pod and of its container.

    Registering memory with an adapter locks it, above RLIMIT_MEMLOCK only with IPC_LOCK [linux, drivers/
    infiniband/core/umem.c]; an added capability is effective only for root, since Kubernetes sets no ambient
    ones [KEP-2763].
    """
    pod = nonroot(user)
    if not work.rdma:
        return pod, confined
    del pod["runAsNonRoot"]
    capabilities = {**confined["capabilities"], "add": ["IPC_LOCK"]}
    return {**pod, "runAsUser": 0}, {**confined, "capabilities": capabilities}
