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
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from gpuform.clouds.aws.preflight.account import described
from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.stack.preflight.check import Check, Judged
from infra.model import labels
from infra.model.aws import AwsCluster
from infra.model.aws_network import ExistingNetwork
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of

SUBJECT = "endpoint of the cluster"


def checks(env: Environment, here: Here) -> Iterator[Check]:
    cluster = cluster_of(env)
    query = "--query 'cluster.[endpoint,resourcesVpcConfig.publicAccessCidrs]'"
    by_hand = f"aws eks describe-cluster --name {env.name} {query} --region {cluster.region}"
    yield Check(SUBJECT, by_hand, lambda aws: _Reach(env, cluster, here, aws).judged())


@dataclass(frozen=True)
class _Reach:
    env: Environment
    cluster: AwsCluster
    here: Here
    aws: Aws

    def judged(self) -> Judged:
        made = described(self.env, self.aws)
        endpoint = str(made.get("endpoint") or "")
        if not endpoint:
            return self._declared()
        authority = _pem(str((made.get("certificateAuthority") or {}).get("data", "")))
        answer = self.here.connect(endpoint, authority)
        access = made.get("resourcesVpcConfig") or {}
        now = (access.get("publicAccessCidrs") or ()) if access.get("endpointPublicAccess") else ()
        if answer.error:
            if self._public and {*self._public} != {*now}:
                return self._declared()  # the update opens it before it uses it
            fact = f"{endpoint} does not answer this machine: {answer.error}"
            return Judged("FAIL", fact, self._options())
        if now and not self._public and not answer.private:
            fact = "this machine reaches it by its public address, which this update closes"
            return Judged(
                "PASS", f"{fact}: change nothing else with it, and run later updates inside the VPC"
            )
        return Judged("PASS", f"{endpoint} answers")

    @property
    def _public(self) -> tuple[str, ...]:
        return self.cluster.endpoint.public_cidrs

    def _declared(self) -> Judged:
        vpcs = self._vpcs()
        inside = sorted({*vpcs} & {*self.here.vpcs()})
        if inside:
            return Judged("PASS", f"this machine is in {inside[0]}")
        if self.cluster.endpoint.reached_by == "network" and vpcs:
            fact = f"declared: this machine is connected to {vpcs[0]}; tried once the cluster exists"
            return Judged("PASS", fact)
        return self._from_outside() if self._public else self._private(vpcs)

    def _vpcs(self) -> tuple[str, ...]:
        """The declared VPC, or the one that the stack has created; empty before that."""
        if isinstance(self.cluster.network, ExistingNetwork):
            return (self.cluster.network.vpc,)
        ours = [{"Name": f"tag:{labels.ENVIRONMENT}", "Values": [self.env.name]}]
        return tuple(one["VpcId"] for one in self.aws.ask("ec2", "describe_vpcs", Filters=ours)["Vpcs"])

    def _from_outside(self) -> Judged:
        address, listed = self.here.address(), ", ".join(self._public)
        if not address:
            return Judged("SKIP", f"open to {listed}; the public address of this machine is unknown")
        fact = f"open to {listed}; the public address of this machine is {address}"
        if any(ipaddress.IPv4Address(address) in ipaddress.IPv4Network(one) for one in self._public):
            return Judged("PASS", fact)
        return Judged("FAIL", fact, self._options(address))

    def _private(self, vpcs: tuple[str, ...]) -> Judged:
        if not vpcs:
            fact = "private, and the stack creates the VPC, to which no machine is connected yet"
        else:
            fact = "private, and this machine is not known to be in the VPC or connected to it"
        return Judged("FAIL", f"{fact}: charts could not be installed", self._options(exists=bool(vpcs)))

    def _options(self, address: str = "", exists: bool = True) -> str:
        """What makes the endpoint reachable; ``exists``: there is a VPC that a machine can be in."""
        mine = f"{address or self.here.address() or 'ADDRESS'}/32"
        opened = f"endpoint.public_cidrs: [{mine}], which a later update removes"
        if not exists:
            return f"{opened}; or an existing VPC: cluster.network.vpc"
        inside = "run it in the VPC, or connected to it (VPN, peering, a proxy in HTTPS_PROXY)"
        return f"{inside}, with endpoint.reached_by: network; or {opened}"


def _pem(data: str) -> str:
    """The certificate authority, which EKS gives as PEM in base64; empty if it is not."""
    try:
        return base64.b64decode(data).decode()
    except ValueError:
        return ""


_METADATA = "http://169.254.169.254/latest"
"""EC2 instance metadata service, version 2: it answers only with a token (EC2 user guide)."""
_WHO_AM_I = "https://checkip.amazonaws.com"
"""AWS's service that answers with the address of the client."""
_METADATA_S, _ADDRESS_S, _CONNECT_S = 1.0, 5.0, 10.0


@dataclass(frozen=True)
class Answer:
    """Result of a connection: ``error`` is empty on success; ``private``: to an address of the VPC."""

    error: str = ""
    private: bool = False


class Here:
    """This machine. With ``AWS_ENDPOINT_URL`` AWS is simulated, and this machine's place is unknown."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def vpcs(self) -> tuple[str, ...]:
        """Ids of the VPCs of this machine's interfaces; empty unless it is an EC2 instance."""
        off = self._environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        if off or self._simulated:
            return ()
        try:
            with httpx.Client(timeout=_METADATA_S, trust_env=False) as client:
                ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
                token = client.put(f"{_METADATA}/api/token", headers=ttl).raise_for_status().text
                client.headers["X-aws-ec2-metadata-token"] = token
                macs = f"{_METADATA}/meta-data/network/interfaces/macs/"
                listed = client.get(macs).raise_for_status().text.split()
                return tuple(client.get(f"{macs}{mac}vpc-id").raise_for_status().text for mac in listed)
        except httpx.HTTPError:
            return ()

    def address(self) -> str:
        """The public IPv4 address of this machine's requests; empty if unknown."""
        if self._simulated:
            return ""
        try:
            found = httpx.get(_WHO_AM_I, timeout=_ADDRESS_S).raise_for_status().text.strip()
            return str(ipaddress.IPv4Address(found))
        except (httpx.HTTPError, ValueError):
            return ""

    def connect(self, endpoint: str, authority: str) -> Answer:
        """Send a request to an API server; its certificate must be signed by ``authority`` (PEM).

        Any response is success. As with kubectl and the Kubernetes provider, ``HTTPS_PROXY`` is used.
        """
        try:
            trusted = ssl.create_default_context(cadata=authority)
            httpx.get(f"{endpoint}/version", verify=trusted, timeout=_CONNECT_S)
        except (httpx.HTTPError, OSError) as error:
            return Answer(str(error) or type(error).__name__)
        return Answer(private=_private(endpoint))

    @property
    def _simulated(self) -> bool:
        return bool(self._environ.get("AWS_ENDPOINT_URL"))


def _private(endpoint: str) -> bool:
    """Whether the name resolves to private addresses only, as it does in the VPC."""
    url = urlsplit(endpoint)
    try:
        found = socket.getaddrinfo(url.hostname, url.port or 443, type=socket.SOCK_STREAM)
    except OSError:  # only the proxy resolves it
        return True
    return all(ipaddress.ip_address(one[4][0]).is_private for one in found)
