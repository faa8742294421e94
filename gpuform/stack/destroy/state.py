"""The parts of a stack's state that a destroy treats separately: what is in the cluster, and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuform.engine.pending import RELEASE
from infra.model.losses import GUARD
from infra.model.serving import COLOURS
from infra.plan import blue_green
from infra.plan.queues import API

Resource = Mapping[str, Any]

_STACK = "pulumi:pulumi:Stack"
_BLUE_GREEN = "gpuform:workloads:BlueGreen"
_WORKLOADS = (
    "gpuform:platform:Workloads",
    *(f"gpuform:workloads:Gpu{k}" for k in ("Deployment", "Job", "Notebook", "Pod")),
)
_KEPT = (
    "kubernetes:core/v1:Service",
    "kubernetes:monitoring.coreos.com/v1:PodMonitor",
    "kubernetes:keda.sh/v1alpha1:ScaledObject",
    "kubernetes:serving.kserve.io/v1alpha1:ServingRuntime",
)
"""Parts of a workload that are deleted with the stack: they have no pods and cost nothing."""
_NAMESPACE = "kubernetes:core/v1:Namespace"
_QUEUE = f"kubernetes:{API}:ClusterQueue"
_KUBERNETES, _OWN = "pulumi:providers:kubernetes", "pulumi:providers:gpuform"


@dataclass(frozen=True)
class Declared:
    """One Kubernetes object in the state."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Known:
    """The resources of a state, in the engine's order: dependencies come first."""

    resources: tuple[Resource, ...]

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Known:
        """``state`` is what ``pulumi stack export`` prints."""
        return cls(tuple((state.get("deployment") or {}).get("resources") or ()))

    def of_type(self, *types: str) -> list[Resource]:
        return [one for one in self.resources if one["type"] in types]

    @property
    def empty(self) -> bool:
        return not any(one["type"] != _STACK for one in self.resources)

    def counts(self) -> dict[str, int]:
        """Resources by type, without components, providers and the stack itself."""
        found = Counter(str(one["type"]) for one in self.resources if one.get("custom") and not _engine(one))
        return dict(sorted(found.items()))

    @property
    def environment(self) -> str:
        """Name of the environment that the last update had; empty if it never came to its end."""
        for one in self.of_type(_STACK, GUARD):
            side = (one.get("outputs") if one["type"] == _STACK else one.get("inputs")) or {}
            found = side.get("environment")
            if name := found.get("name") if isinstance(found, Mapping) else found:
                return str(name)
        return ""

    @property
    def namespaces(self) -> dict[str, str]:
        """URN of each namespace that the stack created, by name."""
        return {str(one["id"]): str(one["urn"]) for one in self.of_type(_NAMESPACE) if one.get("id")}

    @property
    def queues(self) -> frozenset[str]:
        """Names of the ClusterQueues that the stack created."""
        return frozenset(str(one["id"]) for one in self.of_type(_QUEUE) if one.get("id"))

    @property
    def kubernetes(self) -> Mapping[str, Any]:
        """Inputs of the provider of the cluster that the stack did not create: kubeconfig and context."""
        return next((one.get("inputs") or {} for one in self.of_type(_KUBERNETES)), {})

    @cached_property
    def inside(self) -> frozenset[str]:
        """URNs of what is in the cluster and only it can delete: objects, releases, nodes' labels."""
        return frozenset(str(one["urn"]) for one in self.resources if _inside(one))

    def has_release(self, name: str) -> bool:
        """Whether the state has a Helm release of this name."""
        return any(str(one.get("id")).endswith(f"/{name}") for one in self.of_type(RELEASE))

    def workloads(self) -> tuple[Declared, ...]:
        found = (one for one in self.resources if one["urn"] in self.inside)
        mine = [
            one for one in found if _type(str(one.get("parent"))) in _WORKLOADS and one["type"] not in _KEPT
        ]
        return tuple(declared for one in mine for declared in _declared(one))

    def only(self, spared: Sequence[str]) -> bool:
        """Whether nothing is left but these URNs, the stack, the guard, and providers but the cluster's."""
        return all(
            one["urn"] in spared or one["type"] == GUARD or (_engine(one) and one["type"] != _KUBERNETES)
            for one in self.resources
        )


def without_cluster(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state without the contents of a deleted cluster, and without references to them.

    Only for a cluster that is proven to be gone: this deletes nothing, it only forgets. The kubernetes
    provider cannot do it, because it does not forget releases (its issue 2675).
    """
    deployment = dict(state["deployment"])
    gone = Known.of(state).inside
    deployment["resources"] = [
        _forgetting(one, gone) for one in deployment.get("resources") or () if one["urn"] not in gone
    ]
    pending = deployment.get("pending_operations") or ()
    deployment["pending_operations"] = [one for one in pending if one["resource"]["urn"] not in gone]
    return {**state, "deployment": deployment}


def retaining(state: Mapping[str, Any], urns: Iterable[str]) -> dict[str, Any]:
    """The state in which the engine's destroy forgets these resources, and does not delete them."""
    kept, deployment = set(urns), dict(state["deployment"])
    deployment["resources"] = [
        {**one, "retainOnDelete": True} if one["urn"] in kept else one
        for one in deployment.get("resources") or ()
    ]
    return {**state, "deployment": deployment}


def _forgetting(one: Resource, gone: frozenset[str]) -> dict[str, Any]:
    left = dict(one)
    if one.get("dependencies"):
        left["dependencies"] = _without(one["dependencies"], gone)
    if one.get("propertyDependencies"):
        left["propertyDependencies"] = {
            name: _without(urns or (), gone) for name, urns in one["propertyDependencies"].items()
        }
    if one.get("deletedWith") in gone:
        del left["deletedWith"]
    return left


def _without(urns: Iterable[str], gone: frozenset[str]) -> list[str]:
    return [urn for urn in urns if urn not in gone]


def _engine(one: Resource) -> bool:
    return str(one["type"]).startswith(("pulumi:pulumi:", "pulumi:providers:"))


def _inside(one: Resource) -> bool:
    provider = _type(str(one.get("provider") or ""))
    ours = provider == _OWN and one["type"] != GUARD
    return provider == _KUBERNETES or (ours and "kubeconfig" in (one.get("inputs") or {}))


def _type(urn: str) -> str:
    """Type token of a URN, without its parents' types; empty for any other text."""
    parts = urn.split("::")
    return parts[2].rpartition("$")[2] if len(parts) > 2 else ""


def _declared(one: Resource) -> Iterator[Declared]:
    """Kubernetes objects of a resource, from its type and id; a blue-green resource has two Deployments."""
    if one["type"] == _BLUE_GREEN:
        deployment = one["inputs"]["deployment"]
        for colour in COLOURS:
            name = blue_green.name(deployment, colour)
            yield Declared("Deployment", deployment["metadata"]["namespace"], name)
        return
    namespace, _, name = str(one.get("id", "")).rpartition("/")
    yield Declared(str(one["type"]).rpartition(":")[2], namespace, name)
