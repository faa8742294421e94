"""What one pod is guaranteed of a GPU for each way to share it, and which demands that suits.

The costs are from published measurements:

- A part of the streaming multiprocessors (SMs): time = SERIAL + (1 - SERIAL) / part, relative to the whole
  GPU. SERIAL is fitted to CERN's 12 times of 7g.40gb, 3g.20gb, 2g.10gb and 1g.5gb (26.365 to 542.3 s for 5,
  10 and 15 million particles), which it meets within 2 %. In MIG mode an A100 has 98 of its 108 SMs, 14 in
  each compute slice; other GPUs with seven compute slices are counted alike, those with four lose none.
- Time-slicing: n busy processes take n times as long, and SWITCHING times that, whatever n is (CERN: 37.9,
  38.2 and 38.6 % for two, no further loss for four and eight). An idle neighbour costs nothing.
- MPS: two language models on one A100 had 7.5 % less throughput than on two.

Sharing rules: NVIDIA's pages on time-slicing and MPS, as in ``infra.model.pool.sharing``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from infra.model.gpu.mig import Profile, is_plain
from infra.model.gpu.models import Gpu
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, Mps, TimeSlicing
from infra.model.workload import matching
from infra.planner.latency import SMS_IN_MIG_MODE, WHOLE
from infra.planner.need import Need

SERIAL = 0.105
SWITCHING = 1.37
MPS_SPEED = 0.925
_MOST_REPLICAS = 64
"""Shares of a GPU that are considered; CERN measured 8."""

How = Literal["exclusive", "mig", "mps", "time_slicing"]
NAMES: dict[How, str] = {
    "exclusive": "whole GPU",
    "mig": "MIG",
    "mps": "MPS",
    "time_slicing": "time-slicing",
}


@dataclass(frozen=True)
class Part:
    """What one pod has: ``memory_mib``, and ``compute`` as its throughput relative to a whole GPU.

    ``replicas``: pods on the GPU. ``profile``: the MIG profile, empty without MIG.
    """

    how: How
    memory_mib: int
    compute: float
    replicas: int = 1
    profile: str = ""

    @property
    def isolated(self) -> bool:
        return self.how in ("exclusive", "mig")

    @property
    def text(self) -> str:
        if self.profile:
            return self.profile
        return NAMES[self.how] if self.replicas == 1 else f"1/{self.replicas} {NAMES[self.how]}"


def throughput(sms: float) -> float:
    """Throughput with this part of the SMs (0 to 1), relative to the whole GPU."""
    return 1 / (SERIAL + (1 - SERIAL) / sms)


def whole(gpu: Gpu) -> Part:
    return Part("exclusive", gpu.memory_mib, 1.0)


def mig_slice(gpu: Gpu, profile: Profile) -> Part:
    assert gpu.geometry is not None
    sms = profile.compute / gpu.geometry.compute
    if gpu.geometry.compute == 7:
        sms *= SMS_IN_MIG_MODE
    return Part("mig", gpu.slice_mib(profile), throughput(sms), profile=profile.name)


def time_slice(gpu: Gpu, replicas: int) -> Part:
    """The memory is what remains for each if all take the same; nothing enforces it."""
    return Part("time_slicing", gpu.memory_mib // replicas, 1 / (SWITCHING * replicas), replicas)


def mps_client(gpu: Gpu, replicas: int) -> Part:
    return Part("mps", gpu.memory_mib // replicas, MPS_SPEED / replicas, replicas)


def guaranteed(pool: Pool, gpu: Gpu, resource: str) -> Part:
    """What one unit of a pool's resource is today."""
    sharing = pool.sharing
    if isinstance(sharing, Mig) and (profile := matching.profile_of(pool, gpu, resource)):
        part = mig_slice(gpu, profile)
        if sharing.share is None:
            return part
        count = sharing.share.replicas
        return Part(
            "time_slicing", part.memory_mib // count, part.compute / SWITCHING / count, count, part.profile
        )
    if isinstance(sharing, TimeSlicing):
        return time_slice(gpu, sharing.replicas)
    return mps_client(gpu, sharing.replicas) if isinstance(sharing, Mps) else whole(gpu)


def parts(gpu: Gpu, need: Need) -> Iterator[Part]:
    """Every part of the GPU that may be offered to the demand, largest first."""
    yield whole(gpu)
    if gpu.geometry is not None:
        for profile in reversed(gpu.geometry.profiles):
            if is_plain(profile):
                yield mig_slice(gpu, profile)
    for make, speed in ((mps_client, MPS_SPEED), (time_slice, 1 / SWITCHING)):
        yield make(gpu, max(2, _most_replicas(gpu, need, speed, make is mps_client)))


def _most_replicas(gpu: Gpu, need: Need, speed: float, mps: bool) -> int:
    most = min(_MOST_REPLICAS, gpu.mps_clients) if mps else _MOST_REPLICAS
    by_memory = gpu.memory_mib // need.memory_mib if need.memory_mib else most
    by_compute = int(speed / need.compute + 1e-9) if need.compute else most
    return min(most, by_memory, by_compute)


def gives(need: Need, part: Part) -> float:
    """What a slot contributes to the demand's amount: one pod, or requests per second."""
    return _measured(need, part) if need.measured else 1.0


def _measured(need: Need, part: Part) -> float:
    return need.measured.get(part.profile or WHOLE, 0.0) if part.isolated else 0.0


def refusal(need: Need, gpu: Gpu, part: Part) -> str:
    """Why the part does not suit the demand, in one clause; empty if it does."""
    if need.models is not None and gpu.name not in need.models:
        return f"{gpu.name} is not one of its models"
    if need.count > 1 and part.how != "exclusive":
        return f"a pod needs {need.count} whole GPUs"
    if part.how == "mps" and not gpu.mps_capable:
        return f"{gpu.name} has compute capability {gpu.compute[0]}.{gpu.compute[1]}, and MPS needs 7.0"
    if part.how == "time_slicing":
        if need.workload_class == "latency":
            return "latency-sensitive: a neighbour's turn delays it"
        if need.workload_class == "performance":
            loss = round(100 * (1 - 1 / SWITCHING))
            return f"performance-intensive: {loss} % is lost to switching while a neighbour is busy"
        if need.unbounded:
            return "it takes all the memory that it gets, and time-slicing limits none"
    if need.measured and _measured(need, part) == 0:
        return "no measurement of it keeps the latency"
    if part.memory_mib < need.memory_mib:
        have, wanted = (f"{mib / 1024:.1f} GiB" for mib in (part.memory_mib, need.memory_mib))
        return f"{have} of GPU memory, and it needs {wanted}"
    if part.compute < need.compute - 1e-9:
        return f"{part.compute:.0%} of a GPU's throughput, and it needs {need.compute:.0%}"
    return ""
