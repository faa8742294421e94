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
        means="A node with GPUs shows no measurement of them, while others do.",
        summary=f"no GPU measurements from {_NODE}",
        description="Its dcgm-exporter is not there, does not answer, or sees no GPU. Faults of its GPUs go "
        f"unseen. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuMonitoringBlind",
        severity="critical",
        wait="10m",
        expr=f"count({NODE_GPUS} > 0 and on (node) {READY} unless on (node) {_NEW}) "
        f"unless on () count({UTILISATION}) unless on () count({TEMPERATURE})",
        means="There are nodes with GPUs, and not one measurement of a GPU.",
        summary="no measurement of any GPU, and {{ $value }} nodes have some",
        description="No dcgm-exporter is found or answers: look at Prometheus' targets. No alert on GPUs can "
        "fire meanwhile, and nothing repairs a GPU.",
    )
    yield Alert(
        name="GpuStateMetricsAbsent",
        severity="warning",
        wait="10m",
        expr="absent(kube_node_info)",
        means="kube-state-metrics does not answer, so pools, requests and node states are not known.",
        summary="no state of the cluster: kube-state-metrics does not answer",
        description="GPUs are measured still, but not by pool, and no alert about nodes and pods can fire.",
    )


def _offers() -> Iterator[Alert]:
    fewer = f"{NODE_DECLARED} - on (node,pool,resource) {ALLOCATABLE} > 0"
    none = f"{NODE_DECLARED} unless on (node,pool,resource) {ALLOCATABLE}"
    yield Alert(
        name="GpuNodeOffersFewer",
        severity="warning",
        wait="15m",
        expr=f"(({fewer}) or ({none})) and on (node) {READY} unless on (node) {_NEW}",
        means="A node offers fewer units of a resource than its pool says.",
        summary=f"{_NODE} offers {{{{ $value }}}} {{{{ $labels.resource }}}} fewer than pool "
        "{{ $labels.pool }} says",
        description="The device plugin has taken sick GPUs out, or offers something else than declared. "
        "Pods may wait for what is missing.",
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
        means="The device plugin of a node ends again and again: the node offers no GPU.",
        summary=f"the device plugin of {_NODE} does not stay up",
        description="Pods that run are not touched; new ones find no GPU there. Its log says why, pod "
        f"{{{{ $labels.namespace }}}}/{{{{ $labels.pod }}}}. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuStartupTaintStuck",
        severity="warning",
        wait="20m",
        expr=f"{most(('node',), _NEW)} {_POOL}",
        means=f"A node keeps its startup taint {GPU_NOT_READY}: its GPUs are not proven yet.",
        summary=f"{_NODE} has not proven its GPUs for 20 minutes",
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
        means="A node's GPUs could not be cut as its label says.",
        summary=f"the MIG layout of {_NODE} failed",
        description="The node offers what it did before, or nothing. The MIG manager's log says why. "
        f"{POOL_WHERE}",
    )
    yield Alert(
        name="GpuMigConfigPending",
        severity="warning",
        wait="30m",
        expr=_state(MIG_CONFIG_STATE, '=~"pending|rebooting"'),
        means="A node's GPUs are being cut for half an hour.",
        summary=f"the MIG layout of {_NODE} is {{{{ $labels.state }}}} for 30 minutes",
        description=f"As a rule a pod still holds one of its GPUs, or the reboot did not come. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuDriverUpgradeFailed",
        severity="critical",
        wait="2m",
        expr=_state(DRIVER_UPGRADE_STATE, '="upgrade-failed"'),
        means="The driver of a node could not be upgraded; the node stays cordoned.",
        summary=f"the driver upgrade of {_NODE} failed",
        description=f"The operator does not try again by itself. The driver pod's log says why. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuDriverUpgradeStuck",
        severity="warning",
        wait="1h",
        expr=_state(DRIVER_UPGRADE_STATE, f'!~"{_AT_REST}|"'),
        means="A driver upgrade stays in one step for an hour. Nodes that wait for their turn do not count.",
        summary=f"the driver upgrade of {_NODE} is in step {{{{ $labels.state }}}} for an hour",
        description="The step's name says what it waits for: jobs, a drain, the driver, the validator. "
        f"{POOL_WHERE}",
    )
