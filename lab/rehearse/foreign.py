"""Manifests that gpuform does not declare, as a rehearsal starts them beside the stack's own workloads.

What Kubernetes' own controllers run is applied as it is. Of a custom resource, its pods are: no controller of
it runs here, so each of its pod templates becomes a Deployment with as many pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.listing import count_of
from gpuform.manifests import documents, judge, placement
from gpuform.manifests import pods as found
from gpuform.manifests.documents import Document, mapping_at
from gpuform.manifests.pods import FoundPod
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.workload.workload import DeploymentWorkload, JobWorkload, PodWorkload, Workload
from infra.plan import notebooks, pod_needs, quotas, sharing
from infra.plan.manifest import Manifest, manifest
from lab.rehearse.cluster import Cluster
from lab.rehearse.pods import DURATION, LONG
from lab.rehearse.watch import FOREIGN

DEFAULT = "default"
_KINDS: Mapping[str, type[Workload]] = {
    "Pod": PodWorkload,
    "Deployment": DeploymentWorkload,
    "StatefulSet": DeploymentWorkload,
    "Job": JobWorkload,
    "CronJob": JobWorkload,
}
"""What the controller manager runs, and what each is counted as; of a CronJob, one run."""
_APIS = ("v1", "apps/v1", "batch/v1")
_BESIDE = (
    *("Namespace", "ServiceAccount", "PriorityClass", "RuntimeClass", "PersistentVolumeClaim"),
    *("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "LimitRange", "ResourceQuota"),
    *("PodDisruptionBudget", "DaemonSet"),
)
"""Other kinds on which it depends whether and where a pod runs."""
_TEMPLATES = ("Template", "Runtime")
"""Endings of kinds that start no pod by themselves: WorkflowTemplate, ServingRuntime, TrainingRuntime."""
_KEPT = (
    *("tolerations", "nodeSelector", "affinity", "schedulerName", "runtimeClassName", "resourceClaims"),
    *("topologySpreadConstraints", "priorityClassName", "hostNetwork", "securityContext"),
)
"""Fields of a custom resource's pods that say where they run, or whether they are admitted."""
_KEPT_OF_CONTAINERS = ("securityContext", "ports")
_INDEX = "rehearsal.gpuform.io/pods"
_QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class Foreign:
    """``manifests`` in the order in which they are applied; ``works`` count their pods.

    ``notes`` say what stands for something else; ``errors`` counts those that `gpuform check` finds.
    """

    manifests: tuple[Manifest, ...] = ()
    works: tuple[Workload, ...] = ()
    notes: tuple[str, ...] = ()
    errors: int = 0

    def counted(self, env: Environment) -> Environment:
        """The environment with these workloads after its own."""
        return env.model_copy(update={"workloads": (*env.workloads, *self.works)})

    def beside(self, others: Foreign) -> Foreign:
        """These, and then others."""
        return Foreign(
            (*self.manifests, *others.manifests),
            (*self.works, *others.works),
            (*self.notes, *others.notes),
            self.errors + others.errors,
        )

    def apply(self, cluster: Cluster, check: str) -> None:
        """Raises Failure with the API server's reason; ``check`` is the command that judges them."""
        try:
            cluster.apply(self.manifests)
        except Failure as error:
            raise Failure("--manifests", error.fact, f"correct them, see `{check}`") from None


def read(env: Environment, paths: Sequence[Path]) -> Foreign:
    """Read manifests from files and folders.

    Raises InputError for what cannot be read, makes no pod, is there twice, or is a workload of the stack.
    """
    if not paths:
        return Foreign()
    everything = documents.parse_all(documents.read_files(paths))
    pods = [pod for document in everything if _starts(document) for pod in found.find(document)]
    if not pods:
        raise InputError(f"--manifests {paths[0]}", "has no object that starts pods", "name another folder")
    _check_names(env, pods)
    judged = judge.judge(env, pods, everything, DEFAULT).findings
    return Foreign(
        tuple(_manifests(env, everything, pods)),
        tuple(_works(env, pods)),
        tuple(_notes(everything, pods)),
        sum(one.level == "error" for one in judged),
    )


