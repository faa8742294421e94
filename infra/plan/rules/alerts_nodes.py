"""Alerts about nodes and their GPU components: exporter, device plugin, MIG manager, driver.

New nodes and nodes that are not ready are left out: the cluster's own alerts cover them, and the startup
taint has an alert of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.model.labels import DRIVER_UPGRADE_STATE, GPU_NOT_READY, MIG_CONFIG_STATE
from infra.plan.rules.alert import POOL_WHERE, Alert
from infra.plan.rules.capacity import ALLOCATABLE, READY
from infra.plan.rules.devices import TEMPERATURE, UTILISATION
from infra.plan.rules.facts import NODE_DECLARED, NODE_GPUS
from infra.plan.rules.promql import NODE_INFO, label, most
from infra.plan.sharing import NAMESPACE

_AT_REST = "upgrade-done|upgrade-required|upgrade-failed"
_NODE = "node {{ $labels.node }}"
_NEW = f'kube_node_spec_taint{{key="{GPU_NOT_READY}"}}'
_PLUGIN = f'namespace="{NAMESPACE}",pod=~"nvidia-device-plugin.*"'
_POOL = f"* on (node) group_left (pool) {NODE_INFO}"


def alerts() -> Iterator[Alert]:
    """Alerts about missing metrics, then offered resources, then MIG and driver changes."""
    yield from _blind()
    yield from _offers()
    yield from _changes()


def _blind() -> Iterator[Alert]:
    yield Alert(
        name="GpuDcgmExporterAbsent",
        severity="warning",
        wait="10m",
        expr=f"({NODE_GPUS} > 0) and on (node) {READY} unless on (node) {TEMPERATURE} "
        f"unless on (node) {UTILISATION} unless on (node) {_NEW} and on () count({UTILISATION})",
        means="A node with GPUs has no GPU metrics, while others have.",
        summary=f"no GPU metrics from {_NODE}",
        description="Its dcgm-exporter is missing, does not answer, or finds no GPU. Faults of its GPUs are "
        f"not detected. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuMonitoringBlind",
        severity="critical",
        wait="10m",
        expr=f"count({NODE_GPUS} > 0 and on (node) {READY} unless on (node) {_NEW}) "
        f"unless on () count({UTILISATION}) unless on () count({TEMPERATURE})",
        means="There are nodes with GPUs, but no GPU metrics at all.",
        summary="no GPU metrics at all, although {{ $value }} nodes have GPUs",
        description="No dcgm-exporter is found, or none answers: check Prometheus' targets. Until then no "
        "alert about GPUs can fire, and no GPU is repaired.",
    )
    yield Alert(
        name="GpuStateMetricsAbsent",
        severity="warning",
        wait="10m",
        expr="absent(kube_node_info)",
        means="kube-state-metrics does not answer, so pools, requests and node states are unknown.",
        summary="no cluster state: kube-state-metrics does not answer",
        description="GPUs are still measured, but not by pool, and no alert about nodes and pods can fire.",
    )


def _offers() -> Iterator[Alert]:
    fewer = f"{NODE_DECLARED} - on (node,pool,resource) {ALLOCATABLE} > 0"
    none = f"{NODE_DECLARED} unless on (node,pool,resource) {ALLOCATABLE}"
    yield Alert(
        name="GpuNodeOffersFewer",
        severity="warning",
        wait="15m",
        expr=f"(({fewer}) or ({none})) and on (node) {READY} unless on (node) {_NEW}",
        means="A node offers fewer units of a resource than its pool declares.",
        summary=f"{_NODE} offers {{{{ $value }}}} {{{{ $labels.resource }}}} fewer than pool "
        "{{ $labels.pool }} declares",
        description="The device plugin has removed unhealthy GPUs, or offers other resources than declared. "
        "Pods that request them may stay pending.",
    )
    restarts = f"increase(kube_pod_container_status_restarts_total{{{_PLUGIN}}}[15m])"
    waiting = f'kube_pod_container_status_waiting_reason{{{_PLUGIN},reason="CrashLoopBackOff"}} == 1'
    pods = ("namespace", "pod")
    where = f'max by (namespace,pod,node) (kube_pod_info{{{_PLUGIN},node!=""}})'
    failing = f"({most(pods, restarts)} > 2 or {most(pods, waiting)})"
    yield Alert(
        name="GpuDevicePluginCrashLooping",
        severity="critical",
        wait="5m",
        expr=f"({where} * on (namespace,pod) group_left () {failing}) {_POOL}",
        means="The device plugin of a node is crash-looping: the node offers no GPU.",
        summary=f"the device plugin of {_NODE} is crash-looping",
        description="Running pods are not affected; new ones get no GPU there. See the log of pod "
        f"{{{{ $labels.namespace }}}}/{{{{ $labels.pod }}}}. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuStartupTaintStuck",
        severity="warning",
        wait="20m",
        expr=f"{most(('node',), _NEW)} {_POOL}",
        means=f"A node still has its startup taint {GPU_NOT_READY}: its GPUs are not ready.",
        summary=f"the GPUs of {_NODE} are not ready after 20 minutes",
        description="The node's annotation gpuform.io/gpu-waits-for says what the readiness gate waits for. "
        f"{POOL_WHERE}",
    )


def _state(key: str, matcher: str) -> str:
    """Nodes by the state in one of their labels; all other labels are dropped."""
    name = f"label_{label(key)}"
    states = f'label_replace(kube_node_labels{{{name}{matcher}}},"state","$1","{name}","(.+)")'
    return f"{most(('node', 'state'), states)} {_POOL}"


def _changes() -> Iterator[Alert]:
    yield Alert(
        name="GpuMigConfigFailed",
        severity="critical",
        wait="2m",
        expr=_state(MIG_CONFIG_STATE, '="failed"'),
        means="A node's GPUs could not be partitioned as its MIG label says.",
        summary=f"the MIG layout of {_NODE} failed",
        description="The node offers its previous resources, or none. The MIG manager's log says why. "
        f"{POOL_WHERE}",
    )
    yield Alert(
        name="GpuMigConfigPending",
        severity="warning",
        wait="30m",
        expr=_state(MIG_CONFIG_STATE, '=~"pending|rebooting"'),
        means="A node's MIG layout has been changing for half an hour.",
        summary=f"the MIG layout of {_NODE} has been {{{{ $labels.state }}}} for 30 minutes",
        description=f"Usually a pod still uses one of its GPUs, or the reboot did not happen. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuDriverUpgradeFailed",
        severity="critical",
        wait="2m",
        expr=_state(DRIVER_UPGRADE_STATE, '="upgrade-failed"'),
        means="The driver of a node could not be upgraded; the node stays cordoned.",
        summary=f"the driver upgrade of {_NODE} failed",
        description=f"The operator does not retry by itself. The driver pod's log says why. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuDriverUpgradeStuck",
        severity="warning",
        wait="1h",
        expr=_state(DRIVER_UPGRADE_STATE, f'!~"{_AT_REST}|"'),
        means="A driver upgrade has been in one step for an hour. Nodes waiting for their turn do not count.",
        summary=f"the driver upgrade of {_NODE} has been in step {{{{ $labels.state }}}} for an hour",
        description="The step's name says what it waits for: jobs, a drain, the driver, the validator. "
        f"{POOL_WHERE}",
    )
