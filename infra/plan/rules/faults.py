"""GPU faults, one series each: the only faults that alerts and the health loop read.

They come from series of dcgm-exporter's own job alone: a fault may cost a node.
XIDs come from the exporter's count over its window, 5 minutes, held for 5 minutes more so that a restart of
the exporter does not end a fault. If an exporter has no count, a change of its gauge of the last XID is used:
it misses an XID that occurs twice, but there is no other source. Contained uncorrectable errors (XID 94) are
the application's, and not a fault of their own. A GPU counts as lost if the node's exporter answers, and has
not reported for three minutes a GPU that it reported within the hour.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.model import xid
from infra.plan.rules.devices import TEMPERATURE
from infra.plan.rules.promql import RANGE, Rule, dcgm, most, one_of, record, recorded, set_label, with_pool
from infra.plan.scraping import JOB

ACTIVE = "gpuform:fault:active"
CONTAINED = 94
UNKNOWN = "xid_unknown"
_GPU = ("node", "gpu", "UUID")
_COUNT, _LAST = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS"
_HERE = "3m"
"""Maximum age of the last sample of a present GPU; a shorter range may have no sample of it."""


def rules() -> Iterator[Rule]:
    """The recording rule of all current faults, with the node's pool if it has one."""
    found = [_xids(), _fault(_ecc(), "reset", "ecc"), _fault(_row_remap(), "replace", "row_remap")]
    found.append(_fault(_lost(), "replace", "gpu_lost"))
    every = " or ".join(f"({one})" for one in found)
    yield record(ACTIVE, with_pool(every))


def _fault(gpus: str, kind: xid.Class, reason: str) -> str:
    return set_label(set_label(f"group by (node,gpu,UUID) ({gpus})", "class", kind), "reason", reason)


def _xids() -> str:
    counted = dcgm(_COUNT, 'xid!="",xid!="0"', "max_over_time")
    counted = f"group by (node,gpu,UUID,xid) ({counted} > 0)"
    # The XID is a label of its gauge as well: a new XID is a new series, not a changed value.
    now, before = most(_GPU, dcgm(_LAST)), most(_GPU, f"{dcgm(_LAST)} offset {RANGE}")
    changed = f"({now} != 0) and ({now} != {before})"
    last = f'group by (node,gpu,UUID,xid) (count_values by (node,gpu,UUID) ("xid", {changed}))'
    found = f"{counted} or ({last} unless on (node) {dcgm(_COUNT)})"
    found = set_label(set_label(f"({found})", "class", "informational"), "reason", UNKNOWN)
    for kind in xid.CLASSES:
        known = one_of(map(str, xid.numbers(kind)))
        found = f'label_replace({found},"class","{kind}","xid","{known}")'
        found = f'label_replace({found},"reason","xid","xid","{known}")'
    return found


def _ecc() -> str:
    """With or after an error the GPU's pod may change: its name is a label, so the series changes too."""
    name, window = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "15m"
    grown = most(_GPU, dcgm(name, over="increase", window=window))
    now, before = most(_GPU, dcgm(name)), most(_GPU, f"{dcgm(name)} offset {window}")
    contained = dcgm(_COUNT, f'xid="{CONTAINED}"', "max_over_time", window)
    return f"({grown} > 0 or {now} > {before}) unless on (node,gpu) ({contained} > 0)"


def _row_remap() -> str:
    return f"{most(_GPU, dcgm('DCGM_FI_DEV_ROW_REMAP_FAILURE'))} > 0"


def _lost() -> str:
    """Groups are evaluated at least every two minutes (``monitoring.interval``), each at its own time."""
    was = most(_GPU, f"last_over_time({recorded(TEMPERATURE)}[1h])")
    recently = f"last_over_time({recorded(TEMPERATURE)}[{_HERE}])"
    # A new sample may not be recorded yet, after a time without an exporter or a Prometheus.
    now = dcgm("DCGM_FI_DEV_GPU_TEMP")
    gone = f"{was} unless on (node,gpu) {recently} unless on (node,gpu) {now}"
    up = f'up{{job="{JOB}",node!=""}}'
    # An exporter answers before its first query of DCGM, and then reports no GPU.
    answers = f"min by (node) (min_over_time({up}[{RANGE}])) == 1 and on (node) {up} offset 1m"
    return f"({gone}) and on (node) ({answers})"
