"""Pulumi mocks that record what a program registers, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks

ACCOUNT = "123456789012"
COMPUTED: Mapping[str, Mapping[str, Any]] = {
    "aws:eks/cluster:Cluster": {
        "endpoint": "https://ABCDEF.gr7.us-west-2.eks.amazonaws.com",
        "certificateAuthority": {"data": "Q0E="},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"},
    },
    "aws:ec2/launchTemplate:LaunchTemplate": {"latestVersion": 1},
}
"""Outputs that AWS alone knows, where the program uses them."""


@dataclass(frozen=True)
class Recorded:
    """One registered resource; ``after`` holds the names of the custom resources that it waits for."""

    type: str
    name: str
    inputs: dict[str, Any]
    urn: str = ""
    after: frozenset[str] = field(default_factory=frozenset)


class Recorder(Mocks):
    """Answers every registration with its own inputs; in a preview ids and computed outputs are unknown."""

    def __init__(self, preview: bool) -> None:
        self.preview = preview
        self.resources: list[Recorded] = []
        self.calls: list[MockCallArgs] = []

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        self.resources.append(Recorded(args.typ, args.name, dict(args.inputs)))
        outputs = dict(args.inputs)
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
        """Who and where one is; nothing that the program makes may depend on another answer."""
        self.calls.append(args)
        if args.token == "aws:index/getCallerIdentity:getCallerIdentity":
            return {"accountId": ACCOUNT, "arn": f"arn:aws:iam::{ACCOUNT}:user/test", "id": ACCOUNT}
        if args.token == "aws:index/getPartition:getPartition":
            return {"partition": "aws", "dnsSuffix": "amazonaws.com", "id": "aws"}
        if args.token == "aws:ssm/getParameter:getParameter":
            return {**args.args, "insecureValue": f"release of {args.args['name']}", "value": "secret"}
        raise AssertionError(f"the program calls {args.token}")

    def of(self, type_: str) -> list[Recorded]:
        """The resources of one type, in the order of their names."""
        return sorted((r for r in self.resources if r.type == type_), key=lambda r: r.name)

    def one(self, type_: str) -> Recorded:
        """The only resource of its type."""
        (found,) = self.of(type_)
        return found


class _Monitor(MockMonitor):
    """Keeps what the mocks do not pass on: the URN of each resource, and what it depends on."""

    def __init__(self, mocks: Recorder) -> None:
        super().__init__(mocks)
        self.recorder = mocks
        self.waits: dict[str, tuple[str, frozenset[str]]] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  (gRPC's name)
        answer = super().RegisterResource(request)
        before = frozenset(urn for urn in request.dependencies)
        self.waits[answer.urn] = (request.parent, before)
        return answer


def record(environment: dict[str, Any], preview: bool = False) -> Recorder:
    """Run the program of ``infra/__main__.py`` on an environment, without an engine."""
    from infra.__main__ import cluster, platform
    from infra.config import parse

    recorder = Recorder(preview)
    monitor = _Monitor(recorder)
    pulumi.runtime.set_mocks(recorder, project="gpuform", stack="test", preview=preview, monitor=monitor)

    @pulumi.runtime.test
    def run() -> None:
        env = parse(environment)
        platform(env, cluster(env))

    run()
    recorder.resources = [_complete(monitor, resource) for resource in recorder.resources]
    return recorder


def _complete(monitor: _Monitor, resource: Recorded) -> Recorded:
    """The resource with everything that it waits for: its own dependencies and those of its parents."""
    urn = next(urn for urn in monitor.waits if urn.endswith(f"{resource.type}::{resource.name}"))
    found: set[str] = set()
    at = urn
    while at in monitor.waits:
        at, before = monitor.waits[at]
        found |= before
    names = frozenset(one.split("::")[-2].rpartition("$")[2] + " " + one.split("::")[-1] for one in found)
    return Recorded(resource.type, resource.name, resource.inputs, urn, names)
