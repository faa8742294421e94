"""An existing cluster before an update: only one controller may act on nodes with a fault."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.clouds.existing.preflight import health as existing_health
from gpuform.clouds.existing.preflight.cluster import DAEMON_SETS, Parts
from gpuform.clouds.existing.preflight.health import DEPLOYMENTS
from gpuform.stack.preflight.check import Judged
from infra.config import parse

pytestmark = pytest.mark.unit

Json = dict[str, Any]
SENTINEL = "ghcr.io/nvidia/nvsentinel/"
AGENT = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/eks-node-monitoring-agent:v1.6.1-eksbuild.1"
REPORTER = "registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.20"
KARPENTER = "public.ecr.aws/karpenter/controller:1.14.1@sha256:0a"


def running(image: str, name: str = "one", gates: str = "") -> Json:
    container: Json = {"name": "c", "image": image}
    if gates:
        container["env"] = [{"name": "FEATURE_GATES", "value": gates}]
    pod = {"spec": {"containers": [{"name": "proxy", "image": "proxy"}, container]}}
    return {"metadata": {"namespace": "there", "name": name}, "spec": {"template": pod}}


def judged(mode: str | None, *deployments: Json, sets: tuple[Json, ...] = ()) -> Judged:
    own: Json = {"monitoring": {}, "health": {"mode": mode}} if mode else {}
    pool = {"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}
    cluster = {"kind": "existing", "kubeconfig": "/nowhere/kubeconfig"}
    env = parse({"name": "e", "cluster": cluster, "pools": [pool], **own})
    parts = Parts(env, None, {DEPLOYMENTS: deployments, DAEMON_SETS: sets}.__getitem__)
    (check,) = existing_health.checks(env, "kubectl")
    found: Judged = check.judge(parts)
    return found


ACTING = {
    "NVSentinel": running(f"{SENTINEL}fault-quarantine:v1.3.0"),
    "draino": running("planetlabs/draino:e0d5277"),
    "NodeHealthCheck": running("quay.io/medik8s/node-healthcheck-operator:v0.9.0"),
    "Karpenter's node repair": running(KARPENTER, gates="ReservedCapacity=true,NodeRepair=true"),
}


@pytest.mark.parametrize("mode", ["cordon", "ticket", "replace"])
@pytest.mark.parametrize("acting", ACTING)
def test_a_second_remediator_is_refused(mode: str, acting: str) -> None:
    found = judged(mode, ACTING[acting])
    assert found.verdict == "FAIL"
    assert found.fact == f"{acting} (there/one) and the health loop (mode {mode}) would act on the same nodes"
    assert found.fix == "use health.mode: observe, or uninstall the other one first"


@pytest.mark.parametrize("mode", ["observe", None])
@pytest.mark.parametrize("acting", ACTING)
def test_one_that_is_alone_is_named(mode: str | None, acting: str) -> None:
    assert judged(mode, ACTING[acting]) == Judged("PASS", f"only {acting} (there/one) acts on nodes")


@pytest.mark.parametrize("module", ["fault-remediation", "node-drainer", "node-drainer-module"])
def test_every_acting_part_of_nvsentinel_is_known(module: str) -> None:
    assert judged("cordon", running(f"{SENTINEL}{module}:v1.3.0")).verdict == "FAIL"


def test_two_of_others_are_named() -> None:
    found = judged(None, ACTING["draino"], ACTING["NVSentinel"])
    assert found.verdict == "SKIP"
    assert found.fact == "draino (there/one) and NVSentinel (there/one) act on the same nodes"


@pytest.mark.parametrize(
    "image", [REPORTER, f"{SENTINEL}syslog-health-monitor:v1.3.0", f"{SENTINEL}labeler:v1"]
)
def test_what_only_reports_may_run_beside_the_loop(image: str) -> None:
    assert judged("cordon", sets=(running(image),)).verdict == "PASS"


def test_karpenter_without_the_gate_repairs_nothing() -> None:
    assert (
        judged("cordon", running(KARPENTER, gates="ReservedCapacity=true,NodeRepair=false")).verdict == "PASS"
    )


def test_whether_eks_acts_by_its_agent_is_not_visible() -> None:
    found = judged("cordon", sets=(running(AGENT, "agent"),))
    assert found.verdict == "SKIP"
    assert "acts on what there/agent reports" in found.fact
    assert "nodeRepairConfig" in found.fix
    assert judged("observe", sets=(running(AGENT),)).verdict == "PASS"
