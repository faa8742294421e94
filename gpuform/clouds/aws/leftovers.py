"""Finds what a cluster leaves behind at AWS, tells it from foreign resources, and deletes it.

Also proves that a cluster is gone. No answer proves nothing: the network may be down, or the endpoint closed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws.api import AwsError, create_client, translate_errors
from gpuform.stack.destroy.teardown import Leftover, Sweeper
from infra.model.base import labels

Json = Mapping[str, Any]

_INSTANCE, _INTERFACE, _GROUP = "instance", "network interface", "security group"
# Interfaces of the engine's own resources, in the VPC until it deletes them.
_NETWORK_INTERFACE_TYPES = ("nat_gateway", "vpc_endpoint", "gateway_load_balancer_endpoint")
_NOT_FOUND_CODES = (
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidGroup.NotFound",
    "InvalidInstanceID.NotFound",
    "InvalidPermission.NotFound",
)
_IN_USE_CODES = ("InvalidNetworkInterface.InUse", "InvalidParameterValue", "DependencyViolation")


@dataclass(frozen=True)
class Scope:
    """Cluster and VPC of the leftovers. Resources outside that VPC are never read.

    ``shared``: the stack did not create the VPC, which stays with its other contents.
    """

    region: str
    cluster: str
    environment: str
    vpc: str
    shared: bool = False

    def mark(self, tags: Mapping[str, str]) -> str:
        """The tag that marks a resource as this cluster's, as ``key=value``; empty without one.

        Tags of Karpenter and the load balancer controllers, of EKS, of the VPC CNI (``pkg/awsutils``), and
        ours.
        """
        own_tags = {
            f"kubernetes.io/cluster/{self.cluster}": "owned",
            "eks:eks-cluster-name": self.cluster,
            "aws:eks:cluster-name": self.cluster,
            "cluster.k8s.amazonaws.com/name": self.cluster,
            "elbv2.k8s.aws/cluster": self.cluster,
            labels.ENVIRONMENT: self.environment,
        }
        return next((f"{key}={value}" for key, value in own_tags.items() if tags.get(key) == value), "")


def may_query_aws(offline: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether AWS may be queried: an offline run queries only a stand-in on this machine.

    An endpoint for a single service (``AWS_ENDPOINT_URL_EC2``) overrides the one for all.
    """
    if not offline:
        return True
    endpoints = {name: value for name, value in environ.items() if name.startswith("AWS_ENDPOINT_URL")}
    are_ignored = environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() not in ("", "false")
    is_local = all(urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost") for url in endpoints.values())
    return "AWS_ENDPOINT_URL" in endpoints and is_local and not are_ignored


def vpc_id_by_tag(region: str, environment: str) -> str:
    """Id of the environment's VPC by our tag, empty if missing: a state made offline has made-up ids."""
    with translate_errors("aws ec2 describe-vpcs"):
        tag_filter = {"Name": f"tag:{labels.ENVIRONMENT}", "Values": [environment]}
        vpcs = create_client("ec2", region).describe_vpcs(Filters=[tag_filter])["Vpcs"]
    return str(vpcs[0]["VpcId"]) if vpcs else ""


class Leftovers(Sweeper):
    """Leftovers of one cluster, to be deleted only once it is gone: its own security group has its mark."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._ec2 = create_client("ec2", scope.region)

    def find(self) -> tuple[Leftover, ...]:
        """Instances, unused network interfaces, and security groups with the cluster's mark."""
        return (*self.instances(), *self._interfaces(), *(group for group, _ in self._security_groups()))

    def foreign(self, unused: bool = False) -> tuple[Leftover, ...]:
        """Interfaces in the VPC that are neither the cluster's nor the network's: they block its subnets.

        While the cluster lives, only ``unused`` ones can be told from its own: a load balancer's have no
        mark. Interfaces of the cluster's instances are left out, since they go with these. Empty in a shared
        VPC, where the subnets stay.
        """
        if self.scope.shared:
            return ()
        instance_ids = {one.id for one in self._instances(of_karpenter=False, with_terminated=True)}
        return tuple(
            Leftover(_INTERFACE, interface["NetworkInterfaceId"], _describe_interface(interface))
            for interface in self._all_interfaces()
            if interface.get("InterfaceType") not in _NETWORK_INTERFACE_TYPES
            and not self._mark_of(interface)
            and (interface["Status"] == "available" or not unused)
            and (interface.get("Attachment") or {}).get("InstanceId") not in instance_ids
        )

    def instances(self, of_karpenter: bool = False) -> tuple[Leftover, ...]:
        """Instances that are not terminated; with ``of_karpenter`` only those that Karpenter launched."""
        return tuple(self._instances(of_karpenter, with_terminated=False))

    def delete(self, leftover: Leftover) -> str:
        try:
            with translate_errors(f"aws ec2: {leftover.kind} {leftover.id}"):
                if leftover.kind == _INSTANCE:
                    self._ec2.terminate_instances(InstanceIds=[leftover.id])
                elif leftover.kind == _INTERFACE:
                    self._ec2.delete_network_interface(NetworkInterfaceId=leftover.id)
                else:
                    self._ec2.delete_security_group(GroupId=leftover.id)
        except AwsError as error:
            if error.code in _IN_USE_CODES:
                return error.fact
            if error.code not in _NOT_FOUND_CODES:
                raise
        return ""

    def prepare(self) -> None:
        """Remove the rules from the cluster's groups: groups that reference each other cannot be deleted."""
        revokes = (
            ("IpPermissions", self._ec2.revoke_security_group_ingress),
            ("IpPermissionsEgress", self._ec2.revoke_security_group_egress),
        )
        for leftover, group in self._security_groups():
            for rules, revoke in revokes:
                try:
                    with translate_errors(f"aws ec2 revoke-security-group-ingress: {leftover}"):
                        if group.get(rules):
                            revoke(GroupId=leftover.id, IpPermissions=group[rules])
                except AwsError as error:  # EKS deletes its own, and a listing may lag behind
                    if error.code not in _NOT_FOUND_CODES:
                        raise

    def _instances(self, of_karpenter: bool, with_terminated: bool) -> Iterator[Leftover]:
        for reservation in self._pages("describe_instances", "Reservations"):
            for instance in reservation["Instances"]:
                tags = _tags(instance, "Tags")
                mark = self.scope.mark(tags)
                counts = with_terminated or instance["State"]["Name"] != "terminated"
                if mark and counts and (labels.NODE_POOL in tags or not of_karpenter):
                    yield Leftover(_INSTANCE, instance["InstanceId"], mark)

    def _interfaces(self) -> Iterator[Leftover]:
        for interface in self._all_interfaces():
            mark = self._mark_of(interface)
            if mark and interface["Status"] == "available":
                yield Leftover(_INTERFACE, interface["NetworkInterfaceId"], mark)

    def _mark_of(self, interface: Json) -> str:
        """EKS's own interfaces have no tag, but the cluster's name in their description."""
        if interface.get("Description") == f"Amazon EKS {self.scope.cluster}":
            return str(interface["Description"])
        return self.scope.mark(_tags(interface, "TagSet"))

    def _security_groups(self) -> Iterator[tuple[Leftover, Json]]:
        """Without groups that have only our tag: those are the engine's."""
        for group in self._pages("describe_security_groups", "SecurityGroups"):
            tags = {key: value for key, value in _tags(group, "Tags").items() if key != labels.ENVIRONMENT}
            if (mark := self.scope.mark(tags)) and group["GroupName"] != "default":
                yield Leftover(_GROUP, group["GroupId"], mark), group

    def _all_interfaces(self) -> list[Json]:
        return list(self._pages("describe_network_interfaces", "NetworkInterfaces"))

    def _pages(self, operation: str, key: str) -> Iterator[Json]:
        vpc_filter = [{"Name": "vpc-id", "Values": [self.scope.vpc]}]
        with translate_errors(f"aws ec2 {operation.replace('_', '-')}"):
            for page in self._ec2.get_paginator(operation).paginate(Filters=vpc_filter):
                yield from page[key]


def _tags(resource: Json, key: str) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get(key) or ()}


