"""Pulumi mocks that record registered resources and their dependencies."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pulumi
import pytest
from pulumi.runtime import resource
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks
from pulumi.runtime.proto import source_pb2

from policies.rule import Resource

ACCOUNT = "123456789012"
COMPUTED: Mapping[str, Mapping[str, Any]] = {
    "aws:eks/cluster:Cluster": {
        "endpoint": "https://ABCDEF.gr7.us-west-2.eks.amazonaws.com",
        "certificateAuthority": {"data": "Q0E="},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"},
    },
    "aws:ec2/launchTemplate:LaunchTemplate": {"latestVersion": 1},
}
"""Outputs that only AWS knows, if the program uses them."""


MAGNUM = "openstack:containerinfra/cluster:Cluster"


@dataclass(frozen=True)
class Recorded:
    """One registered resource; ``after`` names its dependencies, as ``<type> <name>``.

    ``request`` is the message to the engine, with the resource's options.
    """

    type: str
    name: str
    inputs: dict[str, Any]
    provider: str = ""
    after: frozenset[str] = field(default_factory=frozenset)
    request: Any = None


class Recorder(Mocks):
    """Answers every registration with its own inputs; in a preview ids and computed outputs are unknown."""

    def __init__(self, preview: bool) -> None:
        self.preview = preview
        self.resources: list[Recorded] = []
        self.calls: list[MockCallArgs] = []

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        self.resources.append(Recorded(args.typ, args.name, dict(args.inputs), args.provider or ""))
        outputs = dict(args.inputs)
        if args.typ == MAGNUM and not self.preview:
            outputs["kubeconfig"] = {"raw_config": "apiVersion: v1"}
        if args.typ.startswith("aws:"):
            outputs = {**self._computed(args), **outputs}
            if args.typ == "aws:eks/cluster:Cluster":
                outputs["vpcConfig"] = {**outputs["vpcConfig"], "clusterSecurityGroupId": "sg-cluster"}
        return (None if self.preview else f"{args.name}-id", outputs)

    def _computed(self, args: MockResourceArgs) -> dict[str, Any]:
        if self.preview:
            return {}
        arn = f"arn:aws:{args.typ.split(':')[1].split('/')[0]}:us-west-2:{ACCOUNT}:{args.name}"
        return {"arn": arn, "name": args.name, **COMPUTED.get(args.typ, {})}

    def call(self, args: MockCallArgs) -> dict[str, Any]:
        """Answers the program's known calls; any other call raises AssertionError."""
        self.calls.append(args)
        if args.token == "aws:index/getCallerIdentity:getCallerIdentity":
            return {"accountId": ACCOUNT, "arn": f"arn:aws:iam::{ACCOUNT}:user/test", "id": ACCOUNT}
        if args.token == "aws:index/getPartition:getPartition":
            return {"partition": "aws", "dnsSuffix": "amazonaws.com", "id": "aws"}
        if args.token == "aws:ssm/getParameter:getParameter":
            return {**args.args, "insecureValue": f"release of {args.args['name']}", "value": "secret"}
        if args.token == "aws:ec2/getSubnets:getSubnets":
            filters = sorted(args.args["filters"], key=lambda item: item["name"])
            values = [item["values"][0] for item in filters]
            return {"id": "us-west-2", "ids": [f"subnet-of-{'-'.join(values)}"]}
        if args.token == "openstack:containerinfra/getClusterTemplate:getClusterTemplate":
            return {"id": f"id of {args.args['name']}"}
        raise AssertionError(f"the program calls {args.token}")

    def registered(self) -> list[tuple[str, str]]:
        """Type and name of every resource, sorted, independent of the order of registration."""
        return sorted((r.type, r.name) for r in self.resources)

    def judged(self) -> list[Resource]:
        """The resources as the policies get them."""
        return [
            Resource(item.type, item.name, item.inputs, tuple(item.request.ignoreChanges))
            for item in self.resources
        ]

    def of(self, type_: str) -> list[Recorded]:
        return sorted((r for r in self.resources if r.type == type_), key=lambda r: r.name)

    def one(self, type_: str) -> Recorded:
        (resource_,) = self.of(type_)
        return resource_


