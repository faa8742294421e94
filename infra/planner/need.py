"""What the pods of one workload need of GPUs and nodes.

Classes are those of CERN's talk on GPU sharing: latency-sensitive (CAD), interactive (notebooks),
performance-intensive (simulation), low-priority (CI runners).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Class = Literal["latency", "interactive", "performance", "low_priority"]


@dataclass(frozen=True)
class Need:
    """What each of ``replicas`` pods needs, with every default.

    ``memory_mib``: MiB of each GPU. ``cpu``: millicores, ``ram_mib``: MiB of the node, ``huge_mib``: of them
    in huge pages in addition; ``efa``: adapters. ``models`` and ``pools``: GPU models and pools of the stack
    that may serve it, all if None. ``now``: the resource that a stack's workload requests today, empty for
    others. ``compute``: 0 for no requirement.

    ``rate``: requests per second of all pods together, in place of ``replicas``, if it serves;
    ``measured``: what one pod does of them, by MIG profile or ``whole``.
    """

    name: str
    replicas: int = 1
    memory_mib: int = 0
    compute: float = 0.0
    unbounded: bool = False
    workload_class: Class = "performance"
    trust: str = ""
    models: frozenset[str] | None = None
    count: int = 1
    cpu: int = 0
    ram_mib: int = 0
    efa: float = 0
    huge_mib: float = 0
    interruptible: bool = False
    pools: tuple[str, ...] | None = None
    now: str = ""
    rate: float = 0.0
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def room(self) -> dict[str, float]:
        """What a pod takes of a node beside the GPU."""
        node = {"cpu": self.cpu, "memory": self.ram_mib, "pods": 1}
        return node | {"efa": self.efa, "hugepages": self.huge_mib}

    @property
    def amount(self) -> float:
        return self.rate or float(self.replicas)
