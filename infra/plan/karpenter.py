"""Karpenter's NodePools and NodeOverlays: what a pool may buy, its limits, disruption, and what nodes offer.

One NodePool per capacity type. Karpenter tries the highest weight first, so a paid reservation is used up
before on-demand is bought, and spot comes last. Each NodePool has the pool's whole limit: Karpenter has no
limit over several NodePools, and split limits would keep the fallback from filling in.

A pool with claimed GPUs has one static NodePool with a fixed number of nodes: Karpenter starts no node for a
pod that has only a claim.

A GPU node joins with the startup taint, which the readiness gate removes: without it, a pod is bound as soon
as the node offers what the pod requests, whether or not a single kernel has run there.

Karpenter takes a new node's capacity from its instance type, which says one GPU where there will be four
shares: it would start four nodes for four pods (its issue 729), and none for shares of another name. The
overlay says the later capacity, per node and not per GPU, so there is one overlay for each number of GPUs.
NodeOverlay is alpha (``karpenter.sh/v1alpha1``) and off by default: the release enables it if there is an
overlay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infra.model.aws import images
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import OwnNetwork
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.gpu.machines import MACHINES
from infra.model.gpu.models import GPUS
from infra.model.pool import allocatable, elastic
from infra.model.pool.elastic import DISRUPTION, Capacity, Disruption
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Exclusive
from infra.plan import node_groups, sharing, startup, user_data
from infra.plan.manifest import Manifest, label_in, manifest, own_labels

WEIGHTS: Mapping[Capacity, int] = {"reserved": 100, "on_demand": 50, "spot": 10}
"""The NodePool with the highest weight is tried first; Karpenter allows 1 to 100."""


def node_pools(env: Environment, pool: Pool) -> tuple[Manifest, ...]:
    """One NodePool per capacity type, in the declared order; empty for a managed node group's pool."""
    return tuple(node_pool(env, pool, name, capacity) for name, capacity in pool.node_pools.items())


def node_pool(env: Environment, pool: Pool, name: str, capacity: Capacity) -> Manifest:
    """The pool's NodePool for one capacity type."""
    disruption = DISRUPTION[pool.workload_class]
    optional = {
        "terminationGracePeriod": disruption.grace,
        "taints": sharing.pool_taints(env, pool),
        "startupTaints": startup.startup_taints(env, pool),
    }
    node_spec = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": pool.name},
        "requirements": requirements(pool, capacity),
        "expireAfter": disruption.expire_after,
        **{key: value for key, value in optional.items() if value},
    }
    if pool.by_claim:
        fields = _static_size(pool, disruption)
    else:
        fields = {"weight": WEIGHTS[capacity], "limits": limits(pool), "disruption": disruption.block()}
    spec = {**fields, "template": {"metadata": node_metadata(env, pool), "spec": node_spec}}
    return manifest(
        "NodePool", {"name": name, "labels": object_labels(env, pool)}, "karpenter.sh/v1", spec=spec
    )


def _static_size(pool: Pool, disruption: Disruption) -> Manifest:
    """A static NodePool: no weight, no limit but that of nodes, and no consolidation.

    Without room for one more node, Karpenter would keep a drifted node rather than remove it first.
    """
    assert pool.nodes is not None
    return {
        "replicas": pool.nodes,
        "limits": {"nodes": str(pool.nodes + elastic.SURGE)},
        "disruption": {**disruption.block(), "consolidateAfter": "Never"},
    }


