"""Finds the pods that an object makes: by their structure, and by a table for kinds that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.manifests.documents import Document, Keys, entries, mapping_at
from infra.model.base.labels import NVIDIA_GPU
from infra.model.base.quantities import is_sidecar, quantity, total_requests

Object = Mapping[str, Any]
_CLAIM_NAMES = ("resourceClaimName", "resourceClaimTemplateName")
_COUNTS = ("replicas", "parallelism", "numNodes")
"""Keys beside or around a pod template that multiply its pods."""


@dataclass(frozen=True)
class Container:
    """``requests`` and ``limits`` as numbers; ``at`` is where they are written (or would be)."""

    name: str
    at: Keys
    limits: Mapping[str, float]
    requests: Mapping[str, float]
    value: Object
    init: bool = False

    def keys_of(self, resource: str) -> Keys:
        """Where the amount of a resource is written."""
        if self.at[-1] == "gpu":  # a field of its own, of SparkApplications
            return (*self.at, "quantity")
        return (*self.at, "limits" if resource in self.limits else "requests", resource)


@dataclass(frozen=True)
class FoundPod:
    """Pods of one template.

    ``spec`` is the pod spec, and ``at`` is where it stands: there tolerations and the like are added.
    ``labels_at`` is where labels of the pods themselves are, if they can have some. ``count`` is how many
    there are, None if that depends on something else (nodes, an autoscaler). ``can_have``: the fields of a
    pod spec that the kind passes on, None for all. ``has_template``: whether all of the pod spec is here; to
    one of a runtime in the cluster others may have added tolerations, selectors and fields.
    """

    document: Document
    at: Keys
    spec: Object
    containers: tuple[Container, ...]
    labels_at: Keys | None = None
    count: int | None = 1
    can_have: Sequence[str] | None = None
    labels: Object = field(default_factory=dict)
    has_template: bool = True

    def claimed(self, classes: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Device classes that it claims; ``classes``: those of each claim and template, by name."""
        claims = [item for item in entries(self.spec, "resourceClaims") if isinstance(item, Mapping)]
        names = (item.get(key) for item in claims for key in _CLAIM_NAMES)
        return frozenset().union(*(classes.get(str(name), frozenset()) for name in names))

    def total(self, name: str) -> float:
        """What one pod requests."""
        amounts = [(one, {name: _amount(one, name)}) for one in self.containers]
        running = (amount for one, amount in amounts if not one.init)
        init = ((is_sidecar(one.value), amount) for one, amount in amounts if one.init)
        return float(total_requests(running, init)[name])

    def resources(self, prefix: str) -> dict[str, Container]:
        """Resources that begin so, and the first container that asks for each."""
        found: dict[str, Container] = {}
        for one in self.containers:
            for name in (*one.limits, *one.requests):
                if name.startswith(prefix) and _amount(one, name):
                    found.setdefault(name, one)
        return found


def claim_classes(documents: Iterable[Document]) -> dict[str, frozenset[str]]:
    """Device classes by the name of a ResourceClaimTemplate or ResourceClaim."""
    found = {}
    for document in documents:
        spec: Keys = ("spec", "spec") if document.kind == "ResourceClaimTemplate" else ("spec",)
        if document.kind in ("ResourceClaim", "ResourceClaimTemplate"):
            requests = entries(mapping_at(document.value, (*spec, "devices")), "requests")
            found[document.name] = frozenset(_classes(requests))
    return found


def _classes(requests: Sequence[Any]) -> Iterator[str]:
    """In ``exactly`` since resource.k8s.io/v1, in the request itself before."""
    for request in requests:
        if isinstance(request, Mapping):
            exactly = request.get("exactly")
            for item in (request, exactly, *entries(request, "firstAvailable")):
                if isinstance(item, Mapping) and isinstance(item.get("deviceClassName"), str):
                    yield item["deviceClassName"]


def _amount(container: Container, name: str) -> float:
    return container.requests.get(name, container.limits.get(name, 0.0))


def find(document: Document) -> Iterator[FoundPod]:
    """The pods of an object; none if it makes none, or if its controller decides on them alone."""
    finder = _FINDERS.get(document.kind)
    found = list(finder(document)) if finder else []
    places = {pod.at for pod in found}
    yield from found
    yield from (pod for pod in _by_structure(document, document.value, (), 1) if pod.at not in places)


def at(document: Document, keys: Keys) -> FoundPod | None:
    """The pod spec at a given place; None if there is none."""
    value = mapping_at(document.value, keys)
    if not value:
        return None
    return FoundPod(document, keys, value, tuple(_containers(value, keys)))


