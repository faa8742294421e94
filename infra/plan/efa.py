"""The device plugin that offers a node's Elastic Fabric Adapters to pods, as vpc.amazonaws.com/efa."""

from __future__ import annotations

from infra import versions
from infra.model import labels
from infra.model.environment import Environment
from infra.plan import startup
from infra.plan.charts import ChartRelease, mirrored
from infra.plan.sharing import tolerations


def release(env: Environment) -> ChartRelease | None:
    """AWS's chart on the nodes of pools with EFA; None if no pool has EFA."""
    pools = [pool for pool in env.pools if pool.on_aws.efa]
    if not pools:
        return None
    planned = ChartRelease(
        chart="aws-efa-k8s-device-plugin",
        repository=versions.EKS_CHARTS_REPOSITORY,
        version=versions.EFA_DEVICE_PLUGIN,
        namespace="kube-system",
        name="aws-efa-k8s-device-plugin",
        # By default the chart selects nodes by a list of instance types, also in pools without EFA: the pool
        # label is exact.
        values={
            "supportedInstanceLabels": {"keys": [labels.POOL], "values": [pool.name for pool in pools]},
            "tolerations": [*tolerations(env, pools), *startup.tolerations(env, pools)],
        },
    )
    return mirrored(env, planned)
