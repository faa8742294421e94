"""What a cluster leaves behind at AWS: found, distinguished from foreign resources, and deleted.

And the proof that it is gone. No answer is no proof: the network may be down, or the endpoint closed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws.api import Refused, answers, client
from gpuform.stack.destroy.teardown import Leftover, Sweeper
from infra.model import labels

Json = Mapping[str, Any]

_INSTANCE, _INTERFACE, _GROUP = "instance", "network interface", "security group"
# Interfaces of the engine's own resources, in the VPC until it deletes them.
_OF_THE_NETWORK = ("nat_gateway", "vpc_endpoint", "gateway_load_balancer_endpoint")
_GONE = (
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidGroup.NotFound",
    "InvalidInstanceID.NotFound",
    "InvalidPermission.NotFound",
)
_HELD = ("InvalidNetworkInterface.InUse", "InvalidParameterValue", "DependencyViolation")


@dataclass(frozen=True)
class Scope:
    """Cluster and VPC of the leftovers. Nothing outside of that VPC is ever looked at.

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
        wanted = {
            f"kubernetes.io/cluster/{self.cluster}": "owned",
            "eks:eks-cluster-name": self.cluster,
            "aws:eks:cluster-name": self.cluster,
            "cluster.k8s.amazonaws.com/name": self.cluster,
            "elbv2.k8s.aws/cluster": self.cluster,
            labels.ENVIRONMENT: self.environment,
        }
        return next((f"{key}={value}" for key, value in wanted.items() if tags.get(key) == value), "")


def may_be_asked(offline: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether AWS may be queried: an offline run queries only a stand-in on this machine.

    An endpoint for a single service (``AWS_ENDPOINT_URL_EC2``) overrides the one for all.
    """
    if not offline:
        return True
    given = {name: value for name, value in environ.items() if name.startswith("AWS_ENDPOINT_URL")}
    ignored = environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() not in ("", "false")
    here = all(urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost") for url in given.values())
    return "AWS_ENDPOINT_URL" in given and here and not ignored


def vpc_by_tag(region: str, environment: str) -> str:
    """Id of the environment's VPC by our tag, empty if missing: a state made offline has made-up ids."""
    with answers("aws ec2 describe-vpcs"):
        tagged = {"Name": f"tag:{labels.ENVIRONMENT}", "Values": [environment]}
        found = client("ec2", region).describe_vpcs(Filters=[tagged])["Vpcs"]
    return str(found[0]["VpcId"]) if found else ""


class Leftovers(Sweeper):
    """Leftovers of one cluster, to be deleted only once it is gone: its own security group has its mark."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._ec2 = client("ec2", scope.region)

    def find(self) -> tuple[Leftover, ...]:
        """Instances, unused network interfaces, and security groups with the cluster's mark."""
        return (*self.instances(), *self._interfaces(), *(found for found, _ in self._groups()))

    def foreign(self, unused: bool = False) -> tuple[Leftover, ...]:
        """Interfaces in the VPC that are neither the cluster's nor the network's: they block its subnets.

        While the cluster lives, only ``unused`` ones can be told from its own: a load balancer's have no
        mark. Interfaces of the cluster's instances are left out, since they go with these. Empty in a shared
        VPC, where the subnets stay.
        """
        if self.scope.shared:
            return ()
        ended = {one.id for one in self._instances(of_karpenter=False, ended=True)}
        return tuple(
            Leftover(_INTERFACE, one["NetworkInterfaceId"], _described(one))
            for one in self._all_interfaces()
            if one.get("InterfaceType") not in _OF_THE_NETWORK
            and not self._ours(one)
            and (one["Status"] == "available" or not unused)
            and (one.get("Attachment") or {}).get("InstanceId") not in ended
        )

    def instances(self, of_karpenter: bool = False) -> tuple[Leftover, ...]:
        """Instances that are not terminated; with ``of_karpenter`` only those that Karpenter launched."""
        return tuple(self._instances(of_karpenter, ended=False))

    def delete(self, one: Leftover) -> str:
        try:
            with answers(f"aws ec2: {one.kind} {one.id}"):
                if one.kind == _INSTANCE:
                    self._ec2.terminate_instances(InstanceIds=[one.id])
                elif one.kind == _INTERFACE:
                    self._ec2.delete_network_interface(NetworkInterfaceId=one.id)
                else:
                    self._ec2.delete_security_group(GroupId=one.id)
        except Refused as refused:
            if refused.code in _HELD:
                return refused.fact
            if refused.code not in _GONE:
                raise
        return ""

    def prepare(self) -> None:
        """Remove the rules from the cluster's groups: groups that reference each other cannot be deleted."""
        revokes = (
            ("IpPermissions", self._ec2.revoke_security_group_ingress),
            ("IpPermissionsEgress", self._ec2.revoke_security_group_egress),
        )
        for found, group in self._groups():
            for rules, revoke in revokes:
                try:
                    with answers(f"aws ec2 revoke-security-group-ingress: {found}"):
                        if group.get(rules):
                            revoke(GroupId=found.id, IpPermissions=group[rules])
                except Refused as refused:  # EKS deletes its own, and a listing may lag behind
                    if refused.code not in _GONE:
                        raise

    def _instances(self, of_karpenter: bool, ended: bool) -> Iterator[Leftover]:
        for reservation in self._pages("describe_instances", "Reservations"):
            for one in reservation["Instances"]:
                tags = _tags(one, "Tags")
                mark = self.scope.mark(tags)
                there = ended or one["State"]["Name"] != "terminated"
                if mark and there and (labels.NODE_POOL in tags or not of_karpenter):
                    yield Leftover(_INSTANCE, one["InstanceId"], mark)

    def _interfaces(self) -> Iterator[Leftover]:
        for one in self._all_interfaces():
            mark = self._ours(one)
            if mark and one["Status"] == "available":
                yield Leftover(_INTERFACE, one["NetworkInterfaceId"], mark)

    def _ours(self, interface: Json) -> str:
        """EKS's own interfaces have no tag, but the cluster's name in their description."""
        if interface.get("Description") == f"Amazon EKS {self.scope.cluster}":
            return str(interface["Description"])
        return self.scope.mark(_tags(interface, "TagSet"))

    def _groups(self) -> Iterator[tuple[Leftover, Json]]:
        """Without groups that have only our tag: those are the engine's."""
        for one in self._pages("describe_security_groups", "SecurityGroups"):
            tags = {key: value for key, value in _tags(one, "Tags").items() if key != labels.ENVIRONMENT}
            if (mark := self.scope.mark(tags)) and one["GroupName"] != "default":
                yield Leftover(_GROUP, one["GroupId"], mark), one

    def _all_interfaces(self) -> list[Json]:
        return list(self._pages("describe_network_interfaces", "NetworkInterfaces"))

    def _pages(self, operation: str, key: str) -> Iterator[Json]:
        within = [{"Name": "vpc-id", "Values": [self.scope.vpc]}]
        with answers(f"aws ec2 {operation.replace('_', '-')}"):
            for page in self._ec2.get_paginator(operation).paginate(Filters=within):
                yield from page[key]


def _tags(one: Json, key: str) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in one.get(key) or ()}


