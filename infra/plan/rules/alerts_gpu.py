"""Alerts about GPU hardware except XIDs: memory, temperature, power, links, and lost GPUs.

Figures. 85 C: below where the GPUs of the catalogue slow down, so that it fires before the throttling alert;
our choice. 256 rows: half of the 512 that an A100 can remap [NVIDIA, GPU memory error management].
Throttling: DCGM's counters of time spent (nanoseconds), or its count of clock events if those are not
exported. Fabric manager: DCGM's field if exported (4 is failure, 5 is not recognised); on pools with
NVSwitches also the operator's validator if it cannot start CUDA: a fabric manager that does not run is the
first cause to check, though not the only one.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.model.drivers import needs_fabric_manager
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan.rules.alert import GPU_WHERE, POOL_WHERE, Alert
from infra.plan.rules.devices import REMAPPED, TEMPERATURE
from infra.plan.rules.faults import ACTIVE
from infra.plan.rules.promql import NODE_INFO, dcgm, most, one_of, with_pool
from infra.plan.sharing import NAMESPACE

_HOT_C = 85
_MANY_ROWS = 256
_NANOSECONDS = 1_000_000_000
_TRY = "3m"
"""Longer than one try of the validator until it fails, and much shorter than the alert's ``for``."""
_KEYS = ("node", "gpu", "UUID")
_ROWS = ("node", "pool", "gpu", "UUID")


def alerts(env: Environment) -> Iterator[Alert]:
    """Alerts about GPU hardware, memory first."""
    yield from _memory()
    yield from _throttling()
    yield _links()
    yield _fabric(env)
    yield Alert(
        name="GpuLost",
        severity="critical",
        expr=f'{ACTIVE}{{reason="gpu_lost"}}',
        means="A GPU that its node reported within the past hour has been missing for three minutes.",
        summary=f"{GPU_WHERE} is missing",
        description="The node's exporter answers, but does not report the GPU. Drain the node and reboot it; "
        f"replace the GPU or the machine if the GPU stays missing. {POOL_WHERE}",
    )


def _memory() -> Iterator[Alert]:
    yield Alert(
        name="GpuEccUncorrectable",
        severity="critical",
        expr=f'{ACTIVE}{{reason="ecc"}}',
        means="New uncorrectable memory errors that were not contained: results may be wrong.",
        summary=f"uncorrectable memory errors: {GPU_WHERE} needs a reset",
        description="Programs on it may have computed with wrong data. Drain the node and reset the GPU. "
        f"{POOL_WHERE}",
    )
    yield Alert(
        name="GpuRowRemapFailed",
        severity="critical",
        expr=f'{ACTIVE}{{reason="row_remap"}}',
        means="A bad memory row could not be remapped: no spare row is left, the GPU must be replaced.",
        summary=f"no spare memory rows: {GPU_WHERE} must be replaced",
        description=f"Drain the node and have the GPU replaced. {POOL_WHERE}",
    )
    flags = ("DCGM_FI_DEV_ROW_REMAP_PENDING", "DCGM_FI_DEV_RETIRED_PENDING")
    flagged = " or ".join(f"{most(_KEYS, dcgm(flag))} > 0" for flag in flags)
    grown = f"{most(_ROWS, f'increase({REMAPPED}[1h])')} > 0"
    yield Alert(
        name="GpuRowRemapPending",
        severity="warning",
        expr=f"{with_pool(flagged)} or {grown}",
        means="A bad memory row (before Ampere: page) is taken out of use by the next reset; the GPU works.",
        summary=f"{GPU_WHERE} has a bad memory row: reset it when it is idle",
        description=f"New pods may start on it meanwhile. {POOL_WHERE}",
    )
    yield Alert(
        name="GpuRowsRemappedMany",
        severity="warning",
        expr=f"{most(_ROWS, REMAPPED)} > {_MANY_ROWS}",
        means=f"More than {_MANY_ROWS} memory rows are remapped, half of the spare rows of a GPU.",
        summary=f"{GPU_WHERE} has {{{{ $value }}}} remapped memory rows: plan to replace it",
        description=f"The GPU works, but will run out of spare rows. {POOL_WHERE}",
    )