def _describe_interface(interface: Json) -> str:
    instance = (interface.get("Attachment") or {}).get("InstanceId")
    parts = [
        interface["Status"],
        f"of {instance}" if instance else "",
        f"'{interface['Description']}'" if interface.get("Description") else "no description",
        *(f"{key}={value}" for key, value in sorted(_tags(interface, "TagSet").items())[:3]),
    ]
    return ", ".join(part for part in parts if part)


def require_no_cluster(name: str, region: str) -> None:
    """Raise Failure if EKS has a cluster of this name, whatever a state says; changes nothing."""
    if (status := _cluster_status(name, region)) is not None:
        raise Failure(
            "destroy: leftovers at AWS",
            f"EKS still has cluster {name} ({status}), but the stack's state has none",
            "no leftovers are deleted while it exists: delete it, or wait until it is gone, and run the same "
            "command again",
        )


def require_gone(name: str, owner: str, region: str) -> str:
    """EKS's confirmation that the cluster of account ``owner`` is gone, as a line; changes nothing.

    Raises InputError if the cluster exists, or if the credentials are those of another account, which has no
    such cluster either; Failure for any other answer of EKS.
    """
    with translate_errors("aws sts get-caller-identity"):
        account = create_client("sts", region).get_caller_identity()["Account"]
    if account != owner:
        raise InputError(
            "--cluster-gone",
            f"the credentials are for account {account}, but the cluster was in {owner}",
            "use credentials of that account",
        )
    if (status := _cluster_status(name, region)) is not None:
        raise InputError(
            "--cluster-gone",
            f"EKS still has cluster {name} ({status})",
            "run without it; if its endpoint does not answer, run from inside the VPC",
        )
    return f"EKS has no cluster {name} in {region}, account {account}"


def _cluster_status(name: str, region: str) -> str | None:
    """None if EKS has no such cluster; Failure for any other error."""
    call = f"aws eks describe-cluster --region {region} --name {name}"
    try:
        with translate_errors(call):
            return str(create_client("eks", region).describe_cluster(name=name)["cluster"].get("status"))
    except AwsError as error:
        if error.code == "ResourceNotFoundException":
            return None
        remedy = "this does not prove that the cluster is gone: allow eks:DescribeCluster"
        raise Failure(call, error.fact, remedy) from None
