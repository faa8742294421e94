"""The whole platform as one component for programs in any Pulumi language, and each workload as its own.

Served by the provider of our own resource types (`gpuform.provider.own`).
"""

# No postponed annotations here: the schema's reader needs the types themselves.

import json
from importlib.metadata import version
from typing import Any, Optional, TypedDict

import pulumi
from pulumi.provider import ConstructResult
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

from components.workloads import COMPONENTS
from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.pool.allocatable import resources
from infra.model.workload.workload import Workload
from infra.program import target
from infra.program.package_schema import object_types
from infra.program.platform import platform
from infra.program.target import Target
from infra.program.workloads import arguments

PACKAGE = "gpuform"


class GpuPlatformArgs(TypedDict):
    """Inputs of the component; the package schema is read from these annotations."""

    environment: dict[str, Any]
    """The environment, as under `gpuform:environment` in a stack file. It decides which resources exist, so
    it must be known before the run."""
    kubeconfig: Optional[pulumi.Input[str]]  # noqa: UP045 - the schema's reader knows no other spelling
    """Path of a kubeconfig, if the environment's cluster is embedded; an existing cluster names its own."""


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
        """Invalid input raises InputPropertyError with its path, the fact and the remedy."""
        super().__init__(f"{PACKAGE}:index:GpuPlatform", name, {}, _with_former_name(self, opts))
        try:
            environment = parse(_with_integers(args["environment"]))
        except InputError as error:
            raise pulumi.InputPropertyError("environment", str(error)) from None
        cluster = _target(name, environment, args.get("kubeconfig"), self)
        platform(environment, cluster, parent=self, prefix=f"{name}-")
        self.offered = pulumi.Output.from_input({pool.name: resources(pool) for pool in environment.pools})
        self.register_outputs({"offered": self.offered})


def _with_former_name(component: Any, opts: Optional[pulumi.ResourceOptions]) -> pulumi.ResourceOptions:  # noqa: UP045
    former = pulumi.Alias(type_=f"gpuform-platform:index:{type(component).__name__}")
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(aliases=[former]))


def _with_integers(value: Any) -> Any:
    """``value`` with whole numbers as int: the engine passes every number to a plugin as a float."""
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _target(
    name: str, environment: Environment, kubeconfig: pulumi.Input[str] | None, parent: pulumi.Resource
) -> Target:
    opts = pulumi.ResourceOptions(parent=parent)
    if environment.cluster.kind == "existing":
        return target.existing(name, environment.cluster, opts)
    if environment.cluster.kind != "embedded":
        raise pulumi.InputPropertyError(
            "environment",
            f"cluster.kind: {environment.cluster.kind} creates a cluster, and this component needs an "
            "existing one; use kind: existing with its kubeconfig",
        )
    if kubeconfig is None:
        raise pulumi.InputPropertyError(
            "kubeconfig",
            "is missing; an embedded cluster needs the path that 'gpuform local env' prints as KUBECONFIG",
        )
    return target.embedded(name, kubeconfig, opts)


class GpuWorkloadArgs(TypedDict):
    """Inputs of the component of one workload."""

    environment: dict[str, Any]
    """The environment that has the pools; its own workloads are ignored. Must be known before the run."""
    workload: dict[str, Any]
    """The workload as an entry of the environment's `workloads`, without its kind. Must be known as well."""
    kubeconfig: Optional[pulumi.Input[str]]  # noqa: UP045
    """Path of a kubeconfig, if the environment's cluster is embedded; an existing cluster names its own."""


class _WorkloadComponent(pulumi.ComponentResource):
    """Base of the three components: one workload on the cluster of an environment."""

    _kind: str

    def __init__(
        self,
        name: str,
        args: GpuWorkloadArgs,
        opts: Optional[pulumi.ResourceOptions] = None,  # noqa: UP045
    ) -> None:
        super().__init__(f"{PACKAGE}:index:{type(self).__name__}", name, {}, _with_former_name(self, opts))
        environment, workload = _parse_workload(self._kind, args)
        cluster = _target(name, environment, args.get("kubeconfig"), self)
        options = pulumi.ResourceOptions(parent=self, providers={"kubernetes": cluster.provider})
        objects = arguments(environment, workload, cluster.kubeconfig)
        self.asks = COMPONENTS[objects.controller["kind"]](name, objects, options).asks
        self.register_outputs({"asks": self.asks})


# The schema's reader finds the words of an attribute only in the class itself.


class GpuDeployment(_WorkloadComponent):
    """A Deployment on the GPUs of a pool, with its Service and its update strategy."""

    _kind = "deployment"
    asks: pulumi.Output[dict[str, str]]
    """GPUs, shares or slices that each pod requests, by resource name."""


class GpuJob(_WorkloadComponent):
    """A Job on the GPUs of a pool."""

    _kind = "job"
    asks: pulumi.Output[dict[str, str]]
    """GPUs, shares or slices that each pod requests, by resource name."""


class GpuPod(_WorkloadComponent):
    """One bare Pod on the GPUs of a pool."""

    _kind = "pod"
    asks: pulumi.Output[dict[str, str]]
    """GPUs, shares or slices that each pod requests, by resource name."""


_WORKLOADS = (GpuDeployment, GpuJob, GpuPod)


def _parse_workload(kind: str, args: GpuWorkloadArgs) -> tuple[Environment, Workload]:
    declared, workload = _with_integers(args["environment"]), _with_integers(args["workload"])
    try:
        parse({**declared, "workloads": []})
    except InputError as error:
        raise pulumi.InputPropertyError("environment", str(error)) from None
    try:
        environment = parse({**declared, "workloads": [{"kind": kind, **workload}]})
    except InputError as error:
        path = error.path.removeprefix("workloads[0]").removeprefix(".")
        relative = InputError(path, error.fact, error.remedy)
        raise pulumi.InputPropertyError("workload", str(relative)) from None
    return environment, environment.workloads[0]


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
                raise error.inner from None  # as raised by the SDK, it would show our traceback
            raise


def provider() -> ComponentProvider:
    """The components; their schema is that of the SDK, with the types of the environment."""
    served = _Provider([GpuPlatform, *_WORKLOADS], PACKAGE, version=version(PACKAGE))
    schema = json.loads(served.schema or "")
    schema["types"] = _types()
    for token, resource in schema["resources"].items():
        names = {"environment": "Environment", "workload": f"{token.rpartition(':')[2]}Workload"}
        for name, declared in resource["inputProperties"].items():
            if name in names:
                del declared["type"], declared["additionalProperties"]
                declared["$ref"] = f"#/types/{PACKAGE}:index:{names[name]}"
    served.schema = json.dumps(schema)
    return served


def _types() -> dict[str, Any]:
    environment = Environment.model_json_schema(mode="validation")
    definitions = environment.pop("$defs") | {"Environment": environment}
    kinds = environment["properties"]["workloads"]["items"]["discriminator"]["mapping"]
    for component in _WORKLOADS:
        declared = dict(definitions[kinds[component._kind].rpartition("/")[2]])
        declared["properties"] = {k: v for k, v in declared["properties"].items() if k != "kind"}
        declared["required"] = [name for name in declared["required"] if name != "kind"]
        definitions[f"{component.__name__}Workload"] = declared
    return object_types(definitions, f"{PACKAGE}:index:")
