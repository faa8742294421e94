"""Judges the pods of manifests against the pools of a stack; asks no cluster.

Only what cannot run, or not as it is meant, is a finding; what depends on things that the stack file does
not say (a CPU pod's node, labels that others set) is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuform.manifests import adapters, capacity, placement, security
from gpuform.manifests.documents import Document, Keys, entries, mapping_at
from gpuform.manifests.edit import Addition
from gpuform.manifests.finding import Finding
from gpuform.manifests.pods import FoundPod, claim_classes
from infra.model.base import labels
from infra.model.base.namespaces import SYSTEM
from infra.model.environment import Environment
from infra.model.placement import node_resources
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan import pod_needs, pod_security, sharing
from infra.plan.manifest import tolerates, unique
from infra.plan.queues import FRAMEWORKS

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_MIB = 2**20
_GROUPS = {"deployment": "apps/deployment", "pod": "/pod", "statefulset": "apps/statefulset"}
_BY_KUEUE = {_GROUPS.get(name, name) for name in FRAMEWORKS} | {"batch/cronjob"}
"""Groups and kinds, in small letters, that get their queue by their own label; of a CronJob its Jobs do."""


@dataclass
class Judgement:
    """All findings, in the order of the documents, and the pods with GPUs that were found."""

    findings: list[Finding] = field(default_factory=list)
    pods: list[FoundPod] = field(default_factory=list)


def judge(
    env: Environment, pods: Iterable[FoundPod], documents: Iterable[Document], default_namespace: str
) -> Judgement:
    """Judge pods; ``documents`` are all that were given, claims and autoscalers included."""
    documents, result = list(documents), Judgement()
    classes = claim_classes(documents)
    levels = pod_security.levels(env)
    for pod in pods:
        namespace = pod.document.namespace(default_namespace)
        if pod.document.kind == "DaemonSet" and namespace in SYSTEM:
            continue  # of the platform
        judged = _Pod(env, pod, namespace, levels.get(namespace), pod.claimed(classes))
        result.findings += judged.findings()
        if judged.uses_gpus:
            result.pods.append(pod)
    scaling = capacity.scalers(documents, default_namespace)
    result.findings += capacity.findings(env, result.pods, scaling)
    result.findings.sort(key=lambda one: (one.document.file, one.document.index, one.document.at))
    return result


class _Pod:
    def __init__(
        self,
        env: Environment,
        pod: FoundPod,
        namespace: str,
        level: str | None,
        claimed: frozenset[str],
    ) -> None:
        self._env, self._pod, self._namespace, self._level = env, pod, namespace, level
        self._resources = pod.resources(labels.NVIDIA_PREFIX)
        self._claimed = claimed & {labels.GPU_DEVICE_CLASS, labels.MIG_DEVICE_CLASS}
        self.uses_gpus = bool(self._resources or self._claimed)

    def findings(self) -> Iterator[Finding]:
        has_adapters = bool(self._pod.resources(labels.RDMA_PREFIX))
        yield from adapters.findings(self._env, self._pod, self._resources)
        if self.uses_gpus or has_adapters:
            yield from self._amounts()
        if not self.uses_gpus:
            yield from self._without_gpus()
            yield from self._security() if has_adapters else ()
            return
        offering = placement.offering(self._env, self._resources) if self._resources else []
        if self._resources and not offering:
            yield from self._not_offered()
            return
        if not self._resources:
            offering = [pool for pool in self._env.pools if self._claimed <= {*allocatable.claimable(pool)}]
            if not offering:
                fact = f"no pool has devices of class {' and '.join(sorted(self._claimed))} for claims"
                remedy = "request a resource that a pool offers, or give a pool sharing: {kind: dra}"
                yield self._error((*self._pod.at, "resourceClaims"), fact, remedy)
                return
        chosen = [pool for pool in offering if placement.selects(self._env, pool, self._pod.spec)]
        if not chosen:
            yield self._not_selected(offering)
        pools = chosen or offering
        yield from self._counts(pools)
        if large_enough := [pool for pool in pools if self._has_enough(pool)]:
            pools = large_enough
            chosen = [pool for pool in chosen if pool in large_enough]
        yield from self._room(pools)
        yield from self._queue()
        if self._pod.has_template:
            yield from self._taints(pools)
            yield from self._fields()
            if len({pool.gpus for pool in chosen}) > 1:
                yield self._several(chosen)
            yield from self._security()

    def _error(self, keys: Keys, fact: str, remedy: str, *additions: Addition) -> Finding:
        return Finding(self._pod.document, keys, "error", fact, remedy, additions)

    def _warning(self, keys: Keys, fact: str, remedy: str, *additions: Addition) -> Finding:
        return Finding(self._pod.document, keys, "warning", fact, remedy, additions)

    # What it requests

    def _without_gpus(self) -> Iterator[Finding]:
        for container in self._pod.containers:
            for index, variable in enumerate(entries(container.value, "env")):
                if isinstance(variable, Mapping) and variable.get("name") == VISIBLE:
                    value = variable.get("value")
                    if value not in ("void", "none", ""):
                        keys = (*container.at[:-1], "env", index)
                        fact = f"sets {VISIBLE}={value} and requests no GPU: it takes what others were given"
                        yield self._error(
                            keys, fact, f"request {self._offered_names()}, without the variable"
                        )
        if self._pod.document.kind == "DaemonSet":
            return
        for index, toleration in enumerate(entries(self._pod.spec, "tolerations")):
            gpu = self._env.gpu_operator.taint
            if gpu is None or not self._has_gpu_taint() or not isinstance(toleration, Mapping):
                continue
            if toleration.get("key") == gpu.key:
                fact = (
                    f"tolerates {gpu.key} and requests no GPU: its pods may take the room of nodes with GPUs"
                )
                remedy = f"leave it out, or request {self._offered_names()}"
                yield self._warning((*self._pod.at, "tolerations", index), fact, remedy)

    def _has_gpu_taint(self) -> bool:
        return any(pool.gpus for pool in self._env.pools)

    def _offered_names(self) -> str:
        names = sorted({name for pool in self._env.pools for name in allocatable.gpu_resources(pool)})
        return " or ".join(names) or "a claim"

    def _not_offered(self) -> Iterator[Finding]:
        offered = {name for pool in self._env.pools for name in allocatable.gpu_resources(pool)}
        unknown = [name for name in self._resources if name not in offered]
        for name in unknown:
            keys = self._keys_of(name)
            yield self._error(keys, f"no pool offers {name}", f"request {self._offered_names()}")
        if not unknown:
            names = " and ".join(sorted(self._resources))
            fact = f"no pool offers {names} on the same node"
            yield self._error(self._keys_of(min(self._resources)), fact, "use a pod for each")

    def _keys_of(self, name: str) -> Keys:
        return self._resources[name].keys_of(name)

    def _amounts(self) -> Iterator[Finding]:
        """The API server refuses other amounts of an extended resource (pkg/apis/core/validation)."""
        for container in self._pod.containers:
            if not mapping_at(container.value, ("resources",)):
                continue  # its kind has a field of its own
            for name in sorted({*container.limits, *container.requests}):
                if not name.startswith((labels.NVIDIA_PREFIX, labels.RDMA_PREFIX)):
                    continue
                limit, request = container.limits.get(name), container.requests.get(name)
                if limit is None:
                    assert request is not None
                    keys = (*container.at, "limits", name)
                    value = container.value["resources"]["requests"][name]
                    addition = Addition(self._pod.document, keys, value)
                    fact = f"{name} is requested without a limit, which the API server refuses"
                    yield self._error(keys, fact, f"add limits: {{{name}: {value}}}", addition)
                elif request is not None and request != limit:
                    fact = f"the request of {request:g} is not the limit of {limit:g}"
                    yield self._error((*container.at, "requests", name), fact, "give both the same value")
                if not float(limit or request or 0).is_integer():
                    fact = f"{limit or request:g} is no whole number of {name}"
                    remedy = f"use 1, and a pool with shared GPUs: {self._offered_names()}"
                    remedy = remedy if name.startswith(labels.NVIDIA_PREFIX) else "use 1"
                    yield self._error((*container.at, "limits", name), fact, remedy)

    def _counts(self, pools: Sequence[Pool]) -> Iterator[Finding]:
        for name in sorted(self._resources):
            wanted = int(self._pod.total(name))
            most = max(allocatable.max_resources(pool).get(name, 0) for pool in pools)
            where = f"of pool {pools[0].name}" if len(pools) == 1 else "of these pools"
            if wanted > most:
                fact = f"a pod requests {wanted} {name}, and a node {where} has {most}"
                yield self._error(self._keys_of(name), fact, f"request {most} or less per pod")
            elif wanted > max(allocatable.most_per_pod(pool, name) for pool in pools):
                fact = f"a pod requests {wanted} {name}; the device plugin gives one share {where} to a pod"
                remedy = "request 1: more shares are not more of the GPU; or choose a pool with whole GPUs"
                yield self._error(self._keys_of(name), fact, remedy)

    def _has_enough(self, pool: Pool) -> bool:
        most = allocatable.max_resources(pool)
        return all(self._pod.total(name) <= most.get(name, 0) for name in self._resources)

    # Where it may run

    def _not_selected(self, offering: Sequence[Pool]) -> Finding:
        keys, why = placement.mismatch(self._env, offering, self._pod.spec)
        what = " and ".join(sorted(self._resources)) or "claims"
        names = ", ".join(pool.name for pool in offering)
        fact = f"selects no pool with {what}: {why}"
        remedy = (
            f"select {labels.POOL}: {offering[0].name}" if len(offering) == 1 else f"pools with it: {names}"
        )
        return self._error((*self._pod.at, *keys), fact, remedy)

    def _several(self, chosen: Sequence[Pool]) -> Finding:
        listed = ", ".join(f"{pool.name} ({', '.join(gpu.name for gpu in pool.gpus)})" for pool in chosen)
        remedy = f"if that matters, set nodeSelector: {{{labels.POOL}: {chosen[0].name}}}"
        what = " and ".join(sorted(self._resources)) or "a claim"
        return self._warning((*self._pod.at, "nodeSelector"), f"{what} may be of pools {listed}", remedy)

    def _taints(self, pools: Sequence[Pool]) -> Iterator[Finding]:
        missing = {pool.name: self._untolerated(pool) for pool in pools}
        if all(missing.values()):
            same = unique(taint for taints in missing.values() for taint in taints)
            every = all(len(taints) == len(same) for taints in missing.values())
            tolerations = [item for pool in pools for item in self._tolerations(pool, missing[pool.name])]
            keys = (*self._pod.at, "tolerations")
            listed = ", ".join(dict.fromkeys(_taint_text(taint) for taint in same))
            nodes = (
                f"the nodes of pool {pools[0].name} have"
                if len(pools) == 1
                else "the nodes of these pools have"
            )
            if every:
                addition = Addition(self._pod.document, keys, unique(tolerations))
                yield self._error(
                    keys, f"{nodes} the taint {listed}", "add a toleration (--fix does)", addition
                )
            else:
                each = "; ".join(
                    f"{name} {', '.join(map(_taint_text, taints))}" for name, taints in missing.items()
                )
                yield self._error(
                    keys, f"no pool's taints are tolerated: {each}", "choose one, and tolerate its"
                )

    def _untolerated(self, pool: Pool) -> list[dict[str, str]]:
        selected = mapping_at(self._pod.spec, ("nodeSelector",)).get(labels.POOL)
        added = pod_needs.added_tolerations(self._env, self._resources, selected)
        tolerations = [*entries(self._pod.spec, "tolerations"), *added]
        return [
            taint
            for taint in sharing.pool_taints(self._env, pool)
            if taint["effect"] != "PreferNoSchedule"
            and not any(tolerates(item, taint) for item in tolerations if isinstance(item, Mapping))
            and not pod_needs.tolerated_at_admission(self._env, taint, self._resources)
        ]

    def _tolerations(self, pool: Pool, taints: Sequence[Mapping[str, str]]) -> Iterator[dict[str, str]]:
        needed = [(taint["key"], taint["effect"]) for taint in taints]
        for toleration in sharing.pod_tolerations(self._env, [pool]):
            if (toleration["key"], toleration["effect"]) in needed:
                yield toleration

    def _room(self, pools: Sequence[Pool]) -> Iterator[Finding]:
        """CPU and memory above what the largest node leaves; nothing where a machine is not known."""
        free = []
        for pool in pools:
            machines = node_resources.node_machines(self._env, pool)
            if not machines:
                return
            free += [node_resources.free_resources(self._env, pool, machine) for machine in machines]
        cpu, memory = self._pod.total("cpu"), self._pod.total("memory")
        if any(room.cpu >= cpu * 1000 and room.memory * _MIB >= memory for room in free):
            return
        most = max(free, key=lambda room: (room.cpu, room.memory))
        if cpu * 1000 > most.cpu:
            name, fact = (
                "cpu",
                f"a pod requests {cpu:g} cores, and the largest node leaves {most.cpu / 1000:g}",
            )
        else:
            room = max(item.memory for item in free)
            name, fact = (
                "memory",
                f"a pod requests {memory / _MIB:.0f}Mi, and the largest node leaves {room}Mi",
            )
        container = max(self._pod.containers, key=lambda one: one.requests.get(name, one.limits.get(name, 0)))
        keys = (*container.at, "requests" if name in container.requests else "limits", name)
        yield self._error(keys, f"{fact} beside kubelet and DaemonSets", "request less per pod")

    # What else it needs

    def _fields(self) -> Iterator[Finding]:
        if self._env.admission == "fix" and self._resources:
            return
        needed = pod_needs.fields(self._env, [], bool(self._resources), bool(self._claimed))
        facts = {
            "runtimeClassName": "without this RuntimeClass its containers see no GPU on these nodes",
            "schedulerName": "the stack packs pods with GPUs by a scheduler of its own, and not this one",
        }
        for key, value in needed.items():
            if self._pod.spec.get(key) or (self._pod.can_have and key not in self._pod.can_have):
                continue
            keys = (*self._pod.at, key)
            addition = Addition(self._pod.document, keys, value)
            make = self._error if key == "runtimeClassName" else self._warning
            yield make(keys, facts[key], f"add {key}: {value}", addition)

    def _queue(self) -> Iterator[Finding]:
        queue = pod_needs.queue(self._env, self._namespace)
        if queue is None:
            return
        own: Keys = ("metadata", "labels")
        kind = self._pod.document.kind
        if kind == "CronJob":
            own = ("spec", "jobTemplate", "metadata", "labels")
        group = str(self._pod.document.value.get("apiVersion") or "").rpartition("/")[0]
        at = own if f"{group}/{kind.lower()}" in _BY_KUEUE else self._pod.labels_at
        found = mapping_at(self._pod.document.value, own).get(labels.QUEUE) or self._pod.labels.get(
            labels.QUEUE
        )
        if found == queue:
            return
        keys = (*(at or own), labels.QUEUE)
        if found:
            fact = f"namespace {self._namespace} has no queue {found}, so it would never be admitted"
            yield self._error(keys, fact, f"use {queue}")
            return
        fact = f"namespace {self._namespace} has queue {queue}, and these pods take GPUs past it"
        if at is None:
            yield self._warning(
                own, fact, f"Kueue does not manage {kind} here: label its pods {labels.QUEUE}"
            )
            return
        addition = Addition(self._pod.document, keys, queue)
        yield self._warning(keys, fact, f"add the label {labels.QUEUE}: {queue}", addition)

    def _security(self) -> Iterator[Finding]:
        level = self._level
        for keys, fact in security.violations(self._pod, level) if level else ():
            remedy = "the API server refuses such pods there: change it, or use a namespace of your own"
            yield self._error(
                keys, f"{fact}, and namespace {self._namespace} has Pod Security {level}", remedy
            )


def _taint_text(taint: Mapping[str, str]) -> str:
    return f"{taint['key']}={taint['value']}:{taint['effect']}"