def _throttling() -> Iterator[Alert]:
    yield Alert(
        name="GpuTemperatureHigh",
        severity="warning",
        wait="10m",
        expr=f"{TEMPERATURE} > {_HOT_C}",
        means=f"A GPU is hotter than {_HOT_C} C; it will be throttled.",
        summary=f"{GPU_WHERE} is at {{{{ $value }}}} C",
        description=f"Check the fans, the air flow and the neighbours in the rack. {POOL_WHERE}",
    )
    for name, counter, events, least, severity, wait, means, then in (
        (
            "GpuThermalThrottling",
            "DCGM_FI_DEV_THERMAL_VIOLATION",
            "sw_thermal|hw_thermal",
            0.05,
            "warning",
            "10m",
            "because it is too hot",
            "Check the cooling; pods on this GPU run slower than elsewhere.",
        ),
        (
            "GpuPowerThrottling",
            "DCGM_FI_DEV_POWER_VIOLATION",
            "hw_power_brake",
            0.5,
            "info",
            "30m",
            "at its power limit",
            "This is usual under full load. Check the power supply if only this GPU is affected.",
        ),
    ):
        spent = f"{most(_KEYS, dcgm(counter, over='rate'))} / {_NANOSECONDS}"
        counted = dcgm("DCGM_EXP_CLOCK_EVENTS_COUNT", f'clock_event=~"{events}"')
        other = f"({most(_KEYS, counted)} > 0) unless on (node,gpu) {dcgm(counter)}"
        yield Alert(
            name=name,
            severity="warning" if severity == "warning" else "info",
            wait=wait,
            expr=with_pool(f"({spent} > {least}) or ({other})"),
            means=f"A GPU is throttled {means}, for more than {least:.0%} of the time.",
            summary=f"{GPU_WHERE} is throttled {means}",
            description=f"{then} {POOL_WHERE}",
        )


def _links() -> Alert:
    parts = []
    for kind, least in (("RECOVERY", 0), ("REPLAY", 10), ("CRC_DATA", 10)):
        grown = dcgm(f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL", over="increase", window="10m")
        parts.append(f"{most(_KEYS, grown)} > {least}")
    return Alert(
        name="GpuNvlinkErrors",
        severity="warning",
        expr=with_pool(" or ".join(parts)),
        means="An NVLink had to be recovered, or repeated more than 10 transfers, within ten minutes.",
        summary=f"NVLink errors: {GPU_WHERE}",
        description="Jobs on several GPUs slow down or fail. Drain the node and reset its GPUs; have the "
        f"board inspected if the errors recur. {POOL_WHERE}",
    )


def _fabric(env: Environment) -> Alert:
    status = f"{most(_KEYS, dcgm('DCGM_FI_DEV_FABRIC_MANAGER_STATUS'))}"
    expression = with_pool(f"({status} == 4 or {status} == 5)")
    if pools := [pool.name for pool in env.pools if has_nvswitch(pool)]:
        # The validator waits between tries, and each try is a new pod: neither may restart the ``for``.
        waits = (
            "kube_pod_init_container_status_waiting_reason{"
            f'namespace="{NAMESPACE}",container="cuda-validation",reason="CrashLoopBackOff"}}[{_TRY}]'
        )
        waiting = f"max by (namespace,pod) (max_over_time({waits}) == 1)"
        there = f'last_over_time(kube_pod_info{{namespace="{NAMESPACE}",node!=""}}[{_TRY}])'
        where = f"max by (namespace,pod,node) ({there})"
        nodes = f"max by (node) ({where} * on (namespace,pod) group_left () {waiting})"
        expression += f' or {nodes} * on (node) group_left (pool) {NODE_INFO}{{pool=~"{one_of(pools)}"}}'
    return Alert(
        name="GpuFabricManagerFailed",
        severity="critical",
        wait="5m",
        expr=expression,
        means="The fabric manager of a node with NVSwitches does not work, or CUDA does not start there.",
        summary="the fabric manager of node {{ $labels.node }} is not working",
        description="No program can use the node's GPUs. Check the service nvidia-fabricmanager there: its "
        f"version must match the driver's. {POOL_WHERE}",
    )


def has_nvswitch(pool: Pool) -> bool:
    """Whether the pool's machines link their GPUs by NVSwitches."""
    return bool(pool.gpus) and all(needs_fabric_manager(gpu, pool.gpu_counts[-1]) for gpu in pool.gpus)
