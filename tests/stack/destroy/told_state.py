"""An AWS stack's state as the engine writes it during a destroy, and an engine that has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gpuform.checkout.paths import Paths
from gpuform.clouds import stack_teardown
from gpuform.engine import Engine, EngineFailure, Result
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


OUTPUTS = {
    "name": "s",
    "endpoint": "https://e",
    "certificateAuthority": {"data": "Y2E="},
    "arn": "arn:aws:eks:r:42:c",
}
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
            resource(
                QUEUE,
                provider=AWS,
                dependencies=[RELEASE, CLUSTER],
                propertyDependencies={"name": [RELEASE], "tags": [CLUSTER]},
                deletedWith=RELEASE,
            ),
        ],
        "pending_operations": [
            {"resource": resource(RELEASE), "type": "deleting"},
            {"resource": resource(QUEUE), "type": "deleting"},
        ],
    },
}


class PlayedEngine:
    """The first ``fails`` runs of its destroy fail."""

    def __init__(self, state: dict[str, Any] = STATE, fails: int = 0) -> None:
        self.state, self.fails = state, fails
        self.asked: list[tuple[str, ...]] = []
        self.backend = ""
        self.restored: list[Any] = []

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
        if self.fails:
            self.fails -= 1
            raise EngineFailure(Result("destroy", stack, {}, 1.0), "timed out", "see the log")
        self.state = {"deployment": {"resources": []}}
        return Result("destroy", stack, {"delete": 8}, 1.0)


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
