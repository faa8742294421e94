"""Parts that an existing cluster has already: NVIDIA's operator, a device plugin, node feature discovery.

Helm puts the annotations below on what it makes, and refuses to take over another release's objects
(github.com/helm/helm, pkg/action/validate.go). The operator works by the first ClusterPolicy that it sees and
ignores every other one (github.com/NVIDIA/gpu-operator, controllers/clusterpolicy_controller.go). Two device
plugins register the same resource, and two masters of node feature discovery delete each other's labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import abbreviate
from gpuform.checkout.paths import Paths
from gpuform.engine.pending import RELEASE, operations
from gpuform.kubernetes.controllers import DEVICE_PLUGINS, has_image, is_operator_owned
from gpuform.kubernetes.kinds import CLUSTER_POLICY, DAEMON_SET, NODE, Kind
from gpuform.stack.preflight.check import Check, Result, local_state
from infra.model.environment import Environment
from infra.plan import device_plugin, sharing, startup
from infra.plan.manifest import tolerates

if TYPE_CHECKING:
    from gpuform.kubernetes.cluster import Cluster

NFD = ("node-feature-discovery",)
"""Names of the images of node feature discovery."""
_GKES_PLUGIN, _GKE_OFF = ("nvidia-gpu-device-plugin",), "gke-no-default-nvidia-gpu-device-plugin"
"""Image of GKE's DaemonSets, which are on every cluster there, and the label that keeps them off a node [GPU
operator documentation, google-gke]."""
_CLOUD_PLUGINS: Mapping[str, tuple[str, str]] = {
    "cloud.google.com/gke-accelerator": ("GKE", f"give their node pool --node-labels={_GKE_OFF}=true"),
    "eks.amazonaws.com/compute-type=auto": ("EKS Auto Mode", "select nodes of a node group"),
    "kubernetes.azure.com/dcgm-exporter=enabled": ("AKS", "create their node pool with --gpu-driver none"),
}
"""By label: the cloud that offers a node's GPUs by a plugin of its own, and how to be without. On EKS and AKS
it is no DaemonSet [EKS user guide, auto-accelerated; learn.microsoft.com, aks-managed-gpu-nodes]."""
_OWN_RELEASES = {(sharing.NAMESPACE, name) for name in ("gpu-operator", device_plugin.NAME)}
Json = Mapping[str, Any]


@dataclass(frozen=True)
class LiveCluster:
    """What the cluster has: ``list_objects`` lists those of a kind, ``find`` one by namespace and name."""

    env: Environment
    has_release: bool | None
    list_objects: Callable[[Kind], Iterable[Json]]
    find: Callable[[Kind, str, str], Json | None] = lambda kind, namespace, name: None

    @cached_property
    def daemon_sets(self) -> Sequence[Json]:
        return list(self.list_objects(DAEMON_SET))

    @cached_property
    def gpu_nodes(self) -> Sequence[Json]:
        """Nodes of the pools with GPUs."""
        nodes = self.list_objects(NODE) if any(pool.gpus for pool in self.env.pools) else ()
        pools = [(node, self.env.selecting_pool(node_labels(node))) for node in nodes]
        return [node for node, pool in pools if pool and pool.gpus]

    @cached_property
    def cloud_plugins(self) -> Mapping[str, tuple[str, str]]:
        """The entry of ``_CLOUD_PLUGINS`` by the name of each node with GPUs that has one."""
        return {
            node["metadata"]["name"]: plugin
            for node in self.gpu_nodes
            for label, plugin in _CLOUD_PLUGINS.items()
            if label in {*node_labels(node), *map("=".join, node_labels(node).items())}
            and _GKE_OFF not in node_labels(node)
        }

    def sets_with_image(self, names: Sequence[str]) -> list[Json]:
        """DaemonSets of these images, without the operator's own."""
        return [item for item in self.daemon_sets if has_image(item, names) and not is_operator_owned(item)]

    def foreign_objects(self, objects: Iterable[Json]) -> list[Json]:
        """Those that the stack's release has not made; its release is another stack's if it made none."""
        return [item for item in objects if self.has_release is False or _release(item) not in _OWN_RELEASES]

    def judge_own(self, objects: Sequence[Json]) -> Result:
        """The result if no others are there."""
        if objects and self.has_release is None:
            fact = f"{_describe(objects)}; the stack's state is elsewhere, so it may be another stack's"
            return Result("SKIP", fact, "if it is, uninstall it first")
        return Result("PASS", "it is the stack's own" if objects else "none is there")


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    """``by_hand``: kubectl with the options for this cluster."""
    yield Check("GPU operator", f"{by_hand} get {CLUSTER_POLICY.resource} -o yaml", judge_operator)
    if env.gpu_operator.mode != "existing":
        sets = f"{by_hand} get {DAEMON_SET.resource} -A -o wide"
        yield Check("device plugin", sets, judge_device_plugin)
        yield Check("node feature discovery", sets, judge_feature_discovery)


def list_objects(kubeconfig: str, context: str | None, kind: Kind) -> Sequence[Json]:
    """All objects of a kind; none if the server does not have it. Raises Failure without an answer."""
    with _reader(kubeconfig, context) as cluster:
        return cluster.list_objects(kind)


def find_object(kubeconfig: str, context: str | None, kind: Kind, namespace: str, name: str) -> Json | None:
    """The object of that name; None without it. Raises Failure without an answer."""
    with _reader(kubeconfig, context) as cluster:
        return cluster.find(kind, namespace, name)


