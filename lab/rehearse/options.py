"""Options of a rehearsal besides placing the stack's pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.adopt.objects import Found
from gpuform.checkout.errors import InputError
from infra.model.base.fields import listing
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan.node_groups import cluster_of
from lab.rehearse.cloud.market import Shortage

CAPACITIES = ("on-demand", "spot", "reserved")


@dataclass(frozen=True)
class Options:
    """``timeout_s`` limits each wait; ``reservations_left``: how many instances each reservation has left."""

    workloads: Path | None = None
    manifests: tuple[Path, ...] = ()
    """Files and folders with pods that gpuform does not declare."""
    running: Found | None = None
    """Nodes and pods of a cluster as they are now, which the rehearsal begins with."""
    hash_names: bool = False
    """Whether names of those are hashed in all output."""
    timeout_s: float = 300.0
    shrink: bool = True
    shortages: tuple[Shortage, ...] = ()
    reservations_left: tuple[tuple[str, int], ...] = ()
    interrupt_spot: bool = False
    qps: tuple[float, ...] = ()
    """Requests per second of each scaled workload, one after another."""
    real_operator: bool = False
    """Whether NVIDIA's own operator and NFD run, instead of simulated ones."""

    def check(self, env: Environment) -> None:
        """Refuse an option that this environment cannot use. Raises InputError."""
        values = {
            "--short": self.shortages,
            "--reservation-used": self.reservations_left,
            "--interrupt-spot": self.interrupt_spot,
        }
        options = [name for name, value in values.items() if value]
        pools = [pool for pool in env.pools if pool.by_karpenter]
        if self.real_operator and env.gpu_operator.mode == "device_plugin":
            raise InputError("--operator real", f"stack {env.name} has no operator", "leave it out")
        if options and not pools:
            raise InputError(options[0], f"Karpenter launches no nodes for stack {env.name}", "leave it out")
        if self.shortages:
            _check_short(pools, cluster_of(env).network.zones, self.shortages)
        _check_reservations(pools, self.reservations_left)
        if self.interrupt_spot and not any("spot" in pool.node_pools.values() for pool in env.pools):
            raise InputError("--interrupt-spot", "no pool uses spot capacity", "leave it out")


def _check_short(pools: Iterable[Pool], zones: Sequence[str], shortages: Iterable[Shortage]) -> None:
    machines = sorted({machine.name for pool in pools for machine in pool.machines})
    for shortage in shortages:
        path = f"--short {shortage.machine}"
        if shortage.machine not in ("*", *machines):
            raise InputError(path, "no Karpenter pool uses this machine", listing(machines, shortage.machine))
        if shortage.zone not in ("*", *zones):
            remedy = listing(zones, shortage.zone)
            raise InputError(f"{path}:{shortage.zone}", "is not a zone of the stack", remedy)


def _check_reservations(pools: Iterable[Pool], reservations_left: Iterable[tuple[str, int]]) -> None:
    known = sorted({id for pool in pools for id in pool.aws_settings.reservations})
    for name, _ in reservations_left:
        if name not in known:
            remedy = listing(known, name) if known else "leave it out"
            fact = "is not a reservation of a Karpenter pool"
            raise InputError(f"--reservation-used {name}", fact, remedy)


def parse_shortage(text: str) -> Shortage:
    """``MACHINE[:ZONE[:CAPACITY]]``. Raises InputError."""
    parts = text.split(":")
    path = f"--short {text}"
    if len(parts) > 3 or not all(parts):
        raise InputError(path, "is not MACHINE[:ZONE[:CAPACITY]]", "as in p5.48xlarge:us-west-2b")
    if len(parts) == 3 and parts[2] not in ("*", *CAPACITIES):
        raise InputError(path, f"{parts[2]!r} is not a capacity type", listing(CAPACITIES, parts[2]))
    return Shortage(*parts)


def parse_reservation_left(text: str) -> tuple[str, int]:
    """``ID[=LEFT]``: a reservation and how many of its instances are left. Raises InputError."""
    name, _, left = text.partition("=")
    if not name or (left and not left.isdecimal()):
        raise InputError(f"--reservation-used {text}", "is not ID[=LEFT]", "as in cr-0123456789abcdef0=1")
    return name, int(left or 0)
