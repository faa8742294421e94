"""Karpenter's EC2NodeClass of a pool: image, disks, network and access of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.model.aws import images
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import OwnNetwork
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan import karpenter, node_groups, user_data
from infra.plan.manifest import Manifest, manifest

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
    metadata = {"name": pool.name, "labels": karpenter.object_labels(env, pool)}
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
