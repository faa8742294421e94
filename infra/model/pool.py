"""A pool: nodes of one kind, what they run on, and how their GPUs are shared."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from infra.model import gpu as catalogue
from infra.model import labels
from infra.model.aws import AwsPool
from infra.model.base import Count, Counts, LabelKey, LabelValue, Model, PoolName, listing
from infra.model.choices import GpuName, MachineName
from infra.model.elastic import Capacity, Elastic, PoolClass, node_pool_name, static_name
from infra.model.errors import InputError
from infra.model.gpu import Gpu
from infra.model.hosts import AnyHost, Driver
from infra.model.images import IMAGES, Image
from infra.model.machines import MACHINES, Machine, ec2, smallest
from infra.model.mig import Layout
from infra.model.sharing import Dra, Exclusive, Mig, Sharing


def _own_key(key: str) -> str:
    if key.startswith(labels.RESERVED_PREFIXES):
        raise InputError(
            "", f"label {key!r} is set from the pool or by the cluster", "use a prefix of your own"
        )
    return key


class GpuChoice(Model):
    """GPUs by model rather than by machine."""

    models: tuple[GpuName, ...] = Field(
        min_length=1, description="GPU models that will do, by their names in the catalogue."
    )
    count: Counts = Field(
        description="GPUs per node; where nodes come and go (AWS) it may be several, for example [1, 4], and "
        "each node has one of these numbers."
    )


class Taint(Model):
    """A taint of the pool's own, beside the GPU taint; the pool's workloads and the operands tolerate it."""

    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Pool(Model):
    """Nodes of one kind under one name; says what they are, not which cloud makes them.

    Nodes that come and go may differ in how many GPUs they have, and then in how much they offer.
    """

    name: PoolName = Field(description="Also the beginning of the names of its nodes.")
    machine: MachineName | None = Field(default=None, description="Flavor or instance type; this or gpu.")
    gpu: GpuChoice | None = Field(
        default=None, description="GPU models and number per node; this or machine."
    )
    nodes: Count | None = Field(default=None, description="Number of nodes (embedded cluster, AWS).")
    selector: dict[LabelKey, LabelValue] | None = Field(
        default=None, min_length=1, description="Labels that the pool's nodes carry (existing cluster)."
    )
    hosts: tuple[AnyHost, ...] | None = Field(
        default=None, min_length=1, description="Hosts by name, or as {name, address, port} (own hosts)."
    )
    driver: Driver | None = Field(
        default=None, description="NVIDIA's driver on its hosts, if not the cluster's (own hosts)."
    )
    elastic: Elastic | None = Field(
        default=None, description="Nodes that come and go with the pods (AWS); this or nodes."
    )
    capacity: tuple[Capacity, ...] = Field(
        default=("on_demand",),
        min_length=1,
        description="How nodes are bought (AWS): the first to be had of reserved, on_demand, spot.",
    )
    workload_class: PoolClass = Field(
        default="inference",
        alias="class",
        description="Whom a pool of Karpenter's serves: when its nodes may be taken away follows from it.",
    )
    zones: tuple[Annotated[str, Field(strict=True)], ...] = Field(
        default=(), description="Zones of its nodes (AWS); all of the network's if left out."
    )
    aws: AwsPool | None = Field(default=None, description="What its nodes are on AWS.")
    labels: dict[Annotated[LabelKey, AfterValidator(_own_key)], LabelValue] = Field(
        default_factory=dict, description="Node labels beside those that gpuform sets."
    )
    taints: tuple[Taint, ...] = Field(
        default=(), description="Taints beside the GPU taint, which every pool with GPUs has."
    )
    sharing: Sharing = Field(default_factory=Exclusive, description="How its GPUs are shared.")

    @model_validator(mode="after")
    def _runs_on_one_thing(self) -> Pool:
        if (self.machine is None) == (self.gpu is None) and not (self.hosts and self.machine is None):
            both = "both machine and gpu are given" if self.gpu else "neither machine nor gpu is given"
            raise InputError("machine", both, "say what the nodes are by one of the two")
        if not self.gpus and not isinstance(self.sharing, Exclusive):
            what = f"machine {self.machine}" if self.machine else "the pool"
            raise InputError("sharing", f"{what} has no GPU to share", "leave sharing out")
        if isinstance(self.sharing, Mig):
            for gpu in self.gpus:
                _check_layout(gpu, self.sharing.layout)
        return self

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPU models a node may have; one for a machine, none for a machine without GPU."""
        if self.gpu:
            return tuple(catalogue.GPUS[name] for name in self.gpu.models)
        model = MACHINES[self.machine].model if self.machine else None
        return (model,) if model else ()

    @property
    def gpu_counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that a node may have, ascending; (0,) for nodes without GPUs."""
        if self.gpu:
            return self.gpu.count if isinstance(self.gpu.count, tuple) else (self.gpu.count,)
        return (MACHINES[self.machine].gpus if self.machine else 0,)

    @property
    def gpu_count(self) -> int:
        """GPUs per node, of a pool whose nodes all have as many; ValueError where they may differ."""
        (count,) = self.gpu_counts
        return count

    @property
    def node_machine(self) -> Machine | None:
        """The machine of a simulated node: the one named, or the smallest with these GPUs, if any."""
        return (
            MACHINES[self.machine]
            if self.machine
            else smallest(self.gpu.models, self.gpu_counts[0])
            if self.gpu
            else None
        )

    @property
    def by_claim(self) -> bool:
        """Whether pods have its GPUs by claim (DRA) rather than by an extended resource."""
        return isinstance(self.sharing, Dra)

    @property
    def by_karpenter(self) -> bool:
        """Whether Karpenter makes its nodes: as pods need them, or a fixed number whose GPUs are claimed."""
        return self.elastic is not None or self.by_claim

    @property
    def node_pools(self) -> dict[str, Capacity]:
        """Karpenter's NodePools of the pool, by name: one for each way of buying, in the order declared."""
        if self.by_claim:
            return {static_name(self.name): self.capacity[0]}
        kinds = self.capacity if self.elastic else ()
        return {node_pool_name(self.name, kinds, kind): kind for kind in kinds}

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The EC2 types its nodes may be: the one named, or every one with these GPUs; none may fit."""
        if self.gpu:
            return ec2(self.gpu.models, self.gpu_counts)
        machine = MACHINES[self.machine] if self.machine else None  # own hosts without a GPU are none
        return (machine,) if machine and machine.seller == "ec2" else ()

    @property
    def on_aws(self) -> AwsPool:
        """Its settings on AWS, the defaults where none are given."""
        return self.aws or AwsPool()

    @property
    def image(self) -> Image:
        """Its node image on AWS: the one named, or the AL2023 one for its GPUs."""
        return IMAGES[self.on_aws.image or ("al2023-nvidia" if self.gpus else "al2023")]

    @property
    def layout(self) -> Layout | None:
        """Slices of each GPU, ``all-<profile>`` spelled out; None without MIG."""
        return resolve(self.gpus[0], self.sharing.layout) if isinstance(self.sharing, Mig) else None


def resolve(gpu: Gpu, layout: Any) -> Layout:
    """A layout as {profile: number} on that GPU, which must be MIG-capable."""
    if isinstance(layout, str):
        profile = layout.removeprefix("all-")
        assert gpu.geometry is not None
        return {profile: gpu.geometry.most(profile)}
    return dict(layout)


def _check_layout(gpu: Gpu, layout: dict[str, int] | str) -> None:
    geometry = gpu.geometry
    if geometry is None:
        raise InputError(
            "sharing.kind",
            f"{gpu.name} has no MIG",
            "use time_slicing or mps, or a GPU with MIG, for example A100-40GB",
        )
    known = [profile.name for profile in geometry.profiles]
    if isinstance(layout, str):
        profile = layout.removeprefix("all-")
        if not layout.startswith("all-") or profile not in known:
            shorthands = [f"all-{name}" for name in known]
            raise InputError(
                "sharing.layout", f"unknown layout {layout!r} for {gpu.name}", listing(shorthands, layout)
            )
        return
    if not layout:
        raise InputError(
            "sharing.layout", "no slice is given", "give {profile: number}, or use kind: exclusive"
        )
    for name in layout:
        if name not in known:
            raise InputError(
                f"sharing.layout.{name}", f"{gpu.name} has no such profile", listing(known, name)
            )
    reason = geometry.refusal(layout)
    if reason:
        raise InputError(
            "sharing.layout",
            f"{reason}, so {gpu.name} does not hold it",
            "take slices out, or see which layouts fit with `gpuform gpus`",
        )