def _described(interface: Json) -> str:
    attached = (interface.get("Attachment") or {}).get("InstanceId")
    said = [
        interface["Status"],
        f"of {attached}" if attached else "",
        f"'{interface['Description']}'" if interface.get("Description") else "no description",
        *(f"{key}={value}" for key, value in sorted(_tags(interface, "TagSet").items())[:3]),
    ]
    return ", ".join(part for part in said if part)


def refuse_living(name: str, region: str) -> None:
    """Raise Failure if EKS has a cluster of this name, whatever a state says; changes nothing."""
    if (status := _status(name, region)) is not None:
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
    with answers("aws sts get-caller-identity"):
        account = client("sts", region).get_caller_identity()["Account"]
    if account != owner:
        raise InputError(
            "--cluster-gone",
            f"the credentials are for account {account}, but the cluster was in {owner}",
            "use credentials of that account",
        )
    if (status := _status(name, region)) is not None:
        raise InputError(
            "--cluster-gone",
            f"EKS still has cluster {name} ({status})",
            "run without it; if its endpoint does not answer, run from inside the VPC",
        )
    return f"EKS has no cluster {name} in {region}, account {account}"


def _status(name: str, region: str) -> str | None:
    """None if EKS has no such cluster; Failure for any other error."""
    call = f"aws eks describe-cluster --region {region} --name {name}"
    try:
        with answers(call):
            return str(client("eks", region).describe_cluster(name=name)["cluster"].get("status"))
    except Refused as refused:
        if refused.code == "ResourceNotFoundException":
            return None
        remedy = "this does not prove that the cluster is gone: allow eks:DescribeCluster"
        raise Failure(call, refused.fact, remedy) from None
