"""Machines that a pool can name: CERN's OpenStack flavors, EC2 instance types, and declared ones.

Sources: flavors from CERN's talk of 2024 (its GB are taken as GiB, as OpenStack means them; the talk gives
no memory size for its V100, taken as the 16 GB PCIe card, and calls its A100 the PCIe card); EC2 types from
the project's table of 2026-07-20; the three types without a GPU from AWS's instance type pages. The first
network card of a p6-b300 supports no EFA [EC2 DescribeInstanceTypes, as moto has it; aws-parallelcluster,
issue 7143].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import ValidationInfo

from infra.model.gpu.models import ALIASES, GPUS, Gpu


@dataclass(frozen=True)
class Machine:
    """One flavor or instance type; ``memory`` in GiB, ``gpus``: number of GPUs, all of model ``gpu``.

    ``pods``: on EC2 the pods that its network interfaces have addresses for, else Kubernetes' default limit;
    ``efa``: network cards that support an Elastic Fabric Adapter, from card ``efa_from`` on; ``nvme``: GB of
    all local NVMe disks.
    """

    name: str
    seller: Literal["openstack", "ec2", "own"]
    vcpu: int
    memory: int
    gpu: str | None = None
    gpus: int = 0
    pods: int = 110
    efa: int = 0
    efa_from: int = 0
    nvme: int = 0
    arch: Literal["amd64", "arm64"] = "amd64"
    declared_gpu: Gpu | None = None
    """Its GPU, if the environment declares that."""
    usd_per_hour: float | None = None
    is_declared: bool = False
    """Declared by the environment."""
    deprecated: bool = False
    """The seller still offers it, but advises against new use."""

    @property
    def model(self) -> Gpu | None:
        return self.declared_gpu or (GPUS[self.gpu] if self.gpu else None)


_ROWS = (
    Machine("g1.xlarge", "openstack", 4, 16, "V100-PCIE-16GB", 1, deprecated=True),
    Machine("g1.4xlarge", "openstack", 16, 64, "V100-PCIE-16GB", 4),
    Machine("g2.xlarge", "openstack", 4, 16, "T4", 1, deprecated=True),
    Machine("g2.5xlarge", "openstack", 28, 168, "T4", 1),
    Machine("g3.xlarge", "openstack", 4, 16, "V100S-PCIE-32GB", 1),
    Machine("g3.4xlarge", "openstack", 16, 64, "V100S-PCIE-32GB", 4),
    Machine("g4.p1.40g", "openstack", 16, 120, "A100-PCIE-40GB", 1),
    Machine("g4.p2.40g", "openstack", 32, 240, "A100-PCIE-40GB", 2),
    Machine("g4.p4.40g", "openstack", 64, 480, "A100-PCIE-40GB", 4),
    Machine("m5.xlarge", "ec2", 4, 16, pods=58),
    Machine("m6i.xlarge", "ec2", 4, 16, pods=58),
    Machine("m6i.4xlarge", "ec2", 16, 64, pods=234),
    Machine("g4dn.12xlarge", "ec2", 48, 192, "T4", 4, pods=234, efa=1, nvme=900),
    Machine("g4dn.16xlarge", "ec2", 64, 256, "T4", 1, pods=58, efa=1, nvme=900),
    Machine("g4dn.2xlarge", "ec2", 8, 32, "T4", 1, pods=29, nvme=225),
    Machine("g4dn.4xlarge", "ec2", 16, 64, "T4", 1, pods=29, nvme=225),
    Machine("g4dn.8xlarge", "ec2", 32, 128, "T4", 1, pods=58, efa=1, nvme=900),
    Machine("g4dn.metal", "ec2", 96, 384, "T4", 8, pods=737, efa=1, nvme=1800),
    Machine("g4dn.xlarge", "ec2", 4, 16, "T4", 1, pods=29, nvme=125),
    Machine("g5.12xlarge", "ec2", 48, 192, "A10G", 4, pods=737, efa=1, nvme=3800),
    Machine("g5.16xlarge", "ec2", 64, 256, "A10G", 1, pods=234, efa=1, nvme=1900),
    Machine("g5.24xlarge", "ec2", 96, 384, "A10G", 4, pods=737, efa=1, nvme=3800),
    Machine("g5.2xlarge", "ec2", 8, 32, "A10G", 1, pods=58, nvme=450),
    Machine("g5.48xlarge", "ec2", 192, 768, "A10G", 8, pods=345, efa=1, nvme=7600),
    Machine("g5.4xlarge", "ec2", 16, 64, "A10G", 1, pods=234, nvme=600),
    Machine("g5.8xlarge", "ec2", 32, 128, "A10G", 1, pods=234, efa=1, nvme=900),
    Machine("g5.xlarge", "ec2", 4, 16, "A10G", 1, pods=58, nvme=250),
    Machine("g5g.16xlarge", "ec2", 64, 128, "T4G", 2, pods=737, arch="arm64"),
    Machine("g5g.2xlarge", "ec2", 8, 16, "T4G", 1, pods=58, arch="arm64"),
    Machine("g5g.4xlarge", "ec2", 16, 32, "T4G", 1, pods=234, arch="arm64"),
    Machine("g5g.8xlarge", "ec2", 32, 64, "T4G", 1, pods=234, arch="arm64"),
    Machine("g5g.metal", "ec2", 64, 128, "T4G", 2, pods=737, arch="arm64"),
    Machine("g5g.xlarge", "ec2", 4, 8, "T4G", 1, pods=58, arch="arm64"),
    Machine("g6.12xlarge", "ec2", 48, 192, "L4", 4, pods=234, efa=1, nvme=3760),
    Machine("g6.16xlarge", "ec2", 64, 256, "L4", 1, pods=737, efa=1, nvme=1880),
    Machine("g6.24xlarge", "ec2", 96, 384, "L4", 4, pods=737, efa=1, nvme=3760),
    Machine("g6.2xlarge", "ec2", 8, 32, "L4", 1, pods=58, nvme=450),
    Machine("g6.48xlarge", "ec2", 192, 768, "L4", 8, pods=737, efa=1, nvme=7520),
    Machine("g6.4xlarge", "ec2", 16, 64, "L4", 1, pods=234, nvme=600),
    Machine("g6.8xlarge", "ec2", 32, 128, "L4", 1, pods=234, efa=1, nvme=900),
    Machine("g6.xlarge", "ec2", 4, 16, "L4", 1, pods=58, nvme=250),
    Machine("g6e.12xlarge", "ec2", 48, 384, "L40S", 4, pods=292, efa=1, nvme=3800),
    Machine("g6e.16xlarge", "ec2", 64, 512, "L40S", 1, pods=737, efa=1, nvme=1900),
    Machine("g6e.24xlarge", "ec2", 96, 768, "L40S", 4, pods=492, efa=2, nvme=3800),
    Machine("g6e.2xlarge", "ec2", 8, 64, "L40S", 1, pods=58, nvme=450),
    Machine("g6e.48xlarge", "ec2", 192, 1536, "L40S", 8, pods=492, efa=4, nvme=7600),
    Machine("g6e.4xlarge", "ec2", 16, 128, "L40S", 1, pods=234, nvme=600),
    Machine("g6e.8xlarge", "ec2", 32, 256, "L40S", 1, pods=234, efa=1, nvme=900),
    Machine("g6e.xlarge", "ec2", 4, 32, "L40S", 1, pods=58, nvme=250),
    Machine("g7.12xlarge", "ec2", 48, 192, "RTX-PRO-4500", 2, pods=758, efa=1, nvme=1900),
    Machine("g7.24xlarge", "ec2", 96, 384, "RTX-PRO-4500", 4, pods=1514, efa=1, nvme=3800),
    Machine("g7.2xlarge", "ec2", 8, 32, "RTX-PRO-4500", 1, pods=254, nvme=440),
    Machine("g7.48xlarge", "ec2", 192, 768, "RTX-PRO-4500", 8, pods=758, efa=2, nvme=7600),
    Machine("g7.4xlarge", "ec2", 16, 64, "RTX-PRO-4500", 1, pods=506, nvme=875),
    Machine("g7.8xlarge", "ec2", 32, 128, "RTX-PRO-4500", 1, pods=632, efa=1, nvme=930),
    Machine("g7e.12xlarge", "ec2", 48, 512, "RTX-PRO-6000", 2, pods=632, efa=1, nvme=3800),
    Machine("g7e.24xlarge", "ec2", 96, 1024, "RTX-PRO-6000", 4, pods=632, efa=2, nvme=7600),
    Machine("g7e.2xlarge", "ec2", 8, 64, "RTX-PRO-6000", 1, pods=254, nvme=1900),
    Machine("g7e.48xlarge", "ec2", 192, 2048, "RTX-PRO-6000", 8, pods=632, efa=4, nvme=15200),
    Machine("g7e.4xlarge", "ec2", 16, 128, "RTX-PRO-6000", 1, pods=506, nvme=1900),
    Machine("g7e.8xlarge", "ec2", 32, 256, "RTX-PRO-6000", 1, pods=506, efa=1, nvme=1900),
    Machine("gr6.4xlarge", "ec2", 16, 128, "L4", 1, pods=234, nvme=600),
    Machine("gr6.8xlarge", "ec2", 32, 256, "L4", 1, pods=234, efa=1, nvme=900),
    Machine("p3dn.24xlarge", "ec2", 96, 768, "V100-SXM2-32GB", 8, pods=737, efa=1, nvme=1800),
    Machine("p4d.24xlarge", "ec2", 96, 1152, "A100-SXM4-40GB", 8, pods=737, efa=4, nvme=8000),
    Machine("p4de.24xlarge", "ec2", 96, 1152, "A100-SXM4-80GB", 8, pods=737, efa=4, nvme=8000),
    Machine("p5.48xlarge", "ec2", 192, 2048, "H100-SXM", 8, pods=100, efa=32, nvme=30400),
    Machine("p5.4xlarge", "ec2", 16, 256, "H100-SXM", 1, pods=118, efa=1, nvme=3800),
    Machine("p5e.48xlarge", "ec2", 192, 2048, "H200", 8, pods=100, efa=32, nvme=30400),
    Machine("p5en.48xlarge", "ec2", 192, 2048, "H200", 8, pods=198, efa=16, nvme=30400),
    Machine("p6-b200.48xlarge", "ec2", 192, 2048, "B200", 8, pods=198, efa=8, nvme=30400),
    Machine("p6-b300.48xlarge", "ec2", 192, 4096, "B300", 8, pods=198, efa=16, efa_from=1, nvme=30400),
)

MACHINES: Mapping[str, Machine] = {machine.name: machine for machine in _ROWS}

_FRACTION = "a fraction of an L4: EC2 reports 0 GPUs, so Karpenter starts none for a pod with a GPU"

UNSUPPORTED: Mapping[str, str] = dict.fromkeys(
    ("g6f.2xlarge", "g6f.4xlarge", "g6f.large", "g6f.xlarge", "gr6f.4xlarge"), _FRACTION
)
"""EC2 types that are not supported, each with the reason [karpenter-provider-aws, issues 8324 and 8368]."""


def smallest(models: Iterable[str], count: int, machines: Iterable[Machine] = _ROWS) -> Machine | None:
    """The machine with the fewest vCPUs, then the least memory, with exactly ``count`` GPUs of one model."""
    names = set(models)
    candidates = [machine for machine in machines if machine.gpu in names and machine.gpus == count]
    return min(candidates, key=lambda machine: (machine.vcpu, machine.memory, machine.name), default=None)


def flavors(declared: Mapping[str, Machine] | None = None) -> tuple[Machine, ...]:
    """OpenStack flavors: a cluster's own, then those of the catalogue that are not deprecated."""
    catalogue = (
        m for m in _ROWS if m.seller == "openstack" and not m.deprecated and m.name not in (declared or {})
    )
    return (*(declared or {}).values(), *catalogue)


