"""Whether this machine reaches the cluster's API server, through which an update installs charts and objects.

An existing endpoint is tried. Before that, the declaration is judged: EKS opens the endpoint to
``endpoint.public_cidrs``, and to the VPC and networks connected to it (EKS user guide, "Cluster API server
endpoint"). The access can be changed later in place, by one ``UpdateClusterConfig`` (terraform-provider-aws,
``internal/service/eks/cluster.go``).
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from gpuform.clouds.aws.preflight.account import described
from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.clouds.aws.preflight.here import Here
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
