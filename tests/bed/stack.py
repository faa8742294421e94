"""An environment of own hosts for a bed, as a user would write it: a stack file, and its inventory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from infra.config import load
from infra.inventory import inventory
from tests.bed.bed import Bed

DRIVER = "580.95.05"
TOOLKIT = "1.19.1"


def environment(bed: Bed, pools: Sequence[Mapping[str, Any]] = (), **cluster: Any) -> dict[str, Any]:
    """A T4 pool of all of the bed's hosts, or ``pools``; packages come from the bed's repository.

    In ``pools``, hosts are names in the bed, or what an environment has; ``cluster`` overrides fields of the
    environment's cluster.
    """
    address = {host.name: {"name": host.name, "address": host.address} for host in bed.hosts}
    given = pools or [{"name": "t4", "hosts": list(address), "gpu": {"models": ["T4"], "count": 1}}]
    repository = bed.repository.settings
    settings: dict[str, Any] = {
        "kind": "hosts",
        "user": "root",
        "private_key": str(bed.key),
        "known_hosts": str(bed.known_hosts),
        "driver": {"source": "nvidia", "version": DRIVER, "repository": repository},
        "toolkit": {"version": TOOLKIT, "repository": repository},
    }
    placed = [{**pool, "hosts": [address.get(str(host), host) for host in pool["hosts"]]} for pool in given]
    return {"name": "bed", "cluster": {**settings, **cluster}, "pools": placed}


def write(path: Path, result: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({"config": {"gpuform:environment": dict(result)}}, sort_keys=False))
    return path


def listing(bed: Bed, pools: Sequence[Mapping[str, Any]] = (), **cluster: Any) -> dict[str, Any]:
    file = write(bed.folder / "Pulumi.bed.yaml", environment(bed, pools, **cluster))
    result: dict[str, Any] = json.loads(json.dumps(inventory(load(file))))
    return result