def object_labels(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels of Karpenter's objects themselves, not of nodes."""
    return own_labels(env, POOL=pool.name)


def node_metadata(env: Environment, pool: Pool) -> Manifest:
    """Labels of new nodes, and in annotations what a node must offer to pass the readiness gate.

    For a MIG layout with a chosen name, an annotation has a hash of its content: if the name gets another
    content, only the annotation tells Karpenter that its nodes have drifted.
    """
    annotations = startup.offer_annotations(env, pool)
    content = sharing.layout_content(pool) if env.has_mig_manager else None
    if content is not None:
        annotations = {**annotations, labels.MIG_LAYOUT: content}
    return {"labels": node_labels(env, pool), **({"annotations": annotations} if annotations else {})}


def node_labels(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels that a new node joins with.

    A MIG layout is among them: a new node runs nothing that the MIG manager would have to wait for. Not so if
    the image has its own device plugin, which applies MIG from user data, or without the operator: neither
    reads the label.
    """
    join_labels = sharing.pool_labels(env, pool)
    config_name = sharing.mig_config_name(pool)
    if config_name is not None and env.has_mig_manager:
        join_labels[labels.MIG_CONFIG] = config_name
    return dict(sorted(join_labels.items()))


def limits(pool: Pool) -> dict[str, str]:
    """The NodePool's limits, by the resource names that its nodes offer once the operands have run."""
    assert pool.elastic is not None
    amounts = {key: str(limit) for key, limit in pool.elastic.max.items() if key != elastic.MEMORY_GIB}
    if elastic.MEMORY_GIB in pool.elastic.max:
        amounts["memory"] = f"{pool.elastic.max[elastic.MEMORY_GIB]}Gi"
    return dict(sorted(amounts.items()))


def requirements(pool: Pool, capacity: Capacity) -> list[Manifest]:
    """Requirements: architecture, OS, capacity type, zones, and the instance type or its GPUs."""
    terms = [
        label_in(labels.ARCH, [pool.image.arch]),
        label_in(labels.OS, ["linux"]),
        label_in(labels.CAPACITY_TYPE, [elastic.CAPACITY_TYPES[capacity]]),
    ]
    if pool.zones:
        terms.append(label_in(labels.ZONE, sorted(pool.zones)))
    return [*terms, *machine_requirements(pool)]


def machine_requirements(pool: Pool) -> list[Manifest]:
    """The instance type, or the GPUs' model, memory and number.

    Name and memory are two lists, so two models can also match a third one (A100 40GB with H100 matches A100
    80GB): types of our table that were not meant are then excluded by name.
    """
    if pool.gpu is None:
        return [label_in(labels.INSTANCE_TYPE, [pool.machine or ""])]
    ec2_names = [gpu.ec2 for gpu in pool.gpus if gpu.ec2]
    if any(machine.is_declared for machine in pool.machines):  # EC2's names of declared GPUs are not known
        return [label_in(labels.INSTANCE_TYPE, sorted(machine.name for machine in pool.machines))]
    names, sizes = {name for name, _ in ec2_names}, {size for _, size in ec2_names}
    terms = [
        label_in(labels.INSTANCE_GPU_NAME, sorted(names)),
        label_in(labels.INSTANCE_GPU_COUNT, [str(count) for count in pool.gpu_counts]),
        label_in(labels.INSTANCE_GPU_MEMORY, [str(size) for size in sorted(sizes)]),
    ]
    matched = [gpu.name for gpu in GPUS.values() if gpu.ec2 and gpu.ec2[0] in names and gpu.ec2[1] in sizes]
    unwanted = [
        machine.name
        for machine in MACHINES.values()
        if machine.seller == "ec2" and machine.gpus in pool.gpu_counts
        if machine.gpu in matched and machine.gpu not in pool.gpu.models
    ]
    if unwanted:
        terms.append({"key": labels.INSTANCE_TYPE, "operator": "NotIn", "values": sorted(unwanted)})
    return terms


def node_overlays(env: Environment, pool: Pool) -> tuple[Manifest, ...]:
    """Overlays of an elastic pool: one per number of GPUs of its machines, unless its GPUs are exclusive, and
    one for its nodes' huge pages, which no instance type has by itself.
    """
    if pool.elastic is None:
        return ()
    names = sorted(pool.node_pools)
    overlays = gpu_overlays(env, pool, names, {machine.gpus for machine in pool.machines})
    if pool.hugepages:
        overlays.append(_overlay(env, pool, names, "hugepages", {labels.HUGE_PAGES: pool.hugepages}))
    return tuple(overlays)


def gpu_overlays(env: Environment, pool: Pool, names: list[str], counts: Iterable[int]) -> list[Manifest]:
    """For each number of GPUs of the nodes of these NodePools; none if its GPUs are exclusive."""
    if not pool.gpus or isinstance(pool.sharing, Exclusive):
        return []
    return [
        _overlay(
            env,
            pool,
            names,
            f"{count}-gpu",
            overlay_capacity(env, pool, count),
            label_in(labels.INSTANCE_GPU_COUNT, [str(count)]),
        )
        for count in sorted(counts)
    ]


def _overlay(
    env: Environment,
    pool: Pool,
    names: list[str],
    suffix: str,
    resources: dict[str, str],
    *terms: dict[str, Any],
) -> Manifest:
    of_pool = label_in(labels.NODE_POOL, names)
    metadata = {"name": f"{pool.name}-{suffix}", "labels": object_labels(env, pool)}
    spec = {"requirements": [of_pool, *terms], "capacity": resources}
    return manifest("NodeOverlay", metadata, "karpenter.sh/v1alpha1", spec=spec)


def overlay_capacity(env: Environment, pool: Pool, count: int) -> dict[str, str]:
    """Extended resources of a node with ``count`` GPUs.

    If the whole GPU is not offered under its own name, it is set to 0: else Karpenter would buy such a node
    for a pod that requests a whole GPU, and the pod would stay pending.
    """
    resources = {name: str(amount) for name, amount in allocatable.resources(pool, count).items()}
    resources.setdefault(labels.NVIDIA_GPU, "0")
    return dict(sorted(resources.items()))


BOTTLEROCKET_ROOT_GIB = 4
"""Disk of the operating system, at Karpenter's default size; containers use the second disk."""


def node_role(env: Environment) -> str:
    """Name of the IAM role of Karpenter's nodes."""
    return f"{env.name}-karpenter-node"


def ec2_node_class(
    env: Environment, pool: Pool, role_name: str, discovery: str, subnets: Mapping[str, Any] | None = None
) -> Manifest:
    """The EC2NodeClass; subnets and security groups are those tagged ``karpenter.sh/discovery: discovery``.

    Only the private subnets may carry the tag. Subnets of an existing VPC are listed by id, so that its owner
    need not tag them; ``subnets`` are these ids by zone, as found by their tags. Karpenter makes the instance
    profile for the role itself.
    """
    cluster = node_groups.cluster_of(env)
    discovery_terms = [{"tags": {labels.KARPENTER_DISCOVERY: discovery}}]
    spec: Manifest = {
        "amiFamily": pool.image.family,
        "amiSelectorTerms": [_image(cluster, pool)],
        "role": role_name,
        "subnetSelectorTerms": _subnets(cluster, subnets or {}) or discovery_terms,
        "securityGroupSelectorTerms": discovery_terms,
        "blockDeviceMappings": block_devices(pool),
        # A pod is one hop further from the metadata service than its node, so it cannot get its credentials.
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "required",
        },
        "tags": node_groups.instance_tags(env, pool),
    }
    spec.update(_options(env, pool))
    metadata = {"name": pool.name, "labels": object_labels(env, pool)}
    return manifest("EC2NodeClass", metadata, "karpenter.k8s.aws/v1", spec=spec)


def _subnets(cluster: AwsCluster, ids_by_zone: Mapping[str, Any]) -> list[Manifest]:
    """Terms for the subnets of an existing VPC, in braces if only AWS knows the id; empty for a new VPC."""
    network = cluster.network
    if isinstance(network, OwnNetwork):
        return []
    ids = {**network.subnet_ids, **ids_by_zone}
    return [{"id": ids.get(zone, f"{{subnet of {zone}}}")} for zone in network.zones]


def _options(env: Environment, pool: Pool) -> Manifest:
    aws = pool.aws_settings
    options: Manifest = {}
    if aws.max_pods is not None:  # Karpenter's schema has no limit of processes, which is in the user data
        options["kubelet"] = {"maxPods": aws.max_pods}
    if "reserved" in pool.capacity:
        options["capacityReservationSelectorTerms"] = [{"id": name} for name in sorted(aws.reservations)]
    if aws.instance_store:
        options["instanceStorePolicy"] = aws.instance_store.upper()
    if aws.efa:
        options["networkInterfaces"] = network_interfaces(pool)
    text = user_data.render(env, pool)
    if text:
        options["userData"] = text
    return options


def _image(cluster: AwsCluster, pool: Pool) -> dict[str, str]:
    """One pinned image; with an alias, Karpenter picks the NVIDIA variant by the instance's GPU."""
    pin = cluster.images[pool.image.key]
    return {"alias" if images.is_alias(pin) else "id": pin}


def block_devices(pool: Pool) -> list[Manifest]:
    """Encrypted gp3 volumes; the declared one holds the containers and their images."""
    disk, image = pool.aws_settings.disk, pool.image
    common = {"volumeType": "gp3", "encrypted": True, "deleteOnTermination": True}
    size = f"{disk.size_gib}Gi"
    declared = {**common, "volumeSize": size, "iops": disk.iops, "throughput": disk.throughput}
    if image.data_device is None:
        return [{"deviceName": image.root_device, "ebs": declared}]
    system = {**common, "volumeSize": f"{BOTTLEROCKET_ROOT_GIB}Gi"}
    return [
        {"deviceName": image.root_device, "ebs": system},
        {"deviceName": image.data_device, "ebs": declared},
    ]


def network_interfaces(pool: Pool) -> list[Manifest]:
    """An interface with the node's IP address, and an EFA-only interface on each network card with EFA.

    The EFA of card 0 has device index 1, those of other cards 0: AWS's page "Maximize network bandwidth on
    Amazon EC2 instances with multiple network cards". If the pool leaves the instance type open, there are as
    many cards as its smallest type has.
    """
    first = pool.machines[0].efa_from
    primary = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    adapters = [
        {"networkCardIndex": card, "deviceIndex": 0 if card else 1, "interfaceType": "efa-only"}
        for card in range(first, first + pool.adapters)
    ]
    return [primary, *adapters]
