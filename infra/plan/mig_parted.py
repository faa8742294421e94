"""The pools' MIG layouts in mig-parted's own format: which GPUs of a node are cut, and how."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from infra.model.base.fields import short_digest
from infra.model.gpu.models import Gpu
from infra.model.pool import mig_config
from infra.model.pool.layouts import resolve
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Dra, Mig

Manifest = dict[str, Any]
Entries = list[Manifest]


def config(pools: Iterable[Pool]) -> Manifest | None:
    """The pools' layouts in mig-parted's own format; None without a MIG-capable GPU."""
    pools = list(pools)
    names: dict[str, dict[str, Entries]] = {mig_config.DISABLED: {}}
    for pool in pools:
        name = mig_config.config_name(pool)
        if name is not None and name != mig_config.DISABLED:
            for gpu in pool.gpus:
                names.setdefault(name, {})[gpu.device_filter] = _mig_entries(gpu, pool)
    if not any(gpu.mig_capable for pool in pools for gpu in pool.gpus):
        return None
    configs = {name: _per_device(entries) for name, entries in sorted(names.items())}
    return {"version": "v1", "mig-configs": configs}


def content(pool: Pool) -> str | None:
    """Hash (eight digits) of the content of a layout with a chosen name; else None."""
    if not (isinstance(pool.sharing, Mig) and pool.sharing.name):
        return None
    return short_digest(json.dumps([[gpu.device_filter, _mig_entries(gpu, pool)] for gpu in pool.gpus]))


def _mig_entries(gpu: Gpu, pool: Pool) -> Entries:
    devices = mig_config.mig_devices(pool)
    layout = pool.sharing.layout if isinstance(pool.sharing, Mig | Dra) else None
    slices = dict(sorted(resolve(gpu, layout).items()))
    if devices is None:
        return [{"devices": "all", "mig-enabled": True, "mig-devices": slices}]
    uncut = [index for index in range(pool.gpu_count) if index not in devices]
    return [
        {"devices": list(devices), "mig-enabled": True, "mig-devices": slices},
        {"devices": uncut, "mig-enabled": False},
    ]


def _per_device(models: Mapping[str, Entries]) -> Entries:
    if not models:
        return [{"devices": "all", "mig-enabled": False}]
    groups: dict[str, list[str]] = {}
    for device in sorted(models):
        groups.setdefault(json.dumps(models[device]), []).append(device)
    if len(groups) == 1:
        return list(json.loads(next(iter(groups))))
    return [
        {"device-filter": devices, **entry} for text, devices in groups.items() for entry in json.loads(text)
    ]
