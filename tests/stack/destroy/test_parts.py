"""Parts of a destroy: what the engine does alone, what is refused, and which proof is required."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from gpuform.kubernetes.client import Unreachable
from gpuform.stack.destroy import Destroy, proof
from gpuform.stack.destroy.grounds import Options
from gpuform.stack.destroy.site import Site
from gpuform.stack.destroy.state import Eks
from gpuform.stack.destroy.steps import OF_EKS, OF_MAGNUM
from infra.config import load
from tests.stack.destroy.account import REGION
from tests.stack.destroy.told_state import BASE, STACK, PlayedEngine, resource

pytestmark = pytest.mark.unit

HERE = Paths.here()


@pytest.mark.parametrize("stack", ["local", "onprem-dev"])
def test_elsewhere_the_engine_does_all_of_it(stack: str) -> None:
    engine = PlayedEngine()
    env = load(HERE.root / f"Pulumi.{stack}.yaml")
    said: list[str] = []
    site = Site(env, HERE, cast(Engine, engine), stack, Options(), say=said.append)
    plan = site.plan()
    text = "\n".join(plan.lines())
    assert "6 resources will be deleted, in this order:\n  1. the engine deletes all that it created" in text
    assert ("hosts: what was installed on them" in text) == (stack == "onprem-dev")
    assert engine.asked == [], "a plan changes nothing"
    done = Destroy(site, plan).run()
    assert engine.asked == [()]
    assert [step["did"] for step in done.to_json()["steps"]] == ["8 deleted in 1.0 s"]
    assert "\n".join(site.plan().lines()) == f"{stack}: nothing is left to destroy"


NAMESPACE = "kubernetes:core/v1:Namespace"
PROVIDER = f"{BASE}pulumi:providers:kubernetes::there-kubernetes"
PLATFORM = {
    "deployment": {
        "resources": [
            resource(PROVIDER, inputs={"kubeconfig": "/theirs", "context": "lab"}),
            *(resource(f"{BASE}{NAMESPACE}::namespaces-{name}", id=name) for name in ("gpu-operator", "lab")),
        ]
    }
}


class Theirs:
    """A cluster that others use, too: there is something of theirs in ``lab``."""

    def __init__(self, access: str, context: str | None) -> None:
        assert (access, context) == ("/theirs", "lab")

    def __enter__(self) -> Theirs:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def foreign(self, namespace: str, environment: str) -> list[str]:
        assert environment == "onprem-dev"
        return ["PersistentVolumeClaim data", "Pod theirs"] if namespace == "lab" else []

    def queued(self, environment: str) -> dict[str, list[str]]:
        assert environment == "onprem-dev"
        return {"science": ["Job lab/runs", "Job lab/held (waits)"], "another-stack-s": ["Job lab/theirs"]}


class Silent(Theirs):
    def foreign(self, namespace: str, environment: str) -> list[str]:
        raise Unreachable("no route to host")

    def queued(self, environment: str) -> dict[str, list[str]]:
        raise Unreachable("no route to host")


def on_theirs(cluster: type[Theirs], monkeypatch: pytest.MonkeyPatch) -> tuple[Site, PlayedEngine]:
    monkeypatch.setattr("gpuform.stack.destroy.site.Cluster", cluster)
    engine = PlayedEngine()
    engine.state = PLATFORM
    env = load(HERE.root / "Pulumi.onprem-dev.yaml")
    return Site(env, HERE, cast(Engine, engine), "onprem-dev", Options(), say=lambda text: None), engine


QUEUE = resource(f"{BASE}kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::team-science", id="science")
QUEUES = {"deployment": {"resources": [PLATFORM["deployment"]["resources"][0], QUEUE]}}


def test_workloads_of_others_in_the_stack_s_queues_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    site, engine = on_theirs(Theirs, monkeypatch)
    engine.state = QUEUES
    plan = site.plan()
    assert plan.to_json()["queued"] == ["science: Job lab/runs, Job lab/held (waits)"]
    said = "not created by this stack, but in its queues; without Kueue, what waits stays suspended"
    assert f"{said}:\n  science: Job lab/runs, Job lab/held (waits)\n" in "\n".join(plan.lines())


def test_on_a_cluster_of_others_a_namespace_with_their_objects_and_its_volumes_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, engine = on_theirs(Theirs, monkeypatch)
    plan = site.plan()
    kept = "lab (PersistentVolumeClaim data, Pod theirs)"
    said = f"namespaces that stay, with what the stack did not create in them:\n  {kept}"
    assert said in "\n".join(plan.lines())
    assert plan.to_json()["kept_namespaces"] == [kept]
    assert not engine.restored
    Destroy(site, plan).run()
    (state,) = engine.restored
    resources = state["deployment"]["resources"]
    assert [one["id"] for one in resources if one.get("retainOnDelete")] == ["lab"]


@pytest.mark.parametrize("state", [PLATFORM, QUEUES], ids=["namespaces", "queues"])
def test_a_cluster_of_others_that_does_not_answer_ends_it(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, engine = on_theirs(Silent, monkeypatch)
    engine.state = state
    with pytest.raises(Failure, match=r"cluster of onprem-dev: cannot be read \(no route to host\)"):
        site.plan()
    assert not engine.asked


def test_a_run_killed_at_its_very_end_is_ended() -> None:
    """The engine deletes its providers and the stack last; the state has them, but they are not resources."""
    engine = PlayedEngine()
    engine.state = {
        "deployment": {
            "resources": [resource(STACK), resource("urn:pulumi:s::gpuform::pulumi:providers:aws::aws")]
        }
    }
    env = load(HERE.root / "Pulumi.local.yaml")
    site = Site(env, HERE, cast(Engine, engine), "local", Options(), say=lambda text: None)
    plan = site.plan()
    assert not plan.nothing
    Destroy(site, plan).run()
    assert engine.asked == [()]
    assert site.plan().nothing


def test_what_the_engine_leaves_is_no_end() -> None:
    engine = PlayedEngine()
    site = Site(
        load(HERE.root / "Pulumi.local.yaml"), HERE, cast(Engine, engine), "local", Options(), say=print
    )
    with pytest.raises(
        Failure, match=r"stack local: still has aws:ec2/vpc:Vpc, .*; run the same command again"
    ):
        site.require_empty()


@pytest.mark.parametrize("option", ["force", "cluster_gone", "purge"])
def test_options_of_clouds_are_refused_elsewhere(option: str) -> None:
    site = Site(
        load(HERE.root / "Pulumi.local.yaml"), HERE, cast(Engine, None), "local", Options(**{option: True})
    )
    with pytest.raises(
        InputError, match=r"is for (clusters on AWS|stacks that create a cluster at a cloud); local"
    ):
        site.refuse_options()


def test_an_offline_run_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    env = load(HERE.root / "Pulumi.aws-dev.yaml")
    site = Site(env, HERE, cast(Engine, None), "aws-dev", Options(offline=True, cluster_gone=True))
    with pytest.raises(
        InputError, match="--cluster-gone: needs proof from EKS, which an offline run cannot get"
    ):
        site.refuse_options()


def test_only_the_cluster_s_own_account_proves_that_it_is_gone(moto: str) -> None:
    assert "EKS has no cluster s" in proof.require_gone(Eks("s", "", "", "123456789012"), REGION)
    with pytest.raises(
        InputError, match="the credentials are for account 123456789012, but the cluster was in 42"
    ):
        proof.require_gone(Eks("s", "", "", "42"), REGION)


def test_a_refusal_is_no_proof(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    real = proof.client

    def refusing(service: str, region: str) -> Any:
        made = real(service, region)

        def denied(**asked: str) -> None:
            raise ClientError(
                {"Error": {"Code": "AccessDeniedException", "Message": "not you"}}, "DescribeCluster"
            )

        if service == "eks":
            monkeypatch.setattr(made, "describe_cluster", denied)
        return made

    monkeypatch.setattr(proof, "client", refusing)
    with pytest.raises(Failure, match=r"AccessDeniedException: not you; this does not prove"):
        proof.require_gone(Eks("s", "", "", "123456789012"), REGION)


def test_the_page_has_the_steps_as_they_are() -> None:
    text = (HERE.root / "docs/howto/destroy.md").read_text()
    rows = re.findall(r"^\| \d\. ([a-z ]+) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.M)
    steps = (*OF_EKS, *OF_MAGNUM)
    bounds = [f"{step.bound_s:g} s" if step.bound_s else "the provider's" for step in steps]
    assert rows == [(s.name, s.does, s.waits_for, bound) for s, bound in zip(steps, bounds, strict=True)]