def ec2_types(
    models: Iterable[str], counts: Collection[int], machines: Iterable[Machine] = _ROWS
) -> tuple[Machine, ...]:
    """EC2 types with one of the models, in one of the ``counts`` per machine, in the table's order."""
    names = set(models)
    return tuple(m for m in machines if m.seller == "ec2" and m.gpu in names and m.gpus in counts)


@dataclass(frozen=True)
class Catalogue:
    """GPUs and machines that an environment can name: the built-in ones first, then those that it declares.

    Models get it by the validation context, ``{"catalogue": Catalogue}``, so declarations change no
    global table.
    """

    gpus: Mapping[str, Gpu]
    machines: Mapping[str, Machine]
    aliases: Mapping[str, str] = field(default_factory=lambda: ALIASES)

    def gpu(self, name: str) -> Gpu | None:
        """The GPU with exactly that name or alias; None if there is no such GPU."""
        return self.gpus.get(self.aliases.get(name, name))

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """Every name that ``gpu`` knows, aliases last."""
        return (*self.gpus, *self.aliases)

    @property
    def declared_machines(self) -> dict[str, Machine]:
        return {name: machine for name, machine in self.machines.items() if machine.is_declared}

    def extended(self, gpus: Mapping[str, Gpu], machines: Mapping[str, Machine]) -> Catalogue:
        """This catalogue with more entries; entries with a built-in name are ignored."""
        gpus, machines = {**self.gpus, **gpus, **self.gpus}, {**self.machines, **machines, **self.machines}
        return replace(self, gpus=gpus, machines=machines)


BUILT_IN = Catalogue(GPUS, MACHINES)


def catalogue_of(info: ValidationInfo) -> Catalogue:
    """The catalogue of this validation; the built-in one without one in the context."""
    return (info.context or {}).get("catalogue") or BUILT_IN