def _by_structure(document: Document, value: Any, keys: Keys, count: int | None) -> Iterator[FoundPod]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _by_structure(document, item, (*keys, index), count)
        return
    if not isinstance(value, Mapping):
        return
    if _is_pod_spec(value):
        yield _pod(document, value, keys, None if document.kind == "DaemonSet" else count)
        return
    for key in _COUNTS:
        if isinstance(number := value.get(key), int) and not isinstance(number, bool):
            count = None if count is None else count * number
    if "replicas" not in value and isinstance(value.get("minReplicas"), int):
        count = None
    for key, item in value.items():
        if isinstance(key, str):
            times = _workers(value) if key == "workerTemplate" else 1
            inner = None if count is None else count * times
            yield from _by_structure(document, item, (*keys, key), inner)


def _workers(group: Object) -> int:
    """Of a LeaderWorkerSet: its ``size`` includes the leader, if that has a template of its own."""
    size = group.get("size")
    return size - ("leaderTemplate" in group) if isinstance(size, int) else 1


def _is_pod_spec(value: Object) -> bool:
    containers = value.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(item, Mapping) and ("image" in item or "resources" in item) for item in containers)
    )


def _pod(document: Document, spec: Object, keys: Keys, count: int | None) -> FoundPod:
    """With the labels of its template: ``metadata`` beside ``spec``."""
    labels_at = (*keys[:-1], "metadata", "labels") if keys[-1:] == ("spec",) else None
    labels = mapping_at(document.value, labels_at) if labels_at else {}
    return FoundPod(document, keys, spec, tuple(_containers(spec, keys)), labels_at, count, None, labels)


def _containers(spec: Object, keys: Keys) -> Iterator[Container]:
    for kind in ("initContainers", "containers"):
        for index, item in enumerate(entries(spec, kind)):
            if isinstance(item, Mapping):
                yield _container(item, (*keys, kind, index), init=kind == "initContainers")


def _container(item: Object, keys: Keys, init: bool = False) -> Container:
    resources = mapping_at(item, ("resources",))
    limits, requests = (_numbers(resources.get(key)) for key in ("limits", "requests"))
    return Container(str(item.get("name") or ""), (*keys, "resources"), limits, requests, item, init)


def _numbers(amounts: Any) -> dict[str, float]:
    """Amounts that are quantities; a text that a tool fills in later is none."""
    found = {}
    for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
        try:
            found[str(name)] = quantity(amount)
        except ValueError:
            continue
    return found


def _inference_service(document: Document) -> Iterator[FoundPod]:
    """KServe: each component is a pod spec, and a model's container has its framework's name.

    pkg/apis/serving/v1beta1: predictor.go, component.go, podspec.go.
    """
    for component in ("predictor", "transformer", "explainer"):
        keys: Keys = ("spec", component)
        spec = mapping_at(document.value, keys)
        inner = [
            _container({"name": "kserve-container", **item}, (*keys, name))
            for name, item in spec.items()
            if isinstance(item, Mapping) and {"resources", "modelFormat", "storageUri"} & set(item)
        ]
        if inner:
            labels_at = (*keys, "labels")
            yield FoundPod(
                document,
                keys,
                spec,
                (*inner, *_containers(spec, keys)),
                labels_at,
                count if isinstance(count := spec.get("minReplicas", 1), int) else None,
                None,
                mapping_at(document.value, labels_at),
            )


def _spark(document: Document) -> Iterator[FoundPod]:
    """The GPU has a field of its own, and memory is the JVM's: api/v1beta2/sparkapplication_types.go."""
    top: Keys = ("spec", "template") if document.kind == "ScheduledSparkApplication" else ("spec",)
    for role in ("driver", "executor"):
        keys = (*top, role)
        spec = mapping_at(document.value, keys)
        gpu = spec.get("gpu")
        if not isinstance(gpu, Mapping):
            continue
        limits = _numbers({str(gpu.get("name")): gpu.get("quantity")})
        count = spec.get("instances", 1) if role == "executor" else 1
        yield FoundPod(
            document,
            keys,
            spec,
            (Container(f"spark-{role}", (*keys, "gpu"), limits, limits, {}),),
            (*keys, "labels"),
            count if isinstance(count, int) else None,
            ("tolerations", "nodeSelector", "affinity", "schedulerName"),
            mapping_at(document.value, (*keys, "labels")),
        )


