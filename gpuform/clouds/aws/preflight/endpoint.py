"""Whether this machine reaches the cluster's API server, through which an update installs charts and objects.

An existing endpoint is tried. Before that, the declaration is judged: EKS opens the endpoint to
``endpoint.public_cidrs``, and to the VPC and networks connected to it (EKS user guide, "Cluster API server
endpoint"). The access can be changed later in place, by one ``UpdateClusterConfig`` (terraform-provider-aws,
``internal/service/eks/cluster.go``).
"""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from gpuform.clouds.aws.preflight.account import Aws, describe_cluster
from gpuform.kubernetes.credentials import trust
from gpuform.stack.preflight.check import Check, Result
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of

SUBJECT = "endpoint of the cluster"


def checks(env: Environment, machine: LocalMachine) -> Iterator[Check]:
    cluster = cluster_of(env)
    query = "--query 'cluster.[endpoint,resourcesVpcConfig.publicAccessCidrs]'"
    by_hand = f"aws eks describe-cluster --name {env.name} {query} --region {cluster.region}"
    yield Check(SUBJECT, by_hand, lambda aws: _EndpointCheck(env, cluster, machine, aws).judge())


@dataclass(frozen=True)
class _EndpointCheck:
    env: Environment
    cluster: AwsCluster
    machine: LocalMachine
    aws: Aws

    def judge(self) -> Result:
        described = describe_cluster(self.env, self.aws)
        endpoint = str(described.get("endpoint") or "")
        if not endpoint:
            return self._judge_declaration()
        authority = _decode_pem(str((described.get("certificateAuthority") or {}).get("data", "")))
        connection = self.machine.connect(endpoint, authority)
        access = described.get("resourcesVpcConfig") or {}
        open_cidrs = (access.get("publicAccessCidrs") or ()) if access.get("endpointPublicAccess") else ()
        if connection.error:
            if self._public_cidrs and {*self._public_cidrs} != {*open_cidrs}:
                return self._judge_declaration()  # the update opens it before it uses it
            fact = f"{endpoint} does not answer this machine: {connection.error}"
            return Result("FAIL", fact, self._remedy())
        if open_cidrs and not self._public_cidrs and not connection.is_private:
            fact = "this machine reaches it by its public address, which this update closes"
            advice = "change nothing else with it, and run later updates inside the VPC"
            return Result("PASS", f"{fact}: {advice}")
        return Result("PASS", f"{endpoint} answers")

    @property
    def _public_cidrs(self) -> tuple[str, ...]:
        return self.cluster.endpoint.public_cidrs

    def _judge_declaration(self) -> Result:
        vpcs = self._vpc_ids()
        own_vpcs = sorted({*vpcs} & {*self.machine.vpc_ids()})
        if own_vpcs:
            return Result("PASS", f"this machine is in {own_vpcs[0]}")
        if self.cluster.endpoint.reached_by == "network" and vpcs:
            fact = f"declared: this machine is connected to {vpcs[0]}; tried once the cluster exists"
            return Result("PASS", fact)
        return self._judge_public() if self._public_cidrs else self._judge_private(vpcs)

    def _vpc_ids(self) -> tuple[str, ...]:
        """The declared VPC, or the one that the stack has created; empty before that."""
        if isinstance(self.cluster.network, ExistingNetwork):
            return (self.cluster.network.vpc,)
        tag_filter = [{"Name": f"tag:{labels.ENVIRONMENT}", "Values": [self.env.name]}]
        found = self.aws.query("ec2", "describe_vpcs", Filters=tag_filter)["Vpcs"]
        return tuple(vpc["VpcId"] for vpc in found)

    def _judge_public(self) -> Result:
        address, cidrs = self.machine.public_address(), ", ".join(self._public_cidrs)
        if not address:
            return Result("SKIP", f"open to {cidrs}; the public address of this machine is unknown")
        fact = f"open to {cidrs}; the public address of this machine is {address}"
        if any(ipaddress.IPv4Address(address) in ipaddress.IPv4Network(cidr) for cidr in self._public_cidrs):
            return Result("PASS", fact)
        return Result("FAIL", fact, self._remedy(address))

    def _judge_private(self, vpcs: tuple[str, ...]) -> Result:
        if not vpcs:
            fact = "private, and the stack creates the VPC, to which no machine is connected yet"
        else:
            fact = "private, and this machine is not known to be in the VPC or connected to it"
        return Result("FAIL", f"{fact}: charts could not be installed", self._remedy(exists=bool(vpcs)))

    def _remedy(self, address: str = "", exists: bool = True) -> str:
        """What makes the endpoint reachable; ``exists``: there is a VPC that a machine can be in."""
        cidr = f"{address or self.machine.public_address() or 'ADDRESS'}/32"
        public = f"endpoint.public_cidrs: [{cidr}], which a later update removes"
        if not exists:
            return f"{public}; or an existing VPC: cluster.network.vpc"
        private = "run it in the VPC, or connected to it (VPN, peering, a proxy in HTTPS_PROXY)"
        return f"{private}, with endpoint.reached_by: network; or {public}"


