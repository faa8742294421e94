"""A pool: nodes of one kind, what they run on, and how their GPUs are shared."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from infra.model.aws.cluster import AwsPool
from infra.model.aws.images import IMAGES, Image
from infra.model.aws.values import UNIQUE_ZONES
from infra.model.base.errors import InputError
from infra.model.base.fields import (
    MAX_NODES,
    HugePages,
    LabelKey,
    LabelValue,
    Model,
    PoolName,
    PoolSize,
    Strict,
    each_once,
    option,
    required,
)
from infra.model.gpu.choice import FlavorName, GpuChoice
from infra.model.gpu.machines import BUILT_IN, Catalogue, Machine, catalogue_of, ec2_types, smallest
from infra.model.gpu.models import Gpu
from infra.model.hosts.cluster import AnyHost, Driver
from infra.model.openstack.cluster import OpenstackPool
from infra.model.pool import layouts
from infra.model.pool.elastic import (
    NODES,
    Capacity,
    Elastic,
    PoolClass,
    node_pool_name,
    static_node_pool_name,
)
from infra.model.pool.keys import SelectorKey, TaintKey
from infra.model.pool.layouts import Cut
from infra.model.pool.rdma import Rdma
from infra.model.pool.relayout import Relayout, Reset
from infra.model.pool.sharing import Dra, Exclusive, Mig, MigStrategy, Mps, Sharing, Trust, check_sharing


class Taint(Model):
    """One of the pool's own taints; the pool's workloads and the operands tolerate it."""

    key: TaintKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Pool(Model):
    """Nodes of one kind under one name; describes the nodes, not the cloud that makes them.

    Nodes of an elastic pool may differ in their number of GPUs, and so in what they offer.
    """

    name: PoolName = required("Name of the pool, and prefix of its nodes' names.")
    machine: FlavorName | None = option(
        "Instance type, or flavor: of the catalogue, machines or cluster.flavors; this or gpu."
    )
    gpu: GpuChoice | None = option("GPUs of each node; this or machine.")
    nodes: PoolSize | None = option("Number of nodes (embedded cluster, AWS, OpenStack).")
    selector: dict[SelectorKey, LabelValue] | None = option(
        "Labels that the pool's nodes carry (existing cluster).", min_length=1
    )
    hosts: tuple[AnyHost, ...] | None = option(
        "Hosts by name, or as {name, address, port} (own hosts).", min_length=1, max_length=MAX_NODES
    )
    driver: Driver | None = option("NVIDIA's driver on its hosts; the cluster's if left out (own hosts).")
    elastic: Elastic | None = option("Scaling with the pods (AWS, OpenStack); this or nodes.")
    spare: PoolSize | None = option(
        "Nodes that are kept free (elastic pools): placeholder pods hold them until other pods need the "
        "room; then new nodes are started."
    )
    capacity: Annotated[tuple[Capacity, ...], each_once("name each type once")] = option(
        "Capacity types (AWS): the first that is available of reserved, on_demand, spot.",
        ("on_demand",),
        min_length=1,
    )
    workload_class: PoolClass = option(
        "What a Karpenter pool is for; decides when Karpenter may remove its nodes.",
        "inference",
        alias="class",
    )
    zones: Annotated[tuple[Strict, ...], each_once(UNIQUE_ZONES)] = option(
        "Zones of its nodes (AWS); all of the network's if left out.", ()
    )
    aws: AwsPool | None = Field(default=None)
    openstack: OpenstackPool | None = Field(default=None)
    labels: dict[LabelKey, LabelValue] = option("Node labels in addition to those that gpuform sets.", dict)
    taints: tuple[Taint, ...] = option(
        "Taints in addition to the GPU taint, which every pool with GPUs has; one with the same key and "
        "effect gives its value.",
        (),
    )
    hugepages: HugePages | None = option(
        "Memory of each node in huge pages of 2Mi, for workloads that request them: nodes on AWS reserve it "
        "at boot; on other clusters the nodes must already have it."
    )
    rdma: Rdma | None = option(
        "InfiniBand or RoCE adapters of its nodes, for workloads with rdma; {} for all."
    )
    sharing: Sharing = option("How its GPUs are shared.", Exclusive)
    trust: Trust = option(
        "Whether its GPUs serve one owner (single) or several without mutual trust (multi).", "single"
    )
    reset: Reset | None = option(
        "How its GPUs change their MIG mode: by a reset of the GPU (gpu), or by a reboot of the node if the "
        "reset fails (reboot). If left out, reboot for machines of a cloud, else gpu."
    )
    relayout: Relayout | None = option(
        "How its nodes change to another MIG layout; one by one, with eviction, if left out."
    )

    _declared_flavor: Machine | None = PrivateAttr(default=None)
    """The cluster's declaration of the named flavor; None if the cluster declares no such flavor.

    Source: the validation context, ``{"flavors": {name: Machine}}``.
    """

    _catalogue: Catalogue = PrivateAttr(default_factory=lambda: BUILT_IN)
    _kind: str = PrivateAttr(default="")
    _operator_strategy: MigStrategy = PrivateAttr(default="mixed")

    @model_validator(mode="after")
    def _check_consistency(self, info: ValidationInfo) -> Pool:
        self._catalogue = catalogue_of(info)
        self._declared_flavor = ((info.context or {}).get("flavors") or {}).get(self.machine)
        names_nodes = (self.hosts or self.selector) and self.machine is None
        if (self.machine is None) == (self.gpu is None) and not (names_nodes and self.gpu is None):
            fact = "both machine and gpu are given" if self.gpu else "neither machine nor gpu is given"
            raise InputError("machine", fact, "give one of the two")
        if not self.gpus and not isinstance(self.sharing, Exclusive):
            subject = f"machine {self.machine}" if self.machine else "the pool"
            raise InputError("sharing", f"{subject} has no GPU to share", "leave sharing out")
        layouts.check(self.gpus, self.gpu_counts, self.sharing)
        check_sharing(self.gpus, self.sharing, self.trust)
        self._check_keys()
        return self

    def resolve(self, kind: str, strategy: MigStrategy) -> None:
        """Take what the environment decides: the kind of its cluster, and the operator's MIG strategy."""
        self._kind, self._operator_strategy = kind, strategy

    def _check_keys(self) -> None:
        """Taints are unique by key and effect (k8s.io/kubernetes, validateNodeTaints)."""
        keys = set()
        for index, taint in enumerate(self.taints):
            path = f"taints[{index}]"
            if (taint.key, taint.effect) in keys:
                fact = f"{taint.key}:{taint.effect} is given twice, and a node has a key and effect once"
                raise InputError(path, fact, "leave one out")
            keys.add((taint.key, taint.effect))
        for key, value in self.labels.items():
            if (self.selector or {}).get(key, value) != value:
                fact = "the selector finds the pool's nodes by another value of it"
                raise InputError(f"labels.{key}", fact, "leave it out, or select by another label")

    @cached_property
    def flavor(self) -> Machine | None:
        """The named machine, as declared by the cluster or else the catalogue; None without one."""
        if self.machine is None:
            return None
        return self._declared_flavor or self._catalogue.machines[self.machine]

    @property
    def adapters(self) -> int:
        """Elastic Fabric Adapters that each node offers to pods."""
        return min((machine.efa for machine in self.machines), default=0) if self.aws_settings.efa else 0

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """GPU models that a node may have; one for a machine, empty for a machine without GPUs."""
        if self.gpu:
            return tuple(self._catalogue.gpus[name] for name in self.gpu.models)
        model = self.flavor.model if self.flavor else None
        return (model,) if model else ()

    @property
    def gpu_counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that a node may have, ascending; (0,) for nodes without GPUs."""
        if self.gpu:
            return self.gpu.counts
        return (self.flavor.gpus if self.flavor else 0,)

    @property
    def gpu_count(self) -> int:
        """GPUs per node; ValueError if the pool's nodes may differ in it."""
        (count,) = self.gpu_counts
        return count

    @property
    def node_machine(self) -> Machine | None:
        """The machine of a simulated node: the one named, or the smallest with these GPUs, if any."""
        if self.flavor or not self.gpu:
            return self.flavor
        return smallest(self.gpu.models, self.gpu_counts[0], self._catalogue.machines.values())

    @property
    def by_claim(self) -> bool:
        """Whether pods get its GPUs by claim (DRA), not by an extended resource."""
        return isinstance(self.sharing, Dra)

    @property
    def by_karpenter(self) -> bool:
        """Whether Karpenter makes its nodes: on AWS, elastic pools, and those with GPUs by claim."""
        return self._kind == "aws" and (self.elastic is not None or self.by_claim)

    @property
    def by_autoscaler(self) -> bool:
        """Whether cluster-autoscaler scales its node group; only on OpenStack."""
        return self._kind == "openstack" and self.elastic is not None

    @property
    def mig_capable(self) -> bool:
        """Whether each GPU model that a node may have supports MIG."""
        return bool(self.gpus) and all(gpu.mig_capable for gpu in self.gpus)

    @property
    def has_live_layout(self) -> bool:
        """Whether nodes get their MIG layout after they join; Karpenter's nodes start with it."""
        return self.mig_capable and not self.by_karpenter

    @property
    def strategy(self) -> MigStrategy:
        """MIG strategy of its nodes: its own, or the operator's; with ``mixed``, MPS does not start."""
        if isinstance(self.sharing, Mig) and self.sharing.strategy:
            return self.sharing.strategy
        operator = self._operator_strategy
        return "none" if isinstance(self.sharing, Mps) and operator == "mixed" else operator

    @property
    def has_own_strategy(self) -> bool:
        """Whether the strategy of its nodes is not the operator's."""
        return self.strategy != self._operator_strategy

    @property
    def resets_by(self) -> Reset:
        """How its GPUs change their MIG mode.

        As declared; else nodes on machines of a cloud reboot, and the GPUs of others are reset.
        """
        return self.reset or self.default_reset

    @property
    def default_reset(self) -> Reset:
        """A machine that an existing cluster's pool names is a cloud's: the catalogue has no others."""
        cloud = self._kind in ("aws", "openstack") or (self._kind == "existing" and self.machine is not None)
        return "reboot" if cloud else "gpu"

    @property
    def node_pools(self) -> dict[str, Capacity]:
        """Karpenter NodePools by name: one per capacity type, in the declared order."""
        if self.by_claim:
            return {static_node_pool_name(self.name): self.capacity[0]}
        capacities = self.capacity if self.elastic else ()
        return {node_pool_name(self.name, capacities, capacity): capacity for capacity in capacities}

    @property
    def machines(self) -> tuple[Machine, ...]:
        """EC2 types of its nodes: the named one, or every type with these GPUs; empty if no type fits."""
        if self.gpu:
            return ec2_types(self.gpu.models, self.gpu_counts, self._catalogue.machines.values())
        machine = self.flavor  # None for own hosts without GPUs
        return (machine,) if machine and machine.seller == "ec2" else ()

    @cached_property
    def aws_settings(self) -> AwsPool:
        return self.aws or AwsPool()

    @cached_property
    def openstack_settings(self) -> OpenstackPool:
        return self.openstack or OpenstackPool()

    @property
    def declared_nodes(self) -> int | None:
        """Its hosts, or its number of nodes; None for an elastic pool and for nodes that a selector finds."""
        return len(self.hosts) if self.hosts else self.nodes

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Fewest and most nodes of a node group that an autoscaler scales; Karpenter counts no nodes."""
        if self.by_autoscaler and self.elastic:
            return self.elastic.min_nodes, self.elastic.max[NODES]
        scaling = self.aws_settings.scaling
        return (scaling.min, scaling.max) if scaling else None

    @property
    def min_nodes(self) -> int:
        """Fewest nodes of its node group; 0 for one of Karpenter's elastic pools."""
        return self.bounds[0] if self.bounds else self.nodes or 0

    @property
    def max_nodes(self) -> int:
        """Most nodes of its node group; 0 for one of Karpenter's elastic pools."""
        return self.bounds[1] if self.bounds else self.nodes or 0

    @property
    def image(self) -> Image:
        """Its node image on AWS: the named one, or AL2023, with NVIDIA's driver if it has GPUs."""
        return IMAGES[self.aws_settings.image or ("al2023-nvidia" if self.gpus else "al2023")]

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """MIG layouts of a node's GPUs; empty without slices, one without numbers if all are cut alike."""
        return layouts.cuts(self.gpus[0], self.sharing) if self.gpus else ()

    @property
    def profiles(self) -> tuple[str, ...]:
        """MIG profiles of its nodes' slices, each once."""
        return tuple(dict.fromkeys(name for cut in self.cuts for name in cut.layout))

    def slices(self, gpus: int) -> dict[str, int]:
        """MIG slices of a node with that many GPUs, by profile."""
        found = dict.fromkeys(self.profiles, 0)
        for cut in self.cuts:
            for name, count in cut.layout.items():
                found[name] += count * (gpus if cut.devices is None else len(cut.devices))
        return found

    @property
    def whole_gpus(self) -> tuple[int, ...]:
        """Numbers of a node's GPUs that stay whole beside cut ones; empty if all are cut, or none."""
        numbers = {number for cut in self.cuts for number in cut.devices or ()}
        return tuple(index for index in range(self.gpu_count) if index not in numbers) if numbers else ()
