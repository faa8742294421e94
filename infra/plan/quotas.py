"""Namespaces, priority classes, GPU quotas, and nodes that are kept free.

Placeholder pods keep a node free: they request what it offers, do nothing, and are preempted by any other pod
at once. If they then do not fit, Karpenter buys a node for them, so the next pods find a running node.

They also have the node pull the images of the pool's workloads. Each is an image volume, which the kubelet
pulls before it starts the pod (k8s.io/kubernetes 1.36.0, kuberuntime_manager.go, ``getImageVolumes``). No
container mounts them: the kubelet deletes no mounted image, so on a small disk it would evict placeholders,
and Karpenter would buy one node after the other. Without a mount it deletes them when it needs room, an image
that cannot be pulled does not stop the placeholder, and older kubelets and containerd start it without them.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra import versions
from infra.model.aws.cluster import AwsCluster
from infra.model.base import labels
from infra.model.base.namespaces import (
    BUILT_IN,
    CERT_MANAGER,
    CULLER,
    HEALTH,
    KEDA,
    KSERVE,
    KUEUE,
    NETWORK_OPERATOR,
    PLACEHOLDER,
    SCHEDULER,
    TRIAL,
)
from infra.model.base.quantities import version_numbers
from infra.model.environment import Environment
from infra.model.placement import quotas
from infra.model.platform.monitoring import NAMESPACE as MONITORING
from infra.model.platform.scheduling import PLACEHOLDER_VALUE
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.workload import matching
from infra.plan import notebooks, rdma, sharing, startup
from infra.plan.manifest import CONFINED, Manifest, manifest, nonroot, own_labels

QUOTA = "gpuform-gpus"
_NONROOT = 65532
_FIRST_WITH_IMAGE_VOLUMES = (1, 35)
"""Kubernetes enables ImageVolume by default from this version on (1.36.0, pkg/features/kube_features.go)."""


def namespaces(env: Environment) -> tuple[Manifest, ...]:
    """The operator's namespace, privileged for its operands, and the others, which are not."""
    restricted = {workload.namespace for workload in env.workloads} | {space.name for space in env.namespaces}
    restricted |= {name for team in (env.queues.teams if env.queues else ()) for name in team.namespaces}
    restricted |= {KUEUE} if env.installs("kueue") else set()
    restricted -= set(BUILT_IN)
    restricted |= {SCHEDULER} if env.uses_packer else set()
    restricted |= {KEDA} if env.installs("keda") else set()
    restricted |= {KSERVE} if env.installs("kserve") else set()
    restricted |= {CERT_MANAGER} if env.installs("cert-manager") else set()
    restricted |= {HEALTH} if env.health else set()
    restricted |= {TRIAL} if any(startup.has_trial(env, pool) for pool in env.pools) else set()
    restricted |= {PLACEHOLDER} if any(pool.spare for pool in env.pools) else set()
    restricted |= {CULLER} if notebooks.culled_notebooks(env) else set()
    is_clusters_own = env.ownership.device_plugin == "cluster"
    objects = [_namespace(env, sharing.namespace(env), "restricted" if is_clusters_own else "privileged")]
    if rdma.shared_pools(env):
        objects.append(_namespace(env, NETWORK_OPERATOR, "privileged"))
    if env.installs_prometheus:
        objects.append(
            _namespace(env, MONITORING, "baseline")
        )  # a third-party chart, with nothing privileged
    levels = {space.name: space.pod_security for space in env.namespaces}
    return (*objects, *(_namespace(env, name, levels.get(name, "restricted")) for name in sorted(restricted)))


def _namespace(env: Environment, name: str, level: str) -> Manifest:
    pod_security_labels = own_labels(env, PSA_AUDIT=level, PSA_ENFORCE=level, PSA_WARN=level)
    return manifest("Namespace", {"name": name, "labels": pod_security_labels})


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """Priority classes, quotas and placeholders, each in the order declared."""
    return (*priority_classes(env), *resource_quotas(env), *placeholders(env))


def priority_classes(env: Environment) -> tuple[Manifest, ...]:
    """The environment's own classes, and the placeholders' where a pool keeps nodes free."""
    classes = [_priority_class(env, name, value) for name, value in env.priorities.items()]
    if any(pool.spare for pool in env.pools):
        classes.append({**_priority_class(env, PLACEHOLDER, PLACEHOLDER_VALUE), "preemptionPolicy": "Never"})
    return tuple(classes)


