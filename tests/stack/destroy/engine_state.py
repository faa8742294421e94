"""An AWS stack's state as the engine writes it during a destroy, and an engine that has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from gpuform.checkout.paths import Paths
from gpuform.clouds import stack_teardown
from gpuform.engine import Engine, EngineFailure, Result
from gpuform.engine.events import Message, Step
from gpuform.kubernetes.client import Unreachable
from gpuform.kubernetes.kinds import Kind
from gpuform.stack.destroy import Options, StackTeardown
from infra.config import load
from infra.model.environment import Environment

HERE = Paths.here()

BASE = "urn:pulumi:s::gpuform::"
KUBERNETES = f"{BASE}gpuform:aws:EksCluster$pulumi:providers:kubernetes::k::id"
AWS = f"{BASE}pulumi:providers:aws::a::id"
OWN = f"{BASE}pulumi:providers:gpuform::default::id"


def _urn(path: str, name: str) -> str:
    return f"{BASE}{path}::{name}"


STACK, NETWORK = _urn("pulumi:pulumi:Stack", "s"), _urn("gpuform:aws:Network", "network")
VPC = _urn("gpuform:aws:Network$aws:ec2/vpc:Vpc", "vpc")
CLUSTER = _urn("aws:eks/cluster:Cluster", "c")
RELEASE = _urn("kubernetes:helm.sh/v3:Release", "karpenter")
LABELS = _urn("gpuform:nodes:PoolNodes", "pool")
WORKLOADS = _urn("gpuform:platform:Workloads", "workloads")
POD = _urn("gpuform:platform:Workloads$kubernetes:core/v1:Pod", "p")
QUEUE = _urn("aws:sqs/queue:Queue", "q")


def resource(urn: str, **more: Any) -> dict[str, Any]:
    kind = urn.split("::")[2].rpartition("$")[2]
    return {"urn": urn, "type": kind, "custom": not kind.startswith("gpuform:"), **more}


OUTPUTS: dict[str, Any] = {"name": "s", "endpoint": "https://e", "arn": "arn:aws:eks:r:42:c"}
OUTPUTS["certificateAuthority"] = {"data": "Y2E="}
STATE: dict[str, Any] = {
    "version": 3,
    "deployment": {
        "resources": [
            resource(STACK),
            resource(NETWORK, parent=STACK),
            resource(VPC, parent=NETWORK, provider=AWS, id="vpc-1"),
            resource(CLUSTER, provider=AWS, outputs=OUTPUTS, dependencies=[VPC]),
            resource(RELEASE, provider=KUBERNETES, id="kube-system/karpenter"),
            resource(LABELS, custom=True, provider=OWN, inputs={"kubeconfig": "secret"}),
            resource(WORKLOADS, parent=STACK),
            resource(POD, parent=WORKLOADS, provider=KUBERNETES, id="examples/p"),
            resource(QUEUE, provider=AWS, dependencies=[RELEASE, CLUSTER], deletedWith=RELEASE,
                     propertyDependencies={"name": [RELEASE], "tags": [CLUSTER]}),
        ],
        "pending_operations": [
            {"resource": resource(RELEASE), "type": "deleting"},
            {"resource": resource(QUEUE), "type": "deleting"},
        ],
    },
}  # fmt: skip


class PlayedCluster:
    """A cluster with these objects, of which a deletion removes all of the kind at once.

    ``problem``: why it does not answer. ``theirs`` and ``waiting``: what others have in its namespaces and
    queues.
    """

    def __init__(
        self,
        objects: Mapping[Kind, list[dict[str, Any]]] | None = None,
        problem: str = "",
        theirs: Mapping[str, list[str]] | None = None,
        waiting: Mapping[str, list[str]] | None = None,
        environment: str = "",
    ) -> None:
        self.there, self.problem = dict(objects or {}), problem
        self.theirs, self.waiting, self.environment = theirs or {}, waiting or {}, environment

    def unreachable_reason(self) -> str:
        return self.problem

    def list_objects(self, kind: Kind, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        self._answer()
        return self.there.get(kind, [])

    def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return next(iter(self.list_objects(kind)), None)

    def delete(self, kind: Kind, one: Any, with_owned: bool = False) -> None:
        self.there.pop(kind, None)

    def list_foreign(self, namespace: str, environment: str) -> list[str]:
        self._answer(environment)
        return self.theirs.get(namespace, [])

    def list_queued(self, environment: str) -> dict[str, list[str]]:
        self._answer(environment)
        return dict(self.waiting)

    def _answer(self, environment: str = "") -> None:
        assert self.environment in ("", environment)
        if self.problem:
            raise Unreachable(self.problem)


def patch_cluster(monkeypatch: pytest.MonkeyPatch, cluster: PlayedCluster, *access: Any) -> None:
    """A destroy that opens a cluster, with exactly this kubeconfig and context, gets this one."""

    @contextmanager
    def opened(*given: Any) -> Iterator[PlayedCluster]:
        assert tuple(map(str, given)) == tuple(map(str, access))
        yield cluster

    monkeypatch.setattr("gpuform.stack.destroy.stack_teardown.Cluster", opened)


class PlayedEngine:
    """The first ``fails`` runs of its destroy fail."""

    def __init__(self, state: dict[str, Any] = STATE, fails: int = 0) -> None:
        self.state, self.fails = state, fails
        self.asked: list[tuple[str, ...]] = []
        self.backend = ""
        self.restored: list[Any] = []
        self.uninstalled: tuple[str, ...] = ()
        """URNs of releases that Helm does not have."""

    def environment(self, stack: str) -> tuple[dict[str, str], Any]:
        return {"PULUMI_BACKEND_URL": self.backend}, self.backend or None

    def export(self, stack: str) -> dict[str, Any]:
        return self.state

    def deployment(self, env: Any, stack: str, show_secrets: bool = False) -> dict[str, Any]:
        assert show_secrets
        return self.state

    def restore(self, stack: str, state: Any) -> None:
        self.state = state
        self.restored.append(state)

    def destroy(self, stack: str, on_event: Any, spared: Sequence[str] = ()) -> Result:
        self.asked.append(tuple(spared))
        if missing := [urn for urn in self.uninstalled if urn not in retained(self.state)]:
            steps = tuple(Step("delete", urn, "failed") for urn in (missing[0], QUEUE))
            message = Message("error", "uninstall: Release not loaded: a: release: not found", missing[0])
            result = Result("destroy", stack, {"delete": 1}, 1.0, steps, (message,))
            raise EngineFailure(result, message.text, "see the log")
        if self.fails:
            self.fails -= 1
            raise EngineFailure(Result("destroy", stack, {}, 1.0), "timed out", "see the log")
        self.state = {"deployment": {"resources": []}}
        return Result("destroy", stack, {"delete": 8}, 1.0)


def retained(state: Mapping[str, Any]) -> list[str]:
    """URNs of what a destroy forgets."""
    return [one["urn"] for one in state["deployment"]["resources"] if one.get("retainOnDelete")]


def teardown_of(
    stack: str | Environment,
    state: Any = STATE,
    say: Any = str,
    paths: Paths = HERE,
    fails: int = 0,
    **options: Any,
) -> StackTeardown:
    """A stack of the checkout, or one with this environment, and with this state."""
    env = load(HERE.root / f"Pulumi.{stack}.yaml") if isinstance(stack, str) else stack
    engine = cast(Engine, PlayedEngine(state, fails))
    return stack_teardown(env, paths, engine, str(getattr(stack, "name", stack)), Options(**options), say)


def engine_of(stack: StackTeardown) -> PlayedEngine:
    return cast(PlayedEngine, stack.engine)


REGION = load(HERE.root / "Pulumi.aws-dev.yaml").cluster.region  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def aws_state(region: str = REGION, *more: dict[str, Any]) -> dict[str, Any]:
    provider = resource(AWS.removesuffix("::id"), id="id", inputs={"region": region})
    vpc = resource(VPC, id="vpc-1", provider=AWS)
    return {"deployment": {"resources": [provider, vpc, *more]}}


def eks(account: str = "42", name: str = "aws-dev") -> dict[str, Any]:
    arn = f"arn:aws:eks:{REGION}:{account:0>12}:cluster/{name}"
    return resource(CLUSTER, outputs={**OUTPUTS, "name": name, "arn": arn})
