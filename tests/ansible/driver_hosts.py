from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuform.hosts.runner import run
from tests.bed import Bed, Host

OLD, NEW = "580.82.07", "580.95.05"
BOOT = "cut -d' ' -f22 /proc/1/stat"  # boot_id is the machine's around the bed, and never changes


def declared(bed: Bed, version: str, names: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """The inventory of all or some of the bed's hosts, with one T4 each and driver ``version``."""
    found = bed.inventory()
    variables = {
        "gpuform_environment": "bed",
        "gpuform_pool": "t4",
        "validate_inventory_gpu": {"model": "T4", "product": "Tesla T4", "count": 1},
        "nvidia_driver_source": "nvidia",
        "nvidia_driver_version": version,
        "nvidia_driver_branch": version.split(".")[0],
        "nvidia_driver_modules": "open",
        "nvidia_driver_product": "Tesla T4",
        "nvidia_driver_count": 1,
        "nvidia_driver_repository": bed.repository.variables,
        "nvidia_driver_boot_time_command": BOOT,
        **more,
    }
    hosts = {
        name: {**given, **variables}
        for name, given in found["_meta"]["hostvars"].items()
        if not names or name in names
    }
    groups = ("kube_node", "gpu", "pool_t4")
    return {
        "_meta": {"hostvars": hosts},
        "all": {"children": list(groups)},
        **{group: {"hosts": list(hosts)} for group in groups},
    }


def upgrade(inventory: dict[str, Any], **options: Any) -> Any:
    return run("upgrade-driver.yml", inventory, **options)


def boot(host: Host) -> str:
    """A value that changes at every boot of the host."""
    return host.out(BOOT)


def version(host: Host) -> str:
    return host.out("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