def _decode_pem(data: str) -> str:
    """The certificate authority, which EKS gives as PEM in base64; empty if it is not."""
    try:
        return base64.b64decode(data).decode()
    except ValueError:
        return ""


_METADATA = "http://169.254.169.254/latest"
"""EC2 instance metadata service, version 2: it answers only with a token (EC2 user guide)."""
_ADDRESS_SERVICE = "https://checkip.amazonaws.com"
"""AWS's service that answers with the address of the client."""
_METADATA_S, _ADDRESS_S, _CONNECT_S = 1.0, 5.0, 10.0


@dataclass(frozen=True)
class ConnectionResult:
    """Result of a connection: ``error`` is empty on success; ``is_private``: to an address of the VPC."""

    error: str = ""
    is_private: bool = False


class LocalMachine:
    """This machine. With ``AWS_ENDPOINT_URL`` AWS is simulated, and this machine's place is unknown."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def vpc_ids(self) -> tuple[str, ...]:
        """Ids of the VPCs of this machine's interfaces; empty unless it is an EC2 instance."""
        is_disabled = self._environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        if is_disabled or self._simulated:
            return ()
        try:
            with httpx.Client(timeout=_METADATA_S, trust_env=False) as client:
                ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
                token = client.put(f"{_METADATA}/api/token", headers=ttl).raise_for_status().text
                client.headers["X-aws-ec2-metadata-token"] = token
                macs = f"{_METADATA}/meta-data/network/interfaces/macs/"
                addresses = client.get(macs).raise_for_status().text.split()
                return tuple(client.get(f"{macs}{mac}vpc-id").raise_for_status().text for mac in addresses)
        except httpx.HTTPError:
            return ()

    def public_address(self) -> str:
        """The public IPv4 address of this machine's requests; empty if unknown."""
        if self._simulated:
            return ""
        try:
            text = httpx.get(_ADDRESS_SERVICE, timeout=_ADDRESS_S).raise_for_status().text.strip()
            return str(ipaddress.IPv4Address(text))
        except (httpx.HTTPError, ValueError):
            return ""

    def connect(self, endpoint: str, authority: str) -> ConnectionResult:
        """Send a request to an API server; its certificate must be signed by ``authority`` (PEM).

        Any response is success. As with kubectl and the Kubernetes provider, ``HTTPS_PROXY`` is used.
        """
        try:
            httpx.get(f"{endpoint}/version", verify=trust(authority), timeout=_CONNECT_S)
        except (httpx.HTTPError, OSError) as error:
            return ConnectionResult(str(error) or type(error).__name__)
        return ConnectionResult(is_private=_resolves_privately(endpoint))

    @property
    def _simulated(self) -> bool:
        return bool(self._environ.get("AWS_ENDPOINT_URL"))


def _resolves_privately(endpoint: str) -> bool:
    """Whether the name resolves to private addresses only, as it does in the VPC."""
    url = urlsplit(endpoint)
    try:
        addresses = socket.getaddrinfo(url.hostname, url.port or 443, type=socket.SOCK_STREAM)
    except OSError:  # only the proxy resolves it
        return True
    return all(ipaddress.ip_address(address[4][0]).is_private for address in addresses)
