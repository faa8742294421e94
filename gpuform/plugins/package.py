"""The whole platform as one component for programs in any Pulumi language.

The package is called ``gpuform-platform``, not ``gpuform``: that is the provider of our own resource types,
and a program that uses this component needs both.
"""

# No postponed annotations here: the schema's reader takes them as they are.

import sys
from importlib.metadata import version
from typing import Any, Optional, TypedDict

import pulumi
from pulumi.provider import ConstructResult
from pulumi.provider import main as serve
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

from components.embedded_cluster import EmbeddedCluster, EmbeddedClusterArgs
from components.existing_cluster import ExistingCluster, ExistingClusterArgs
from infra.config import parse
from infra.model.environment import Environment
from infra.model.errors import InputError
from infra.plan.sharing import offered
from infra.platform import platform
from infra.target import Target

PACKAGE = "gpuform-platform"


class GpuPlatformArgs(TypedDict):
    """What the component takes. The package schema is read from these annotations."""

    environment: dict[str, Any]
    """The environment, as `gpuform:environment` of a stack file has it. Decides which resources there are, so
    it must be known before the run."""
    kubeconfig: Optional[pulumi.Input[str]]  # noqa: UP045 - the schema's reader knows no other spelling
    """Path of a kubeconfig, where the environment's cluster is embedded; an existing one names its own."""


class GpuPlatform(pulumi.ComponentResource):
    """Node pools, the GPU operator, sharing and workloads on one cluster."""

    offered: pulumi.Output[dict[str, dict[str, int]]]
    """What each node of a pool offers, by pool and resource name."""

    def __init__(
        self,
        name: str,
        args: GpuPlatformArgs,
        opts: Optional[pulumi.ResourceOptions] = None,  # noqa: UP045
    ) -> None:
        """Register everything; bad input fails with its path, the fact and the remedy."""
        super().__init__(f"{PACKAGE}:index:GpuPlatform", name, {}, opts)
        try:
            environment = parse(_whole(args["environment"]))
        except InputError as error:
            raise pulumi.InputPropertyError("environment", str(error)) from None
        target = _cluster(name, environment, args.get("kubeconfig"), self)
        platform(environment, target, within=self, prefix=f"{name}-")
        self.offered = pulumi.Output.from_input(
            {pool.name: offered(environment, pool) for pool in environment.pools}
        )
        self.register_outputs({"offered": self.offered})


def _whole(value: Any) -> Any:
    """``value`` with its whole numbers as such: between the engine and a plugin every number is a float."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _cluster(
    name: str, environment: Environment, kubeconfig: pulumi.Input[str] | None, parent: pulumi.Resource
) -> Target:
    opts = pulumi.ResourceOptions(parent=parent)
    on: EmbeddedCluster | ExistingCluster
    if environment.cluster.kind == "existing":
        on = ExistingCluster(name, ExistingClusterArgs(cluster=environment.cluster), opts)
        return Target(kubeconfig=on.kubeconfig, provider=on.provider)
    if environment.cluster.kind != "embedded":
        raise pulumi.InputPropertyError(
            "environment",
            f"cluster.kind: {environment.cluster.kind} makes a cluster, and this component only fills one; "
            "use kind: existing with its kubeconfig",
        )
    if kubeconfig is None:
        raise pulumi.InputPropertyError(
            "kubeconfig",
            "is missing; an embedded cluster needs the path that 'gpuform local env' prints as KUBECONFIG",
        )
    on = EmbeddedCluster(name, EmbeddedClusterArgs(kubeconfig=kubeconfig), opts)
    return Target(kubeconfig=on.kubeconfig, provider=on.provider)


class _Provider(ComponentProvider):
    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: Any,
        options: Optional[pulumi.ResourceOptions] = None,  # noqa: UP045
    ) -> ConstructResult:
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as error:
            if isinstance(error.inner, pulumi.InputPropertyError):
                raise error.inner from None  # as the SDK has it, the user would get our traceback
            raise


def main() -> None:
    """Serve the component to the engine that started this process."""
    serve(_Provider([GpuPlatform], PACKAGE, version=version("gpuform")), sys.argv[1:])
