"""The kinds of cluster that an environment may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from infra.model.aws.cluster import AwsCluster
from infra.model.base.fields import ClusterModel, option, required
from infra.model.hosts.cluster import ContextName, FilePath, HostsCluster
from infra.model.openstack.cluster import OpenstackCluster


class EmbeddedCluster(ClusterModel):
    """The control plane on this machine, with simulated nodes."""

    kind: Literal["embedded"]


class ExistingCluster(ClusterModel):
    """An existing cluster; its nodes are neither created nor deleted."""

    kind: Literal["existing"]
    kubeconfig: FilePath = required("Path of the kubeconfig.")
    context: ContextName | None = option("Context in it; its current one if left out.")


Cluster = Annotated[
    EmbeddedCluster | ExistingCluster | AwsCluster | HostsCluster | OpenstackCluster,
    Field(discriminator="kind"),
]

KINDS: Mapping[str, type[ClusterModel]] = {
    "aws": AwsCluster,
    "embedded": EmbeddedCluster,
    "existing": ExistingCluster,
    "hosts": HostsCluster,
    "openstack": OpenstackCluster,
}
