"""The environment: one cluster, its pools, the operator's settings and the workloads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PrivateAttr, ValidationInfo, model_validator

from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import OwnNetwork
from infra.model.base.fields import Model, Name, each_once, option, required
from infra.model.base.prices import Cost
from infra.model.base.registries import Mirror, Source, mirrored_image
from infra.model.clusters import Cluster, EmbeddedCluster, ExistingCluster
from infra.model.gpu.machines import BUILT_IN, Catalogue, Machine, catalogue_of
from infra.model.gpu.own import GpuKey, MachineKey, OwnGpu, OwnMachine
from infra.model.hosts.cluster import NVIDIA_RUNTIME, HostsCluster
from infra.model.openstack.cluster import OpenstackCluster
from infra.model.platform import operator, unused
from infra.model.platform.health import Health
from infra.model.platform.monitoring import Monitoring
from infra.model.platform.operator import GpuOperatorSpec, Ownership
from infra.model.platform.scheduling import Namespace, PriorityName, PriorityValue, Scheduling
from infra.model.platform.state import State
from infra.model.pool import addresses, plugin_config
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import MigStrategy
from infra.model.workload.queues import Queues
from infra.model.workload.workload import InferenceWorkload, Workload

Controller = Literal["cert-manager", "keda", "kserve", "kueue"]
MAX_POOLS = 200
"""Our choice, for a bounded time; EKS allows 30 managed node groups by default [EKS, service quotas]."""
MAX_OBJECTS = 1000
"""Workloads, and namespaces: our choice, for a bounded time."""


class Environment(Model):
    """One stack's environment, checked as a whole: its names exist, and its requests can be met."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "kserve": (
            "a cert-manager of others is declared as any controller",
            "leave it out, and add existing: [cert-manager]",
        )
    }

    name: Name = required("Name of the environment, a label of everything it creates.")
    gpus: dict[GpuKey, OwnGpu] = option("GPU models that the catalogue does not have, by name.", dict)
    machines: dict[MachineKey, OwnMachine] = option(
        "Instance types and machines that the catalogue does not have, by name; flavors of OpenStack are in "
        "cluster.flavors.",
        dict,
    )
    cluster: Cluster = required("Where the platform runs.")
    gpu_operator: GpuOperatorSpec = option("Settings of the operator.", GpuOperatorSpec)
    pools: tuple[Pool, ...] = required("Pools of nodes of one kind.", min_length=1, max_length=MAX_POOLS)
    scheduling: Scheduling | None = option(
        "How pods with GPUs are placed; by the cluster's own scheduler if left out."
    )
    admission: Literal["warn", "deny", "fix"] | None = option(
        "What the API server does with a pod that requests GPUs and that no pool can ever run: warn, or deny "
        "it (Deployments and the like are only warned about); fix adds tolerations and the like to pods, and "
        "warns (Kubernetes 1.36). All GPU nodes must be the pools'. "
        "A namespace with the label gpuform.io/admission=off is left out. None of it if left out."
    )
    priorities: dict[PriorityName, PriorityValue] = option(
        "Priority classes by name, each with its value: pods of a higher one are scheduled first and "
        "preempt lower ones if no room is free. Pods without a class have 0.",
        dict,
    )
    namespaces: tuple[Namespace, ...] = option(
        "Namespaces with a quota of GPUs; others are not limited.", (), max_length=MAX_OBJECTS
    )
    queues: Queues | None = option("Queues in which workloads wait for their team's quota; none if left out.")
    workloads: tuple[Workload, ...] = option("What runs on the pools.", (), max_length=MAX_OBJECTS)
    existing: Annotated[tuple[Controller, ...], each_once("name each once")] = option(
        "Controllers that the cluster has already, so that the stack installs none: cert-manager, keda, "
        "kserve, kueue.",
        (),
    )
    monitoring: Monitoring | None = option("Metrics, retention and alerts; no monitoring if left out.")
    health: Health | None = option("Handling of nodes with a broken GPU; none if left out.")
    cost: Cost | None = option("Its budget, and prices that extend or override the price lists.")
    registries: dict[Source, Mirror] = option(
        "Mirrors, by host of a registry or https:// address of a chart repository: images and charts are "
        "pulled from there instead. `gpuform images` lists what the mirrors must contain.",
        dict,
    )
    acknowledge_loss: Annotated[tuple[Name, ...], each_once("name each once")] = option(
        "Names of what this change may lose: the cluster, pools, namespaces, queues. Without it, or "
        "`gpuform up --acknowledge NAME`, an update that loses data or running pods is refused. Remove it "
        "after the update.",
        (),
    )
    state: State | None = option("Where the engine keeps its state; next to the checkout if left out.")

    _catalogue: Catalogue = PrivateAttr(default_factory=lambda: BUILT_IN)

    @model_validator(mode="after")
    def _resolve(self, info: ValidationInfo) -> Environment:
        self._catalogue = catalogue_of(info)
        for pool in self.pools:
            pool.resolve(self.cluster.kind, self.gpu_operator.mig_strategy)
        return self

    @property
    def catalogue(self) -> Catalogue:
        """The GPUs and machines that it may name: the built-in ones and its own."""
        return self._catalogue

    @property
    def operator_strategy(self) -> MigStrategy | None:
        """The MIG strategy that all pools with GPUs share; None if they differ.

        If they differ, the operator must not set one: NVIDIA's device plugin gets the operator's as an
        environment variable, which overrides the configuration per node.
        """
        used = {pool.strategy for pool in self.pools if pool.gpus}
        return self.gpu_operator.mig_strategy if not used else used.pop() if len(used) == 1 else None

    @cached_property
    def plugin_configs(self) -> Mapping[str, Pool]:
        """A pool of each way of sharing, by the key of the device plugin's configuration, sorted.

        Empty if the plugin needs no ConfigMap: every GPU is exclusive, partitioned by MIG or allocated by
        claim, or the node image or the cluster has its own device plugin. If pools differ in their MIG
        strategy, the operator has none, and each node's configuration sets its own.
        """
        if self.ownership.device_plugin in ("image", "cluster"):
            return {}
        pools = {plugin_config.key(pool): pool for pool in self.pools if pool.gpus and not pool.by_claim}
        pools.pop(plugin_config.DEFAULT, None)
        return dict(sorted(pools.items()))

    @property
    def cdi(self) -> bool:
        """Whether containers get their GPUs as CDI devices."""
        return self.cluster.by_cdi if isinstance(self.cluster, HostsCluster) else self.gpu_operator.cdi

    @property
    def runtime_class(self) -> str | None:
        """RuntimeClass without which a pod gets no GPU; None if the nodes' default runtime gives it."""
        if isinstance(self.cluster, HostsCluster):
            return None if self.cluster.by_cdi else NVIDIA_RUNTIME
        return self.gpu_operator.runtime_class

    @property
    def uses_packer(self) -> bool:
        """Whether pods with GPUs are placed by the packing scheduler."""
        return self.scheduling is not None and self.scheduling.packer

    @property
    def has_scaling(self) -> bool:
        """Whether any workload is scaled by its requests."""
        return any(isinstance(work, InferenceWorkload) and work.scale for work in self.workloads)

    @property
    def installs_prometheus(self) -> bool:
        """Whether the stack installs the Prometheus that measures it."""
        return self.monitoring is not None and self.monitoring.prometheus is None

    @property
    def served_workloads(self) -> tuple[InferenceWorkload, ...]:
        """Workloads with a model, which KServe serves."""
        return tuple(work for work in self.workloads if isinstance(work, InferenceWorkload) and work.model)

    @property
    def uses(self) -> tuple[Controller, ...]:
        """Controllers that act on objects of the stack, whoever installs them."""
        used: dict[Controller, bool] = {
            # It issues the certificate of KServe's webhooks.
            "cert-manager": bool(self.served_workloads) and "kserve" not in self.existing,
            "keda": self.has_scaling,
            "kserve": bool(self.served_workloads),
            "kueue": self.queues is not None,
        }
        return tuple(name for name, is_used in used.items() if is_used)

    def installs(self, controller: Controller) -> bool:
        """Whether the stack installs the controller."""
        return controller in self.uses and controller not in self.existing

    @property
    def context(self) -> str | None:
        """Context in the cluster's kubeconfig; None for its current one."""
        return self.cluster.context if isinstance(self.cluster, ExistingCluster | HostsCluster) else None

    @property
    def kubeconfig(self) -> str | None:
        """Path of the declared kubeconfig; None if the file declares none."""
        return self.cluster.kubeconfig if isinstance(self.cluster, ExistingCluster | HostsCluster) else None

    @property
    def is_simulated(self) -> bool:
        """Whether its own nodes are simulated: they pull no images, and nothing is paid for them."""
        return isinstance(self.cluster, EmbeddedCluster)

    @property
    def uses_ssh(self) -> bool:
        """Whether its nodes are prepared and checked over ssh."""
        return isinstance(self.cluster, HostsCluster)

    @property
    def has_cluster(self) -> bool:
        """Whether there is a cluster for the platform; own hosts may not have joined one yet."""
        return self.cluster.created or self.kubeconfig is not None

    @property
    def has_karpenter(self) -> bool:
        """Whether Karpenter starts the nodes of a pool."""
        return any(pool.by_karpenter for pool in self.pools)

    @property
    def prefix_delegation(self) -> bool:
        """Whether the VPC CNI must assign blocks of addresses for the pods that pools ask for; AWS only."""
        return addresses.prefix_delegation(self.pools)

    @property
    def subnets(self) -> tuple[addresses.Subnets, ...]:
        """The subnets of each zone that the stack creates, in the order of the zones; AWS only."""
        assert isinstance(self.cluster, AwsCluster)
        network = self.cluster.network
        return addresses.subnets(network) if isinstance(network, OwnNetwork) else ()

    def machine(self, name: str) -> Machine | None:
        """The machine of that name, of the cluster's own flavors before the catalogue's; None if unknown."""
        if isinstance(self.cluster, OpenstackCluster):
            return self.cluster.machine(name)
        return self.catalogue.machines.get(name)

    @cached_property
    def ownership(self) -> Ownership:
        aws = isinstance(self.cluster, AwsCluster)
        images = {pool.image.key for pool in self.pools if pool.gpus} if aws else ()
        return operator.ownership_of(self.cluster.kind, images, self.gpu_operator)

    @property
    def has_mig_manager(self) -> bool:
        """Whether a MIG manager cuts GPUs by node labels and a ConfigMap."""
        return self.ownership.mig == "operator"

    def resolved(self) -> dict[str, Any]:
        """Equivalent input with every default, without fields that have no effect on this kind of cluster."""
        exclude: Any = {
            "cluster": set(unused.cluster_fields(self.cluster.kind, self.pools)),
            "gpu_operator": set(unused.operator_fields(self.cluster.kind, self.gpu_operator, self.ownership)),
            "pools": {
                i: set(unused.pool_fields(self.cluster.kind, pool)) for i, pool in enumerate(self.pools)
            },
        }
        exclude |= {
            key: True
            for key in ("gpus", "machines", "existing", "registries", "acknowledge_loss")
            if not getattr(self, key)
        }
        return self.model_dump(mode="json", exclude_none=True, by_alias=True, exclude=exclude)

    def image(self, name: str) -> str:
        """The name by which the cluster pulls an image: in its registry's mirror, if there is one."""
        return mirrored_image(name, self.registries)

    def ami(self, pool: Pool) -> str:
        """The pinned image of the pool's nodes, an AMI id or a dated alias; AWS only."""
        assert isinstance(self.cluster, AwsCluster)
        return self.cluster.images[pool.image.key]

    def selecting_pool(self, node_labels: Mapping[str, str]) -> Pool | None:
        """The pool with a selector that finds a node with these labels, on a cluster of others."""
        found = (one for one in self.pools if one.selector and one.selector.items() <= node_labels.items())
        return next(found, None)

    def pool(self, name: str) -> Pool:
        """The pool of that name; StopIteration if the environment has no such pool."""
        return next(pool for pool in self.pools if pool.name == name)
