"""The AWS part of the environment: the cluster, and a pool's node settings."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from infra import versions
from infra.model.aws.images import IMAGES, ImageKey, ImagePin, check_date, check_pin
from infra.model.aws.network import Endpoint, Network
from infra.model.aws.values import (
    ADD_ON,
    AddOnVersion,
    EksVersion,
    Principals,
    Region,
    Reservations,
    Tags,
    partition_of,
    partition_of_arn,
)
from infra.model.base.errors import InputError
from infra.model.base.fields import ClusterModel, Count, Flag, Model, NodeCount, PoolSize, option, required
from infra.model.base.registries import PinnedImages
from infra.model.gpu.choice import FlavorName
from infra.model.gpu.machines import MACHINES, Machine, catalogue_of

_CPU_MACHINES = tuple(
    name for name, machine in MACHINES.items() if machine.seller == "ec2" and not machine.gpus
)
_KUBE_PROXY_SKEW = 3
"""Minor versions by which kube-proxy may be older than the API server [Kubernetes' version skew policy]."""

MAX_PIDS = 2**22
"""PID_MAX_LIMIT of 64-bit Linux: the kernel refuses a larger pids.max (kernel/cgroup/pids.c)."""

AddOnName = Literal[
    "aws-ebs-csi-driver",
    "coredns",
    "eks-node-monitoring-agent",
    "eks-pod-identity-agent",
    "kube-proxy",
    "vpc-cni",
]


class SystemNodes(Model):
    """Nodes for pods that must run before any pool has nodes: Karpenter, CoreDNS, the operator."""

    machine: FlavorName = option(
        "Instance type without a GPU, of the catalogue or of machines, for amd64.", "m6i.xlarge"
    )
    nodes: NodeCount = option("Number of nodes; two by default, so that one can be replaced.", 2)

    _type: Machine = PrivateAttr()

    @model_validator(mode="after")
    def _check_machine(self, info: ValidationInfo) -> SystemNodes:
        """Their image is AL2023 for amd64, without NVIDIA's driver."""
        self._type = catalogue_of(info).machines[self.machine]
        if self._type.seller != "ec2" or self._type.gpus or self._type.arch != "amd64":
            fact = f"{self.machine} is not an EC2 instance type for amd64 without a GPU"
            raise InputError("machine", fact, f"use {' or '.join(_CPU_MACHINES)}")
        return self

    @property
    def type(self) -> Machine:
        return self._type


class AwsCluster(ClusterModel):
    """An EKS cluster with its network, its node groups and Karpenter.

    Karpenter always has its interruption queue, so that spot capacity needs no key of its own here.
    """

    kind: Literal["aws"]
    region: Region = required("AWS region.")
    version: EksVersion = required("Kubernetes minor version.")
    support: Literal["standard", "extended"] = option(
        "standard: EKS upgrades the cluster when the standard support of its version ends; extended: the "
        "version stays for up to one year more, at 0.60 instead of 0.10 USD per hour.",
        "standard",
    )
    add_ons: dict[AddOnName, AddOnVersion] = option(
        "Versions of EKS add-ons in place of the pinned ones, as {vpc-cni: v1.22.3-eksbuild.1}.", dict
    )
    network: Network = required(
        "The VPC: the stack creates it (cidr, zones, nat), or it exists (vpc, subnets)."
    )
    endpoint: Endpoint = Field(default_factory=Endpoint)
    system: SystemNodes = Field(default_factory=SystemNodes)
    admins: Principals = option("ARNs of IAM roles and users that administer the cluster.", ())
    images: dict[ImageKey, ImagePin] = option(
        "Pinned image for each kind in use: an AMI id or a dated alias.", dict
    )
    tags: Tags = option("Tags of every resource that supports tags, 40 at most.", dict)

    @model_validator(mode="after")
    def _check_consistency(self) -> AwsCluster:
        self.network.check(self.region)
        self._check_kube_proxy()
        known = versions.EKS_ADD_ONS.get(self.version, {})
        if missing := [
            name for name in get_args(AddOnName) if name not in known and name not in self.add_ons
        ]:
            fact = f"this release pins no {', '.join(missing)} for Kubernetes {self.version}"
            remedy = f"`aws eks describe-addon-versions --kubernetes-version {self.version}` lists them"
            raise InputError("add_ons", fact, f"name a version of each; {remedy}")
        for name, version in self.add_ons.items():
            pinned = {**versions.EKS_ADD_ONS["1.36"], **known}[name]
            if version.partition(".")[0] != pinned.partition(".")[0]:
                fact = f"{version} is not of the major version that this release configures"
                raise InputError(f"add_ons.{name}", fact, f"use one like {pinned}, or leave it out")
        for index, admin in enumerate(self.admins):
            if partition_of_arn(admin) != partition_of(self.region):
                fact = f"{admin} is in partition {partition_of_arn(admin)}, and {self.region} in another"
                raise InputError(f"admins[{index}]", fact, f"use one in {partition_of(self.region)}")
        for key, pin in self.images.items():
            try:
                check_pin(IMAGES[key], pin)
                check_date(self.version, pin)
            except InputError as error:
                raise InputError(f"images.{key}", error.fact, error.remedy) from None
        return self

    def _check_kube_proxy(self) -> None:
        match = ADD_ON.fullmatch(self.add_ons.get("kube-proxy", ""))
        major, minor = map(int, self.version.split("."))
        if match and (int(match[1]) != major or not 0 <= minor - int(match[2]) <= _KUBE_PROXY_SKEW):
            fact = f"kube-proxy {match[1]}.{match[2]} does not work with Kubernetes {self.version}"
            oldest = f"{major}.{minor - _KUBE_PROXY_SKEW}"
            raise InputError("add_ons.kube-proxy", fact, f"use {oldest} to {self.version}, or leave it out")


class Disk(Model):
    """The encrypted gp3 volume of a node; it holds containers and images, unless instance_store is given.

    Ranges and ratios are those of gp3 in AWS's EBS user guide.
    """

    size_gib: Annotated[Count, Field(ge=20, le=65536)] = option("Size in GiB.", 100)
    iops: Annotated[Count, Field(ge=3000, le=80000)] = option(
        "Operations per second, 3000 to 80000; the first 3000 are free.", 3000
    )
    throughput: Annotated[Count, Field(ge=125, le=2000)] = option(
        "MiB per second, 125 to 2000; the first 125 are free.", 125
    )

    @model_validator(mode="after")
    def _check_gp3_ratios(self) -> Disk:
        if self.iops > 500 * self.size_gib:
            max_iops = 500 * self.size_gib
            fact = f"gp3 allows {max_iops} at most for {self.size_gib} GiB"
            raise InputError("iops", fact, "use a larger disk")
        if 4 * self.throughput > self.iops:
            min_iops = 4 * self.throughput
            fact = f"gp3 needs {min_iops} iops for {self.throughput} MiB/s"
            raise InputError("throughput", fact, f"use iops: {min_iops}")
        return self


class Scaling(Model):
    """Bounds of a managed node group, in which another autoscaler or an operator changes its size."""

    min: PoolSize = required("Fewest nodes; may be 0.")
    max: NodeCount = required("Most nodes.")


class AwsPool(Model):
    """AWS settings of a pool's nodes, beside the pool's own fields."""

    image: ImageKey | None = option(
        "Node image; al2023-nvidia for pools with GPUs and al2023 for others if left out."
    )
    disk: Disk = Field(default_factory=Disk)
    instance_store: Literal["raid0"] | None = option(
        "raid0: the machine's own NVMe disks become one RAID0 volume for containers and ephemeral storage; "
        "left alone if left out."
    )
    efa: Flag = option("Elastic Fabric Adapter on every network card.", False)
    reservations: Reservations = option("Capacity reservations (cr-...) for capacity: reserved.", ())
    capacity_block: Flag = option("The reservation is a capacity block for ML.", False)
    placement_group: Flag = option("All nodes close together in one zone (cluster placement group).", False)
    scaling: Scaling | None = option(
        "Bounds for a cluster-autoscaler that you run, or for changes by hand: gpuform starts the node group "
        "with the pool's nodes and leaves its size alone afterwards. nodes is always its size if left out."
    )
    max_pods: Count | None = option("Pods per node; the limit of its network interfaces if left out.")
    pod_pids_limit: Annotated[Count, Field(le=MAX_PIDS)] | None = option(
        "Processes per pod; no limit if left out."
    )
    prepull: PinnedImages = option("Images that a node pulls at boot, before the first pod needs them.", ())