def _is_native(document: Document) -> bool:
    """Whether Kubernetes' own controllers run it; Volcano has a kind Job, too."""
    return document.kind in _KINDS and document.value.get("apiVersion") in _APIS


def _starts(document: Document) -> bool:
    return not document.kind.endswith(_TEMPLATES) and document.kind != "DaemonSet"


def _check_names(env: Environment, pods: Iterable[FoundPod]) -> None:
    own = {(work.namespace, work.name) for work in env.workloads}
    seen: Counter[tuple[str, ...]] = Counter()
    for document in dict.fromkeys(pod.document for pod in pods):
        key = (
            str(document.value.get("apiVersion")),
            document.kind,
            document.namespace(DEFAULT),
            _name(document),
        )
        seen[key] += 1
        line, column = document.place(("metadata", "name"))
        path = f"{document.file}:{line}:{column}"
        if seen[key] > 1:
            fact = f"{_title(document)} is there twice"
            raise InputError(path, fact, "name one variant, such as the output of `kustomize build`")
        if _is_native(document) and key[2:] in own:
            fact = f"{key[2]}/{key[3]} is also a workload of the stack"
            raise InputError(path, fact, "leave one of the two out")


def _manifests(
    env: Environment, everything: Sequence[Document], pods: Iterable[FoundPod]
) -> Iterator[Manifest]:
    own = {item["metadata"]["name"] for item in quotas.namespaces(env)} | {DEFAULT}  # with their level
    beside = [
        document
        for document in everything
        if document.kind in _BESIDE and not (document.kind == "Namespace" and document.name in own)
    ]
    named = {document.name for document in beside if document.kind == "Namespace"}
    namespaces = {document.namespace(DEFAULT) for document in (*beside, *(pod.document for pod in pods))}
    yield from (manifest("Namespace", {"name": name}) for name in sorted(namespaces - named - own))
    yield from notebooks.storage_classes(_storage_classes(everything))
    order = sorted(beside, key=lambda document: _BESIDE.index(document.kind))
    yield from (_plain(document.value) for document in order)
    accounts = {(one.namespace(DEFAULT), one.name) for one in beside if one.kind == "ServiceAccount"}
    of_pods = {
        (pod.document.namespace(DEFAULT), str(pod.spec["serviceAccountName"]))
        for pod in pods
        if _is_native(pod.document) and pod.spec.get("serviceAccountName", DEFAULT) != DEFAULT
    }
    for namespace, name in sorted(of_pods - accounts):
        yield manifest("ServiceAccount", {"name": name, "namespace": namespace})
    for pod, name in _named(pods):
        yield _as_it_is(env, pod) if _is_native(pod.document) else _deployment(env, pod, name)


def _storage_classes(everything: Iterable[Document]) -> set[str | None]:
    """Those that claims name: what provisions them is simulated."""
    classes: set[str | None] = set()
    for document in everything:
        claims = [document.value] if document.kind == "PersistentVolumeClaim" else []
        if document.kind == "StatefulSet":
            spec = mapping_at(document.value, ("spec",))
            claims += documents.entries(spec, "volumeClaimTemplates")
        classes |= {mapping_at(claim, ("spec",)).get("storageClassName") or None for claim in claims}
    return classes


def _plain(value: Mapping[str, Any]) -> Manifest:
    """A copy that may be changed."""
    return deepcopy(dict(value))


