"""Alerts about pods and pools: pending pods, allocated but idle GPUs, full GPUs and pools.

Figures, all our choice: below 2 % for two hours is idle; a time-sliced GPU is full above 95 % of its memory,
because nothing keeps one pod from taking the rest. Under MPS each pod has its own part of the memory, so a
full GPU is not a problem there.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.scheduling import PLACEHOLDER
from infra.model.sharing import Mig, TimeSlicing
from infra.plan import room
from infra.plan.rules.alert import NOTHING, POOL_WHERE, Alert
from infra.plan.rules.attribution import POD_REQUESTED, POD_USED
from infra.plan.rules.capacity import REASON, ROOM
from infra.plan.rules.devices import MEMORY_TOTAL, MEMORY_USED
from infra.plan.rules.facts import DEVICE_PART
from infra.plan.rules.promql import most, one_of, set_label

_POD = "pod {{ $labels.namespace }}/{{ $labels.pod }}"


def alerts(env: Environment) -> Iterator[Alert]:
    """Alerts about pods, then about pools."""
    yield from _waiting()
    yield from _held(env)
    yield Alert(
        name="GpuNodePoolAtLimit",
        severity="warning",
        wait="15m",
        expr=f"{ROOM} < 1",
        means="An elastic pool cannot get another node: one of its limits is reached.",
        summary="pool {{ $labels.pool }} is at its limit of {{ $labels.resource_type }}"
        "{{ if ne $labels.nodepool $labels.pool }} (NodePool {{ $labels.nodepool }}){{ end }}",
        description="Pods that do not fit stay pending until others end. Raise elastic.max of pool "
        "{{ $labels.pool }}, or keep the limit if it is intended.",
    )
    yield _spare(env)


def _waiting() -> Iterator[Alert]:
    yield Alert(
        name="GpuPodPending",
        severity="warning",
        wait="10m",
        expr=f'{REASON}{{reason!="fragmented"}} or {_quota()}',
        means="A pod is pending because it gets no GPU; the label reason says why.",
        summary="{{ $labels.namespace }}/{{ or $labels.pod $labels.deployment }} waits for a GPU: "
        "{{ $labels.reason }}",
        description="{{ if $labels.pod }}It requests {{ $value }} {{ $labels.resource }}.{{ else }}Its pods "
        "are rejected.{{ end }} The runbook says what to do for each reason.",
    )
    yield Alert(
        name="GpuFragmentation",
        severity="warning",
        wait="10m",
        expr=f'{REASON}{{reason="fragmented"}}',
        means="Enough GPUs are free for a pending pod, but not on a single node.",
        summary=f"{_POD} is pending: enough {{{{ $labels.resource }}}} are free, but not on one node",
        description="It requests {{ $value }} at once. Pack pods (scheduling.packer), move some, or request "
        "fewer.",
    )


def _quota() -> str:
    """Deployments with rejected pods, in namespaces that have used up a GPU quota."""
    keys = ("namespace", "resourcequota", "resource")
    used, hard = (
        most(keys, f'kube_resourcequota{{resource=~"requests.nvidia.com/.+",type="{kind}"}}')
        for kind in ("used", "hard")
    )
    full = f"max by (namespace) ({used} >= {hard})"
    failing = 'kube_deployment_status_condition{condition="ReplicaFailure",status="true"} == 1'
    refused = most(("namespace", "deployment"), failing)
    return set_label(f"({refused} and on (namespace) {full})", "reason", "quota")


def _held(env: Environment) -> Iterator[Alert]:
    pods = f'{POD_REQUESTED}{{namespace!="{PLACEHOLDER}"}}'
    yield Alert(
        name="GpuAllocatedIdle",
        severity="info",
        wait="2h",
        expr=f"{POD_USED} < 0.02 * {pods}",
        means="A pod holds a GPU and has not used it for two hours; usually a notebook left open.",
        summary=f"{_POD} holds a GPU on node {{{{ $labels.node }}}} and does not use it",
        description=f"Ask its owner whether to end it. {POOL_WHERE} Sharing: {{{{ $labels.sharing }}}}.",
    )
    shared = [pool.name for pool in env.pools if _takes_turns(pool)]
    matcher = f'{{pool=~"{one_of(shared)}"}}'
    full = f"{MEMORY_USED}{matcher} / {MEMORY_TOTAL}{matcher} > 0.95"
    part = f"max by (pool,GPU_I_PROFILE,resource) ({DEVICE_PART})"
    by_resource = (
        f"max by (node,pool,resource) (({full}) + on (pool,GPU_I_PROFILE) group_left (resource) 0 * {part})"
    )
    who = f"(0 * {pods} + on (node,pool,resource) group_left () {by_resource})"
    yield Alert(
        name="GpuSharedMemoryNearlyFull",
        severity="warning",
        wait="10m",
        expr=who if shared else NOTHING,
        means="The memory of a time-sliced GPU is nearly full; one alert for each pod that may be on it.",
        summary=f"memory of a GPU that {_POD} shares on node {{{{ $labels.node }}}} is nearly full",
        description="{{ $value | humanizePercentage }} is in use. Any of its pods can take the rest: "
        f"the others then fail. {POOL_WHERE} `gpuform top` lists the pods.",
    )


def _takes_turns(pool: Pool) -> bool:
    """Whether several pods share one memory without limits."""
    sharing = pool.sharing
    return isinstance(sharing, TimeSlicing) or (isinstance(sharing, Mig) and sharing.share is not None)


def _spare(env: Environment) -> Alert:
    terms = []
    for one in room.placeholders(env):
        name, pool = one["metadata"]["name"], one["spec"]["template"]["spec"]["nodeSelector"]
        matcher = f'{{namespace="{PLACEHOLDER}",deployment="{name}"}}'
        there = f"(max(kube_deployment_status_replicas_available{matcher}) or 0 * max(kube_node_info))"
        missing = f"({one['spec']['replicas']} - {there}) > 0"
        named = set_label(f"({missing})", "deployment", name)
        terms.append(set_label(named, "pool", next(iter(pool.values()))))
    return Alert(
        name="GpuSpareGone",
        severity="warning",
        wait="30m",
        expr=" or ".join(terms) or NOTHING,
        means="A pool keeps fewer nodes free than declared (spare).",
        summary="pool {{ $labels.pool }} has too few spare nodes: {{ $value }} placeholder pods are pending",
        description="The next pods wait until a node is launched. Check the pool's limits and the status of "
        "Karpenter's NodeClaims.",
    )
