"""What runs on a cluster now, as a rehearsal begins with it: its nodes, and the pods on them.

Of an existing cluster each node is simulated with its labels, its taints, and what DaemonSets leave of it; of
other kinds the nodes are as declared. The scheduler places the pods anew, each on its present node if it fits
there. Of a pod only what decides on that is kept: no image, command, variable or volume.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuform.adopt import gpus
from gpuform.adopt.objects import Found, well_formed
from gpuform.checkout.errors import InputError
from gpuform.checkout.listing import abbreviate, count_of
from gpuform.kubernetes.kinds import NODE, POD
from gpuform.kubernetes.pods import Controller, by_controller
from gpuform.usage.nodes import CPU, MEMORY_GIB, Node, parse_node, parse_pod
from infra import versions
from infra.model.base import labels, namespaces
from infra.model.base.fields import short_digest
from infra.model.base.labels import NODE_STATE, NVIDIA_PREFIX
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.gpu.models import Gpu
from infra.model.platform import monitoring
from infra.model.pool.pool import Pool
from infra.model.workload.workload import DeploymentWorkload
from infra.plan import quotas, sharing
from infra.plan.manifest import Manifest, label_in, manifest
from infra.plan.nodes import bare_node
from lab.rehearse import foreign
from lab.rehearse.foreign import Foreign
from lab.rehearse.nodes import simulated_nodes

KINDS = (NODE, POD)
_NOT_KEPT = (NVIDIA_PREFIX, "feature.node.kubernetes.io/", "gpuform.io/")
"""Labels and taints that the platform sets."""
_PLACED_BY = ("nodeSelector", "affinity", "topologySpreadConstraints", "hostNetwork")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Running:
    """Simulated nodes, none if they are as declared, and the pods as a rehearsal starts them.

    Those of one controller are one Deployment: what a quota refuses is then a result, and no failure.
    """

    nodes: tuple[Manifest, ...]
    pods: Foreign


@dataclass
class _Names:
    """Names as they are, or hashed with a key that is forgotten with the run, but those of the stack file.

    ``hosts`` has the hostname by the node's name.
    """

    hashed: bool
    kept: frozenset[str]
    hosts: Mapping[str, str]
    key: str = field(default_factory=lambda: secrets.token_hex(16))

    def of(self, kind: str, name: str) -> str:
        if not self.hashed or name in self.kept:
            return name
        return f"{kind}-{short_digest(f'{self.key}/{kind}/{name}')}"

    @cached_property
    def renamed_hosts(self) -> Mapping[str, str]:
        return {host: self.of("node", host) for host in self.hosts.values()}

    def host(self, node: str) -> str:
        """The hostname of a node by its name."""
        return self.of("node", self.hosts.get(node, node))


def read(env: Environment, found: Found, hashed: bool = False) -> Running:
    """InputError if pods may not be listed, none runs there, or an object is damaged."""
    with well_formed("--from"):
        return _read(env, found, hashed)


def _read(env: Environment, found: Found, hashed: bool) -> Running:
    if POD in found.denied:
        raise InputError("--from", "its credentials may not list pods", "use others, or give a dump")
    kept = {item["metadata"]["name"] for item in quotas.namespaces(env)} | {"default"}
    kept |= {value for pool in env.pools for value in (pool.selector or {}).values()}
    hosts = {item["metadata"]["name"]: _hostname(item) for item in found.all(NODE)}
    names = _Names(hashed, frozenset({*kept, *(work.namespace for work in env.workloads)}), hosts)
    bound = [pod for pod in found.all(POD) if _is_bound(pod)]
    if not bound:
        raise InputError("--from", "no pod runs there", "dump `nodes,pods` of all namespaces, with -A")
    pools = _pools(env, found.all(NODE)) if simulated_nodes(env).by_selector else {}
    staying: dict[str, list[Json]] = {}
    for pod in bound:
        if _is_daemon(pod) or _is_clusters_own(env, pod):
            staying.setdefault(_spec(pod)["nodeName"], []).append(pod)
    nodes = tuple(
        _node(env, item, pools[name], staying.get(name, ()), names)
        for item in found.all(NODE)
        if (name := item["metadata"]["name"]) in pools
    )
    rest = [pod for pod in bound if not _is_daemon(pod) and not _is_platform(env, pod)]
    reasons = [(pod, _cannot(pod, pools)) for pod in rest]
    groups = by_controller([pod for pod, why in reasons if not why])
    number = Counter(why for _, why in reasons if why)
    notes = [f"pods that run now, started anew: {len(rest) - number.total()}"]
    notes += [f"not started: {count_of(count, 'pod')} {why}" for why, count in sorted(number.items())]
    plain = [item for item in found.all(NODE) if pools.get(item["metadata"]["name"], item) is None]
    with_gpus = [item["metadata"]["name"] for item in plain if gpus.has_gpus(parse_node(item))]
    if without := sorted(names.of("node", name) for name in with_gpus):
        notes.append(f"in no pool, simulated without GPUs: {abbreviate(without)}")
    own = {(work.namespace, work.name) for work in env.workloads}
    taken = Counter([*own, *((owner.namespace, owner.name) for owner in groups)])
    titles = {owner: _title(owner, taken, names) for owner in groups}
    deployments = (_deployment(pods, titles[key], names) for key, pods in groups.items())
    works = tuple(_work(pods, titles[key], pools) for key, pods in groups.items())
    pods = [pod for pods in groups.values() for pod in pods]
    return Running(nodes, Foreign((*_beside(env, pods, names), *deployments), works, tuple(notes)))


def _title(owner: Controller, taken: Counter[tuple[str, str]], names: _Names) -> tuple[str, str]:
    """Namespace and name of its Deployment here, which no other and no workload of the stack has."""
    is_shared = taken[owner.namespace, owner.name] > 1
    name = f"{owner.name}-{owner.kind.lower()}" if is_shared else owner.name
    return names.of("namespace", owner.namespace), names.of("pods", name)


def _is_bound(pod: Json) -> bool:
    return bool(_spec(pod).get("nodeName")) and (pod.get("status") or {}).get("phase") not in (
        "Succeeded",
        "Failed",
    )


def _spec(pod: Json) -> Json:
    spec: Json = pod.get("spec") or {}
    return spec


def _is_daemon(pod: Json) -> bool:
    """Whether the node itself brings it: by a DaemonSet, or as a static pod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def _is_stacks_own(env: Environment, pod: Json) -> bool:
    own: bool = (pod["metadata"].get("labels") or {}).get(labels.ENVIRONMENT) == env.name
    return own