def _as_it_is(env: Environment, pod: FoundPod) -> Manifest:
    """The object with a name, its pods recognised as its own, and jobs that run for a day."""
    raw, document = _plain(pod.document.value), pod.document
    if document.kind == "CronJob":
        raw = {"apiVersion": "batch/v1", "kind": "Job", **_plain(raw["spec"]["jobTemplate"])}
    kept = {key: value for key, value in raw.get("metadata", {}).items() if key != "generateName"}
    raw["metadata"] = {**kept, "name": _name(document), "namespace": document.namespace(DEFAULT)}
    template: Manifest = raw if document.kind == "Pod" else raw["spec"]["template"]
    _mark(template, _name(document), runs_long=_KINDS[document.kind] is JobWorkload)
    template["spec"]["tolerations"] = [*(template["spec"].get("tolerations") or ()), *_admitted(env, pod)]
    return raw


def _mark(template: Manifest, workload: str, runs_long: bool = False) -> None:
    meta = template.setdefault("metadata", {})
    meta["annotations"] = {
        **(meta.get("annotations") or {}),
        FOREIGN: workload,
        **({DURATION: LONG} if runs_long else {}),
    }


def _admitted(env: Environment, pod: FoundPod) -> Iterator[Manifest]:
    """Tolerations that EKS's API server adds, or a runtime may have.

    This API server does not run ExtendedResourceToleration. A TrainJob's runtime is in the cluster, and is
    taken to tolerate the taints.
    """
    if not pod.has_template:
        offering = placement.offering(env, pod.resources(labels.NVIDIA_PREFIX))
        yield from sharing.pod_tolerations(env, offering)
    for name in pod.resources(labels.NVIDIA_PREFIX):
        if pod_needs.tolerated_at_admission(env, {"key": name, "effect": "NoSchedule"}, [name]):
            yield {"key": name, "operator": "Exists", "effect": "NoSchedule"}


def _deployment(env: Environment, pod: FoundPod, name: str) -> Manifest:
    spec = {key: deepcopy(pod.spec[key]) for key in _KEPT if key in pod.spec}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_admitted(env, pod)]
    for key, is_init in (("initContainers", True), ("containers", False)):
        containers = [one for one in pod.containers if one.init == is_init]
        if containers:
            spec[key] = [_container(one, index) for index, one in enumerate(containers)]
    queue = mapping_at(pod.document.metadata, ("labels",)).get(_QUEUE)
    tags = {**pod.labels, **({_QUEUE: queue} if queue else {})}
    return deployment(pod.document.namespace(DEFAULT), name, _count(pod), tags, spec)


def deployment(
    namespace: str, name: str, replicas: int, tags: Mapping[str, str], spec: Mapping[str, Any]
) -> Manifest:
    """A Deployment in place of what makes such pods; they are recognised as its own."""
    selected = {_INDEX: name[-63:].strip("-.")}
    template: Manifest = {"metadata": {"labels": {**tags, **selected}}, "spec": spec}
    _mark(template, name)
    return manifest(
        "Deployment",
        {"name": name, "namespace": namespace},
        "apps/v1",
        spec={"replicas": replicas, "selector": {"matchLabels": selected}, "template": template},
    )


def _container(one: found.Container, index: int) -> Manifest:
    resources = {
        key: {name: _quantity(amount) for name, amount in amounts.items()}
        for key, amounts in (("limits", one.limits), ("requests", one.requests))
    }
    claims = documents.entries(mapping_at(one.value, ("resources",)), "claims")
    kept = {key: deepcopy(one.value[key]) for key in _KEPT_OF_CONTAINERS if key in one.value}
    if one.init and one.value.get("restartPolicy"):
        kept["restartPolicy"] = one.value["restartPolicy"]
    name, image = one.name or f"container-{index}", one.value.get("image") or "unknown"
    return {
        "name": name,
        "image": image,
        "resources": {**resources, **({"claims": list(claims)} if claims else {})},
        **kept,
    }