def _priority_class(env: Environment, name: str, value: int) -> Manifest:
    return manifest(
        "PriorityClass",
        {"name": name, "labels": own_labels(env)},
        "scheduling.k8s.io/v1",
        value=value,
        globalDefault=False,
        description=f"of gpuform's environment {env.name}",
    )


def resource_quotas(env: Environment) -> tuple[Manifest, ...]:
    """One ResourceQuota per namespace; 0 for every GPU resource that it may not request."""
    manifests = []
    for namespace in env.namespaces:
        if namespace.quota is None:
            continue
        hard = {key: str(number) for key, number in quotas.hard_limits(env.pools, namespace).items()}
        metadata = {"name": QUOTA, "namespace": namespace.name, "labels": own_labels(env)}
        manifests.append(manifest("ResourceQuota", metadata, spec={"hard": hard}))
    return tuple(manifests)


def placeholders(env: Environment) -> tuple[Manifest, ...]:
    """The Deployments of the pools that keep nodes free."""
    return tuple(item for pool in env.pools if pool.spare for item in _pool_placeholders(env, pool))


def placeholder_pods(env: Environment) -> int:
    """Number of placeholder pods of all pools."""
    return sum(deployment["spec"]["replicas"] for deployment in placeholders(env))


def _pool_placeholders(env: Environment, pool: Pool) -> Iterator[Manifest]:
    """A Deployment with one pod per spare node, which requests all that the node offers.

    Shares of which a pod may have only one get their own Deployment, with a pod for each share. If nodes
    differ in their number of GPUs, the smallest node counts.
    """
    assert pool.spare is not None
    resources = allocatable.resources(pool, pool.gpu_counts[0])
    one_per_pod = {name: number for name, number in resources.items() if allocatable.one_per_pod(pool, name)}
    together = {name: number for name, number in resources.items() if name not in one_per_pod}
    if together:
        yield _placeholder(env, pool, f"spare-{pool.name}", together, pool.spare)
    for name, number in one_per_pod.items():
        short = name.removeprefix(labels.NVIDIA_PREFIX).replace(".", "-")
        deployment_name = f"spare-{pool.name}" if len(resources) == 1 else f"spare-{pool.name}-{short}"
        yield _placeholder(env, pool, deployment_name, {name: 1}, pool.spare * number)


def _placeholder(env: Environment, pool: Pool, name: str, requests: dict[str, int], count: int) -> Manifest:
    selector = {labels.APP_NAME: name}
    metadata = {
        "name": name,
        "namespace": PLACEHOLDER,
        "labels": own_labels(env, APP_NAME=name, POOL=pool.name),
        # Placeholders may stay pending: an update must not wait for them.
        "annotations": {labels.SKIP_AWAIT: "true"},
    }
    spec = {
        "replicas": count,
        "selector": {"matchLabels": selector},
        # Kubernetes' default creates a pod more during a change, and Karpenter would buy a node for it.
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}, "type": "RollingUpdate"},
        "template": {"metadata": {"labels": selector}, "spec": _pod(env, pool, requests)},
    }
    return manifest("Deployment", metadata, "apps/v1", spec=spec)


def _pod(env: Environment, pool: Pool, requests: dict[str, int]) -> Manifest:
    gpus = {name: str(number) for name, number in requests.items()}
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "placeholder",
                "image": env.image(versions.PAUSE_IMAGE),
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi", **gpus},
                    "limits": {"memory": "16Mi", **gpus},
                },
                "securityContext": CONFINED,
            }
        ],
        "nodeSelector": {labels.POOL: pool.name},
        "priorityClassName": PLACEHOLDER,
        "securityContext": nonroot(_NONROOT),
        "terminationGracePeriodSeconds": 0,
        "tolerations": sharing.pod_tolerations(env, [pool]),
    }
    if env.uses_packer:
        spec["schedulerName"] = SCHEDULER
    if images := _workload_images(env, pool):
        spec["volumes"] = [
            {"name": f"image-{index}", "image": {"reference": image}} for index, image in enumerate(images)
        ]
    return spec


def _workload_images(env: Environment, pool: Pool) -> list[str]:
    """Images of the workloads that select the pool, each once; empty if the cluster has no image volumes."""
    assert isinstance(env.cluster, AwsCluster)  # the model refuses spare on other clusters
    if version_numbers(env.cluster.version) < _FIRST_WITH_IMAGE_VOLUMES:
        return []
    works = (work for work in env.workloads if pool in matching.pools_of(env.pools, work))
    return sorted({env.image(work.image) for work in works})