def _dynamo(document: Document) -> Iterator[FoundPod]:
    """A service names its GPUs as ``gpu``: ai-dynamo/dynamo, the API reference of v1alpha1."""
    for name, service in mapping_at(document.value, ("spec", "services")).items():
        if not isinstance(service, Mapping):
            continue
        keys: Keys = ("spec", "services", name)
        resources = mapping_at(service, ("resources",))
        limits, requests = (
            _numbers(dict(_dynamo_names(mapping_at(resources, (key,))))) for key in ("limits", "requests")
        )
        nodes = mapping_at(service, ("multinode",)).get("nodeCount", 1)
        count = service.get("replicas", 1)
        pod = mapping_at(service, ("extraPodSpec",))
        main = Container("main", (*keys, "resources"), limits, requests, mapping_at(pod, ("mainContainer",)))
        whole = isinstance(count, int) and isinstance(nodes, int)
        yield FoundPod(
            document,
            (*keys, "extraPodSpec"),
            pod,
            (main, *_containers(pod, (*keys, "extraPodSpec"))),
            (*keys, "labels"),
            count * nodes if whole else None,
            None,
            mapping_at(service, ("labels",)),
        )


def _dynamo_names(amounts: Object) -> Iterator[tuple[str, Any]]:
    resource = str(amounts.get("gpuType") or NVIDIA_GPU)
    for name, amount in amounts.items():
        if name == "custom" and isinstance(amount, Mapping):
            yield from amount.items()
        elif name != "gpuType":
            yield (resource if name == "gpu" else str(name)), amount


def _workflow(document: Document) -> Iterator[FoundPod]:
    """Argo: a template has one container, and the pod's fields around it, or else those of the workflow."""
    top: Keys = ("spec", "workflowSpec") if document.kind == "CronWorkflow" else ("spec",)
    spec = mapping_at(document.value, top)
    for index, template in enumerate(entries(spec, "templates")):
        for kind in ("container", "script"):
            if isinstance(template, Mapping) and isinstance(item := template.get(kind), Mapping):
                keys = (*top, "templates", index)
                inherited = {key: spec[key] for key in _OF_A_WORKFLOW if key in spec}
                labels = mapping_at(template, ("metadata", "labels"))
                yield FoundPod(
                    document,
                    keys if "tolerations" in template else top,
                    {**inherited, **template},
                    (_container({"name": "main", **item}, (*keys, kind)),),
                    (*keys, "metadata", "labels"),
                    1,
                    _OF_A_WORKFLOW,
                    labels,
                )


def _train_job(document: Document) -> Iterator[FoundPod]:
    """Kubeflow Trainer: the pod template is in a runtime of the cluster, and a TrainJob has GPUs and patches.

    pkg/apis/trainer/v1alpha1/trainjob_types.go of 2.2; ``podTemplateOverrides`` up to 2.1. The trainer's job
    is ``node`` in the published runtimes.
    """
    trainer = mapping_at(document.value, ("spec", "trainer"))
    resources = mapping_at(trainer, ("resourcesPerNode",))
    limits, requests = (_numbers(resources.get(key)) for key in ("limits", "requests"))
    if limits or requests:
        at: Keys = ("spec", "trainer", "resourcesPerNode")
        count, patches = trainer.get("numNodes"), [*_trainer_patches(document.value)]
        yield FoundPod(
            document,
            patches[-1][0] if patches else ("spec",),
            {key: value for _, patch in patches for key, value in patch.items()},
            (Container("node", at, limits, requests, {"resources": resources}),),
            count=count if isinstance(count, int) else None,
            has_template=False,
        )


def _trainer_patches(value: Object) -> Iterator[tuple[Keys, Object]]:
    """Where a patch of the trainer's pod spec is, and what it has."""
    template: Keys = ("trainingRuntimeSpec", "template", "spec")
    pod: Keys = ("template", "spec", "template", "spec")
    for keys, patch in _items(value, ("spec", "runtimePatches")):
        for inner, job in _items(patch, (*template, "replicatedJobs")):
            if job.get("name") == "node":
                yield (*keys, *inner, *pod), mapping_at(job, pod)
    for keys, patch in _items(value, ("spec", "podTemplateOverrides")):
        if any(job.get("name") == "node" for _, job in _items(patch, ("targetJobs",))):
            yield (*keys, "spec"), mapping_at(patch, ("spec",))


def _items(value: Object, keys: Keys) -> Iterator[tuple[Keys, Object]]:
    for index, item in enumerate(entries(mapping_at(value, keys[:-1]), str(keys[-1]))):
        if isinstance(item, Mapping):
            yield (*keys, index), item


_OF_A_WORKFLOW = ("tolerations", "nodeSelector", "affinity", "schedulerName")
_FINDERS: Mapping[str, Callable[[Document], Iterator[FoundPod]]] = {
    "InferenceService": _inference_service,
    "SparkApplication": _spark,
    "ScheduledSparkApplication": _spark,
    "DynamoGraphDeployment": _dynamo,
    "TrainJob": _train_job,
    "Workflow": _workflow,
    "CronWorkflow": _workflow,
    "WorkflowTemplate": _workflow,
    "ClusterWorkflowTemplate": _workflow,
}
"""Kinds with pods that have no list ``containers``; of the others, the structure says all."""
