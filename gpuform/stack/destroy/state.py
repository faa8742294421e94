"""The parts of a stack's state that a destroy treats separately: what is in the cluster, and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuform.engine.pending import RELEASE
from infra.model.base.guard_names import GUARD, KUEUE_API
from infra.model.base.labels import COLOURS
from infra.plan import blue_green

Resource = Mapping[str, Any]

_STACK = "pulumi:pulumi:Stack"
_BLUE_GREEN = "gpuform:workloads:BlueGreen"
_WORKLOADS = (
    "gpuform:platform:Workloads",
    *(f"gpuform:workloads:Gpu{k}" for k in ("Deployment", "Job", "Notebook", "Pod")),
)
_WITHOUT_PODS = (
    "kubernetes:core/v1:Service",
    "kubernetes:monitoring.coreos.com/v1:PodMonitor",
    "kubernetes:keda.sh/v1alpha1:ScaledObject",
    "kubernetes:keda.sh/v1alpha1:TriggerAuthentication",
    "gpuform:workloads:ScalingRemoval",
    "kubernetes:serving.kserve.io/v1alpha1:ServingRuntime",
)
"""Parts of a workload that are deleted with the stack: they have no pods and cost nothing."""
_NAMESPACE = "kubernetes:core/v1:Namespace"
_QUEUE = f"kubernetes:{KUEUE_API}:ClusterQueue"
_KUBERNETES, _GPUFORM = "pulumi:providers:kubernetes", "pulumi:providers:gpuform"


@dataclass(frozen=True)
class DeclaredObject:
    """One Kubernetes object in the state."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class State:
    """The resources of a state, in the engine's order: dependencies come first."""

    resources: tuple[Resource, ...]

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> State:
        """``state`` is what ``pulumi stack export`` prints."""
        return cls(tuple((state.get("deployment") or {}).get("resources") or ()))

    def of_type(self, *types: str) -> list[Resource]:
        return [resource for resource in self.resources if resource["type"] in types]

    @property
    def is_empty(self) -> bool:
        return not any(resource["type"] != _STACK for resource in self.resources)

    def counts(self) -> dict[str, int]:
        """Resources by type, without components, providers and the stack itself."""
        by_type = Counter(
            str(item["type"]) for item in self.resources if item.get("custom") and not _is_engine(item)
        )
        return dict(sorted(by_type.items()))

    @property
    def environment(self) -> str:
        """Name of the environment that the last update had; empty if it never came to its end."""
        for resource in self.of_type(_STACK, GUARD):
            properties = resource.get("outputs" if resource["type"] == _STACK else "inputs") or {}
            found = properties.get("environment")
            if name := found.get("name") if isinstance(found, Mapping) else found:
                return str(name)
        return ""

    @property
    def namespaces(self) -> dict[str, str]:
        """URN of each namespace that the stack created, by name."""
        return {str(item["id"]): str(item["urn"]) for item in self.of_type(_NAMESPACE) if item.get("id")}

    @property
    def queues(self) -> frozenset[str]:
        """Names of the ClusterQueues that the stack created."""
        return frozenset(str(resource["id"]) for resource in self.of_type(_QUEUE) if resource.get("id"))

    @property
    def kubernetes(self) -> Mapping[str, Any]:
        """Inputs of the provider of the cluster that the stack did not create: kubeconfig and context."""
        return next((provider.get("inputs") or {} for provider in self.of_type(_KUBERNETES)), {})

    @cached_property
    def in_cluster(self) -> frozenset[str]:
        """URNs of what is in the cluster and only it can delete: objects, releases, nodes' labels."""
        return frozenset(str(resource["urn"]) for resource in self.resources if _is_in_cluster(resource))

    def has_release(self, name: str) -> bool:
        """Whether the state has a Helm release of this name."""
        return any(str(release.get("id")).endswith(f"/{name}") for release in self.of_type(RELEASE))

    def workloads(self) -> tuple[DeclaredObject, ...]:
        inside = (item for item in self.resources if item["urn"] in self.in_cluster)
        own = [
            item
            for item in inside
            if _type_of(str(item.get("parent"))) in _WORKLOADS and item["type"] not in _WITHOUT_PODS
        ]
        return tuple(declared for resource in own for declared in _kubernetes_objects(resource))

    def has_only(self, excluded: Sequence[str]) -> bool:
        """Whether nothing is left but these URNs, the stack, the guard, and providers but the cluster's."""
        return all(
            item["urn"] in excluded
            or item["type"] == GUARD
            or (_is_engine(item) and item["type"] != _KUBERNETES)
            for item in self.resources
        )


def forget_cluster_contents(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state without the contents of a deleted cluster, and without references to them.

    Only for a cluster that is proven to be gone: this deletes nothing, it only forgets. The kubernetes
    provider cannot do it, because it does not forget releases (its issue 2675).
    """
    deployment = dict(state["deployment"])
    deleted = State.from_state(state).in_cluster
    deployment["resources"] = [
        _without_references(item, deleted)
        for item in deployment.get("resources") or ()
        if item["urn"] not in deleted
    ]
    pending = deployment.get("pending_operations") or ()
    deployment["pending_operations"] = [item for item in pending if item["resource"]["urn"] not in deleted]
    return {**state, "deployment": deployment}


def retain_on_delete(state: Mapping[str, Any], urns: Iterable[str]) -> dict[str, Any]:
    """The state in which the engine's destroy forgets these resources, and does not delete them."""
    retained, deployment = set(urns), dict(state["deployment"])
    deployment["resources"] = [
        {**resource, "retainOnDelete": True} if resource["urn"] in retained else resource
        for resource in deployment.get("resources") or ()
    ]
    return {**state, "deployment": deployment}


def _without_references(resource: Resource, deleted: frozenset[str]) -> dict[str, Any]:
    kept = dict(resource)
    if resource.get("dependencies"):
        kept["dependencies"] = _exclude(resource["dependencies"], deleted)
    if resource.get("propertyDependencies"):
        kept["propertyDependencies"] = {
            name: _exclude(urns or (), deleted) for name, urns in resource["propertyDependencies"].items()
        }
    if resource.get("deletedWith") in deleted:
        del kept["deletedWith"]
    return kept


def _exclude(urns: Iterable[str], deleted: frozenset[str]) -> list[str]:
    return [urn for urn in urns if urn not in deleted]


def _is_engine(resource: Resource) -> bool:
    return str(resource["type"]).startswith(("pulumi:pulumi:", "pulumi:providers:"))


def _is_in_cluster(resource: Resource) -> bool:
    provider = _type_of(str(resource.get("provider") or ""))
    is_gpuform = provider == _GPUFORM and resource["type"] != GUARD
    return provider == _KUBERNETES or (is_gpuform and "kubeconfig" in (resource.get("inputs") or {}))


def _type_of(urn: str) -> str:
    """Type token of a URN, without its parents' types; empty for any other text."""
    parts = urn.split("::")
    return parts[2].rpartition("$")[2] if len(parts) > 2 else ""


def _kubernetes_objects(resource: Resource) -> Iterator[DeclaredObject]:
    """Kubernetes objects of a resource, from its type and id; a blue-green resource has two Deployments."""
    if resource["type"] == _BLUE_GREEN:
        deployment = resource["inputs"]["deployment"]
        for colour in COLOURS:
            name = blue_green.deployment_name(deployment, colour)
            yield DeclaredObject("Deployment", deployment["metadata"]["namespace"], name)
        return
    namespace, _, name = str(resource.get("id", "")).rpartition("/")
    yield DeclaredObject(str(resource["type"]).rpartition(":")[2], namespace, name)