def _is_clusters_own(env: Environment, pod: Json) -> bool:
    """Whether it is of the cluster's system, as its DNS is, and not of the stack."""
    return not _is_stacks_own(env, pod) and pod["metadata"]["namespace"].startswith(namespaces.OF_CLUSTER)


def _is_platform(env: Environment, pod: Json) -> bool:
    """Whether the stack brings it, or the cluster's own system."""
    namespace = pod["metadata"]["namespace"]
    measures = env.installs_prometheus and namespace == monitoring.NAMESPACE
    return _is_stacks_own(env, pod) or measures or namespaces.is_reserved(namespace)


def _cannot(pod: Json, pools: Mapping[str, Pool | None]) -> str:
    """Why it is not started; empty if it is."""
    node = _spec(pod)["nodeName"]
    if _spec(pod).get("resourceClaims"):
        return "with claims (DRA)"
    if pools and node not in pools:
        return "on nodes that are not listed"
    if pools and pools[node] is None and any(key.startswith(NVIDIA_PREFIX) for key in _requests(pod)):
        return "with GPUs of nodes that belong to no pool"
    return ""


def _requests(pod: Json) -> dict[str, float]:
    return dict(parse_pod(pod, "").requests)


def _hostname(node: Json) -> str:
    meta = node["metadata"]
    return str((meta.get("labels") or {}).get(labels.HOSTNAME, meta["name"]))


def _pools(env: Environment, nodes: Iterable[Json]) -> dict[str, Pool | None]:
    """The pool of each node, by its selector."""
    metadata = [item["metadata"] for item in nodes]
    return {meta["name"]: env.selecting_pool(meta.get("labels") or {}) for meta in metadata}


def _node(
    env: Environment, item: Json, pool: Pool | None, staying: Sequence[Json], names: _Names
) -> Manifest:
    """The node with what pods that stay leave, and the GPUs of its pool."""
    live = parse_node(item)
    used: Counter[str] = Counter()
    for pod in staying:
        used.update(_requests(pod))
    cores, gib = (max(0.0, live.offers.get(key, 0) - used[key]) for key in (CPU, MEMORY_GIB))
    model, count = _gpus(live, pool) if pool and pool.gpus else (None, 0)
    size = max(1, int(cores)), max(1, int(gib))
    machine = Machine(
        live.machine or "node", "own", *size, model.name if model else None, count, declared_gpu=model
    )
    name = names.of("node", live.name)
    tags = {
        key: value
        for key, value in live.labels.items()
        if not key.startswith(_NOT_KEPT) or key in ((pool.selector or {}) if pool else ())
    }
    result = bare_node(env, pool, machine, name, {})
    meta = result["metadata"]
    meta["labels"] = dict(sorted({**meta["labels"], **tags, labels.HOSTNAME: names.host(live.name)}.items()))
    pods = item.get("status", {}).get("allocatable", {}).get("pods", "110")
    meta["annotations"] |= {
        labels.SIM_CPU: f"{int(cores * 1000)}m",
        labels.SIM_MEMORY: f"{int(gib * 1024)}Mi",
        labels.SIM_PODS: str(max(1, int(pods) - len(staying))),
    }
    if model and env.ownership.driver != "operator":
        meta["annotations"][labels.SIM_HOST_DRIVER] = versions.GPU_DRIVER
    spec = item.get("spec") or {}
    platform = sharing.pool_taints(env, pool) if pool else ()
    keys = {taint["key"] for taint in platform}
    taints = [
        taint
        for taint in spec.get("taints") or ()
        if taint["key"] not in keys and not taint["key"].startswith((*_NOT_KEPT, NODE_STATE))
    ]
    fields = {"taints": taints, "unschedulable": spec.get("unschedulable")}
    return {**result, "spec": {key: value for key, value in fields.items() if value}}