class _Monitor(MockMonitor):
    """Keeps what the mocks do not pass on: each resource's dependencies and parent."""

    def __init__(self, mocks: Recorder) -> None:
        super().__init__(mocks)
        self.registered: dict[str, tuple[str, frozenset[str]]] = {}
        self.urns: dict[str, str] = {}
        self.requests: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  (gRPC's name)
        answer = super().RegisterResource(request)
        self.registered[answer.urn] = (request.parent, frozenset(request.dependencies))
        self.urns[_key(answer.urn)] = answer.urn
        self.requests[_key(answer.urn)] = request
        return answer

    def after(self, resource: Recorded) -> frozenset[str]:
        """``<type> <name>`` of the resource's dependencies, its own or those of the components around it."""
        urn = self.urns[f"{resource.type} {resource.name}"]
        dependencies: set[str] = set()
        while urn in self.registered:
            urn, direct = self.registered[urn]
            dependencies |= direct
        return frozenset(map(_key, dependencies))


def _key(urn: str) -> str:
    kind, name = urn.split("::")[-2:]
    return f"{kind.rpartition('$')[2]} {name}"


def own_loop() -> None:
    """The SDK needs a current event loop, which asyncio.run removes for later code."""
    asyncio.set_event_loop(asyncio.new_event_loop())


@contextmanager
def _no_stack_traces() -> Iterator[None]:
    """The SDK records each resource's stack trace, a third of a run: pytest's stacks are deep."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "_get_stack_trace", source_pb2.StackTrace)
        yield


def record(environment: dict[str, Any], preview: bool = False, only: Sequence[str] = ()) -> Recorder:
    """Run the program of ``infra/__main__.py`` on an environment, without an engine."""
    from infra.__main__ import cluster
    from infra.config import parse
    from infra.program.platform import platform

    def program() -> None:
        env = parse(environment)
        if on := cluster(env):
            platform(env, on, only=only)

    return run(program, preview)


def record_once(environment: dict[str, Any], preview: bool = False, only: Sequence[str] = ()) -> Recorder:
    """As `record`, once for all tests of a process that ask for the same; each gets inputs of its own.

    Not for a test that patches what the program reads.
    """
    found = copy.copy(_recorded(json.dumps(environment, sort_keys=True), preview, tuple(only)))
    found.resources = [replace(item, inputs=copy.deepcopy(item.inputs)) for item in found.resources]
    return found


@lru_cache(maxsize=128)
def _recorded(text: str, preview: bool, only: tuple[str, ...]) -> Recorder:
    return record(json.loads(text), preview, only)


def run(program: Callable[[], object], preview: bool = False) -> Recorder:
    """Run any program without an engine."""
    recorder = Recorder(preview)
    monitor = _Monitor(recorder)
    own_loop()
    pulumi.runtime.set_mocks(recorder, project="gpuform", stack="test", preview=preview, monitor=monitor)
    with _no_stack_traces():
        pulumi.runtime.test(program)()
    recorder.resources = [
        replace(item, after=monitor.after(item), request=monitor.requests[f"{item.type} {item.name}"])
        for item in recorder.resources
    ]
    return recorder


def kubeconfig(environment: dict[str, Any]) -> tuple[bool, str]:
    """Whether the kubeconfig of the environment's cluster is a secret, and its content."""
    from infra.__main__ import cluster
    from infra.config import parse

    results: list[Any] = []

    async def secret(output: pulumi.Output[str]) -> bool:
        return await output.is_secret()

    def program() -> pulumi.Output[None]:
        target = cluster(parse(environment))
        assert target is not None
        flag = pulumi.Output.from_input(secret(target.kubeconfig))
        return pulumi.Output.all(flag, pulumi.Output.unsecret(target.kubeconfig)).apply(results.extend)

    run(program)
    return results[0], results[1]