def _works(env: Environment, pods: Iterable[FoundPod]) -> Iterator[Workload]:
    for pod, name in _named(pods):
        kind = pod.document.kind
        gpus = pod.resources(labels.NVIDIA_PREFIX)
        pool, resource = _pool(env, pod), next(iter(gpus), "")
        count = _count(pod)
        values: dict[str, Any] = {
            "name": name,
            "namespace": pod.document.namespace(DEFAULT),
            "pool": pool,
            "cpu": _quantity(max(0.001, pod.total("cpu"))),
            "memory": _quantity(max(1, pod.total("memory"))),
            **gpu_keys(resource, pod.total(resource) if resource else 0),
            "queue": pod_needs.queue(env, pod.document.namespace(DEFAULT)),
            "image": "",
        }
        model = _KINDS[kind] if _is_native(pod.document) else DeploymentWorkload
        spec = mapping_at(pod.document.value, pod.at[:-2])
        if model is JobWorkload:
            values |= {"kind": "job", "parallelism": count, "completions": spec.get("completions")}
        elif model is PodWorkload:
            values |= {"kind": "pod"}
        else:
            values |= {"kind": "statefulset" if kind == "StatefulSet" else "deployment", "replicas": count}
        yield model.model_construct(**values)


def gpu_keys(resource: str, amount: float) -> dict[str, Any]:
    """What a workload of this GPU resource has under ``count`` and ``slice``; both None without one."""
    slices = resource.removeprefix(labels.NVIDIA_MIG_PREFIX).removesuffix(labels.SHARED)
    return {
        "count": round(amount) if resource else None,
        "slice": slices if resource.startswith(labels.NVIDIA_MIG_PREFIX) else None,
    }


def _pool(env: Environment, pod: FoundPod) -> str | None:
    """The only pool on which it can run; None if there are several, or none."""
    gpus = pod.resources(labels.NVIDIA_PREFIX)
    if not gpus and not mapping_at(pod.spec, ("nodeSelector",)):
        return None
    offering = placement.offering(env, gpus)
    names = [pool.name for pool in offering if placement.selects(env, pool, pod.spec)]
    return names[0] if len(names) == 1 else None


def _named(pods: Iterable[FoundPod]) -> Iterator[tuple[FoundPod, str]]:
    """Each with the name of the object that makes its pods here."""
    pods = list(pods)
    several = Counter(id(pod.document) for pod in pods)
    index: Counter[int] = Counter()
    for pod in pods:
        document = pod.document
        if _is_native(document):
            yield pod, _name(document)
            continue
        number = index[id(document)]
        index[id(document)] += 1
        suffix = f"-{number}" if several[id(document)] > 1 else ""
        yield pod, f"{document.kind.lower()}-{_name(document)}{suffix}"


def _count(pod: FoundPod) -> int:
    return 1 if pod.count is None else pod.count


def _quantity(amount: float) -> str:
    return f"{amount:.3f}".rstrip("0").rstrip(".")


def _name(document: Document) -> str:
    return document.name.rstrip("-")


def _title(document: Document) -> str:
    return f"{document.kind} {document.namespace(DEFAULT)}/{_name(document)}"


def _notes(everything: Sequence[Document], pods: Sequence[FoundPod]) -> Iterator[str]:
    custom = Counter(pod.document.kind for pod in pods if not _is_native(pod.document))
    if custom:
        yield f"controllers of {', '.join(custom)}: each of their pod templates is a Deployment"
    if runtimes := sorted({_title(pod.document) for pod in pods if not pod.has_template}):
        yield f"the runtime is taken to tolerate the pools' taints: of {', '.join(runtimes)}"
    unknown = sorted({_title(pod.document) for pod in pods if pod.count is None})
    if unknown:
        yield f"the number of pods that something else sets: one each, of {', '.join(unknown)}"
    left = Counter(
        document.kind
        for document in everything
        if document.kind not in _BESIDE and not any(pod.document is document for pod in pods)
    )
    if left:
        kinds = ", ".join(sorted(left))
        yield f"{count_of(left.total(), 'object')} of the manifests that place no pod: not applied ({kinds})"