@contextmanager
def _reader(kubeconfig: str, context: str | None) -> Iterator[Cluster]:
    from gpuform.kubernetes.cluster import Reader

    try:
        with Reader(kubeconfig, context) as cluster:
            yield cluster
    except (ValueError, OSError) as error:
        raise Failure("cluster", str(error) or type(error).__name__, f"check {kubeconfig}") from None


def has_release(paths: Paths, stack: str) -> bool | None:
    """Whether the state beside the checkout has a Helm release, or is to; None if it is elsewhere."""
    if (state := local_state(paths, stack)) is None:
        return None
    types = [item["type"] for item in state["deployment"].get("resources") or ()]
    return RELEASE in (*types, *(item.type for item in operations(state)))


def judge_operator(cluster: LiveCluster) -> Result:
    policies = list(cluster.list_objects(CLUSTER_POLICY))
    foreign = cluster.foreign_objects(policies)
    if cluster.env.gpu_operator.mode == "existing":
        if foreign:
            daemon_sets = list(filter(is_operator_owned, cluster.daemon_sets))
            return _judge_tolerations(cluster.env, daemon_sets, foreign)
        if plugins := cluster.foreign_objects(cluster.sets_with_image(DEVICE_PLUGINS)):
            return _judge_tolerations(cluster.env, plugins, plugins)
        if cluster.gpu_nodes and len(cluster.cloud_plugins) == len(cluster.gpu_nodes):
            clouds = sorted({cloud for cloud, _ in cluster.cloud_plugins.values()})
            return Result("PASS", f"the device plugin of {', '.join(clouds)} offers the GPUs")
        if gke := _unknown_on_gke(cluster):
            return gke
        fact = "none of another release is there, and gpu_operator.mode is existing"
        return Result("FAIL", fact, "use gpu_operator.mode: operator, or install one first")
    if not foreign:
        return cluster.judge_own(policies)
    reason = "Helm refuses a second operator, and of two ClusterPolicies one is ignored"
    if cluster.env.gpu_operator.mode == "device_plugin":
        reason = "two device plugins would offer the same GPUs"
    fact = f"{_describe(foreign)}: {reason}"
    return Result("FAIL", fact, "use gpu_operator.mode: existing, or uninstall that one first")


def judge_device_plugin(cluster: LiveCluster) -> Result:
    own = cluster.sets_with_image(DEVICE_PLUGINS)
    foreign = cluster.foreign_objects(own)
    if not foreign and cluster.cloud_plugins:
        cloud, remedy = next(iter(cluster.cloud_plugins.values()))
        offered = abbreviate(list(cluster.cloud_plugins))
        fact = f"that of {cloud} offers the GPUs of {offered}, and so would ours"
        return Result("FAIL", fact, f"use gpu_operator.mode: existing, or {remedy}")
    if not foreign:
        return _unknown_on_gke(cluster) or cluster.judge_own(own)
    return Result("FAIL", f"{_describe(foreign)}: two would offer the same GPUs", "uninstall that one first")


def _unknown_on_gke(cluster: LiveCluster) -> Result | None:
    """SKIP on a cluster of GKE that has no node with GPUs yet."""
    if cluster.gpu_nodes or not cluster.sets_with_image(_GKES_PLUGIN):
        return None
    fact = "not known whether GKE's offers the GPUs: no node of the pools has any yet"
    return Result("SKIP", fact, f"GKE's does not run on nodes with the label {_GKE_OFF}=true")


def judge_feature_discovery(cluster: LiveCluster) -> Result:
    own = cluster.sets_with_image(NFD)
    foreign = cluster.foreign_objects(own)
    if cluster.env.gpu_operator.nfd:
        if not foreign:
            return cluster.judge_own(own)
        fact = f"{_describe(foreign)}: two would delete each other's labels"
        return Result("FAIL", fact, "use gpu_operator.nfd: false, or uninstall that one first")
    if foreign:
        return _judge_tolerations(cluster.env, foreign, foreign)
    return Result("FAIL", "none but the stack's is there, and gpu_operator.nfd is false", "leave nfd out")


def _judge_tolerations(env: Environment, daemon_sets: Iterable[Json], objects: Sequence[Json]) -> Result:
    """FAIL if pods of these DaemonSets stay away from the nodes with GPUs, because of a taint."""
    pools = [pool for pool in env.pools if pool.gpus]
    both = sharing.pool_taints, startup.startup_taints
    taints = [item for pool in pools for taints_of in both for item in taints_of(env, pool)]
    for item in daemon_sets:
        tolerations = item["spec"]["template"]["spec"].get("tolerations") or ()
        missing = [taint for taint in taints if not any(tolerates(one, taint) for one in tolerations)]
        if missing:
            taint = f"{missing[0]['key']}:{missing[0]['effect']}"
            fact = f"{_describe(objects)}; {object_name(item)} does not tolerate {taint}"
            return Result("FAIL", fact, "add the toleration to the values of its chart")
    return Result("PASS", f"{_describe(objects)}, and tolerates the taints of the nodes")


def node_labels(node: Json) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _release(item: Json) -> tuple[str, str]:
    annotations, prefix = item["metadata"].get("annotations") or {}, "meta.helm.sh/release-"
    return annotations.get(f"{prefix}namespace", ""), annotations.get(f"{prefix}name", "")


def object_name(item: Json) -> str:
    """``namespace/name``, or the name alone."""
    return "/".join(filter(None, (item["metadata"].get("namespace"), item["metadata"]["name"])))


def _describe(objects: Sequence[Json]) -> str:
    """The first, with the release that it is of."""
    release = "/".join(filter(None, _release(objects[0])))
    return f"{object_name(objects[0])} is there, {f'of Helm release {release}' if release else 'not by Helm'}"