def _gpus(live: Node, pool: Pool) -> tuple[Gpu, int]:
    """Model and number of the node's GPUs: by its labels if the pool has such a model, else as declared."""
    try:
        found = gpus.read_gpus(live, {}, ())
    except InputError:
        return pool.gpus[0], pool.gpu_count
    same = [gpu for gpu in pool.gpus if gpu.name == found.model]
    return (same[0], found.count) if same else (pool.gpus[0], pool.gpu_count)


def _beside(env: Environment, pods: Iterable[Json], names: _Names) -> Iterator[Manifest]:
    """Namespaces and priority classes of the pods that the stack does not create."""
    own = {item["metadata"]["name"] for item in quotas.namespaces(env)} | {"default"}
    pods = list(pods)
    found = {names.of("namespace", pod["metadata"]["namespace"]) for pod in pods} - own
    yield from (manifest("Namespace", {"name": name}) for name in sorted(found))
    classes = {name: _spec(pod).get("priority", 0) for pod in pods if (name := _priority_class(pod))}
    for name, value in sorted(classes.items()):
        if name not in env.priorities:
            yield manifest("PriorityClass", {"name": name}, "scheduling.k8s.io/v1", value=value)


def _priority_class(pod: Json) -> str:
    name = str(_spec(pod).get("priorityClassName") or "")
    return "" if name.startswith("system-") else name


def _deployment(pods: Sequence[Json], title: tuple[str, str], names: _Names) -> Manifest:
    """As many pods as run now, each as the first."""
    spec = _spec(pods[0])
    kept = {key: _renamed(spec[key], names.renamed_hosts) for key in _PLACED_BY if spec.get(key)}
    expressions = [label_in(labels.HOSTNAME, sorted({names.host(_spec(pod)["nodeName"]) for pod in pods}))]
    preferred = {"weight": 100, "preference": {"matchExpressions": expressions}}
    affinity = kept.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(preferred)
    tags = {
        key: value
        for key, value in (pods[0]["metadata"].get("labels") or {}).items()
        if not key.startswith("gpuform.io/") and "kueue" not in key
    }
    tolerations = [
        one for one in spec.get("tolerations") or () if not str(one.get("key") or "").startswith(NODE_STATE)
    ]
    init = [_container(one) for one in spec.get("initContainers") or ()]
    priority = _priority_class(pods[0])
    content = {
        **kept,
        **({"priorityClassName": priority} if priority else {}),
        **({"initContainers": init} if init else {}),
        "containers": [_container(one) for one in spec["containers"]],
        "tolerations": tolerations,
        "automountServiceAccountToken": False,
    }
    return foreign.deployment(*title, len(pods), tags, content)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def _container(container: Json) -> Manifest:
    """Its requests of cores, memory and GPUs; simulated nodes offer nothing else."""
    given = container.get("resources") or {}
    resources = {
        key: {
            name: amount
            for name, amount in (given.get(key) or {}).items()
            if name in ("cpu", "memory") or name.startswith(NVIDIA_PREFIX)
        }
        for key in ("requests", "limits")
    }
    kept = {key: container[key] for key in ("ports", "restartPolicy") if container.get(key)}
    return {"name": container["name"], "image": "not-started", "resources": resources, **kept}


def _work(
    pods: Sequence[Json], title: tuple[str, str], pools: Mapping[str, Pool | None]
) -> DeploymentWorkload:
    """What counts them; the pool is that of the present node, if they have a GPU."""
    requests = _requests(pods[0])
    resource = next((key for key in requests if key.startswith(NVIDIA_PREFIX)), "")
    pool = pools.get(_spec(pods[0])["nodeName"])
    return DeploymentWorkload.model_construct(
        namespace=title[0],
        name=title[1],
        kind="deployment",
        replicas=len(pods),
        pool=pool.name if pool and resource else None,
        cpu=f"{max(1, int(requests.get(CPU, 0) * 1000))}m",
        memory=f"{max(1, int(requests.get(MEMORY_GIB, 0) * 1024))}Mi",
        image="",
        **foreign.gpu_keys(resource, requests.get(resource, 0)),
    )
