"""EKS add-ons and Karpenter's two releases: versions, and the values that follow from the pools."""

from __future__ import annotations

from infra import versions
from infra.model.environment import Environment
from infra.plan import node_groups, overlays
from infra.plan.charts import ChartRelease, Values, mirrored

KARPENTER_NAMESPACE = "kube-system"
"""Where the source and upstream install Karpenter; API Priority and Fairness protects its requests there."""
SERVICE_ACCOUNT = "karpenter"


def add_ons(env: Environment) -> dict[str, str]:
    """Version by add-on name: the declared one, or the one pinned for the cluster's Kubernetes version."""
    cluster = node_groups.cluster_of(env)
    own = {str(name): version for name, version in cluster.add_ons.items()}
    return dict(sorted({**versions.EKS_ADD_ONS[cluster.version], **own}.items()))


def interruption_queue(env: Environment) -> str:
    """Name of the SQS queue for interruption events: the cluster's, as in the source and upstream."""
    return env.name


def karpenter_crd_release(env: Environment) -> ChartRelease:
    """Karpenter's CRDs as a release of their own: Helm never upgrades CRDs that a chart bundles."""
    return _release(env, "karpenter-crd", {})


def karpenter_release(env: Environment) -> ChartRelease:
    """Karpenter itself, without its CRDs."""
    return _release(env, "karpenter", karpenter_values(env))


def _release(env: Environment, chart: str, values: Values) -> ChartRelease:
    planned = ChartRelease(
        chart=f"{versions.KARPENTER_REPOSITORY}/{chart}",
        repository=None,
        version=versions.KARPENTER,
        namespace=KARPENTER_NAMESPACE,
        name=chart,
        values=values,
    )
    return mirrored(env, planned)


def karpenter_values(env: Environment) -> Values:
    """Chart values: the source's, and the feature gates that the pools need.

    The chart places each replica on a different node, and never on a node that Karpenter made. There are at
    most as many replicas as system nodes, or the release would wait for a pod that fits on no node.
    """
    size = {"cpu": "1", "memory": "1Gi"}
    return {
        "controller": {"resources": {"requests": size, "limits": dict(size)}},
        "replicas": min(2, node_groups.cluster_of(env).system.nodes),
        "serviceAccount": {"name": SERVICE_ACCOUNT},
        "settings": {
            "clusterName": env.name,
            "eksControlPlane": True,
            "interruptionQueue": interruption_queue(env),
            "featureGates": _feature_gates(env),
        },
    }


def _feature_gates(env: Environment) -> Values:
    """Feature gates; those of static pools and of repair keep the chart's default (off) unless needed."""
    repairs = env.health is not None and env.health.remediator == "karpenter"
    reserved = any(pool.by_karpenter and "reserved" in pool.capacity for pool in env.pools)
    return {
        **({"nodeRepair": True} if repairs else {}),
        "nodeOverlay": any(overlays.node_overlays(env, pool) for pool in env.pools),
        "reservedCapacity": reserved,
        **({"staticCapacity": True} if any(pool.by_claim for pool in env.pools) else {}),
    }
