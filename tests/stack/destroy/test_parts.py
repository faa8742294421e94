"""Parts of a destroy: what the engine does alone, what is refused, and which proof is required."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.clouds.aws.destroy import EKS_STEPS
from gpuform.clouds.openstack.destroy import MAGNUM_STEPS
from gpuform.engine import EngineFailure
from gpuform.stack.destroy import Destroy, StackTeardown
from tests.stack.destroy import engine_state as states
from tests.stack.destroy.engine_state import engine_of, resource, retained, teardown_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("stack", ["local", "onprem-dev"])
def test_elsewhere_the_engine_does_all_of_it(stack: str) -> None:
    target = teardown_of(stack)
    asked = engine_of(target).asked
    plan = target.plan()
    text = "\n".join(plan.text_lines())
    assert "6 resources will be deleted, in this order:\n  1. the engine deletes all that it created" in text
    assert ("hosts: what was installed on them" in text) == (stack == "onprem-dev")
    assert asked == [], "a plan changes nothing"
    done = Destroy(target, plan).run()
    assert asked == [()]
    assert [step["did"] for step in done.to_json()["steps"]] == ["8 deleted in 1.0 s"]
    assert "\n".join(target.plan().text_lines()) == f"{stack}: nothing is left to destroy"


NAMESPACE = "kubernetes:core/v1:Namespace"
PROVIDER = f"{states.BASE}pulumi:providers:kubernetes::there-kubernetes"
PLATFORM = {
    "deployment": {
        "resources": [
            resource(PROVIDER, inputs={"kubeconfig": "/theirs", "context": "lab"}),
            *(
                resource(f"{states.BASE}{NAMESPACE}::namespaces-{name}", id=name)
                for name in ("gpu-operator", "lab")
            ),
        ]
    }
}


FOREIGN = {"lab": ["PersistentVolumeClaim data", "Pod theirs"]}
QUEUED = {"science": ["Job lab/runs", "Job lab/held (waits)"], "another-stack-s": ["Job lab/theirs"]}


def on_shared_cluster(monkeypatch: pytest.MonkeyPatch, state: Any, problem: str = "") -> StackTeardown:
    """A stack on a cluster that others use, too: there is something of theirs in ``lab``."""
    cluster = states.PlayedCluster({}, problem, FOREIGN, QUEUED, "onprem-dev")
    states.patch_cluster(monkeypatch, cluster, "/theirs", "lab")
    return teardown_of("onprem-dev", state)


QUEUE = resource(f"{states.BASE}kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::team-science", id="science")
QUEUES = {"deployment": {"resources": [PLATFORM["deployment"]["resources"][0], QUEUE]}}


def test_workloads_of_others_in_the_stack_s_queues_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = on_shared_cluster(monkeypatch, QUEUES).plan()
    assert plan.to_json()["queued"] == ["science: Job lab/runs, Job lab/held (waits)"]
    message = "not created by this stack, but in its queues; without Kueue, what waits stays suspended"
    assert f"{message}:\n  science: Job lab/runs, Job lab/held (waits)\n" in "\n".join(plan.text_lines())


def test_on_a_cluster_of_others_a_namespace_with_their_objects_and_its_volumes_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = on_shared_cluster(monkeypatch, PLATFORM)
    plan = target.plan()
    kept = "lab (PersistentVolumeClaim data, Pod theirs)"
    message = f"namespaces that stay, with what the stack did not create in them:\n  {kept}"
    assert message in "\n".join(plan.text_lines())
    assert plan.to_json()["kept_namespaces"] == [kept]
    assert not engine_of(target).restored
    Destroy(target, plan).run()
    (state,) = engine_of(target).restored
    resources = state["deployment"]["resources"]
    assert [one["id"] for one in resources if one.get("retainOnDelete")] == ["lab"]


@pytest.mark.parametrize("state", [PLATFORM, QUEUES], ids=["namespaces", "queues"])
def test_a_cluster_of_others_that_does_not_answer_ends_it(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = on_shared_cluster(monkeypatch, state, "no route to host")
    with pytest.raises(Failure, match=r"cluster of onprem-dev: cannot be read \(no route to host\)"):
        target.plan()
    assert not engine_of(target).asked


def test_a_run_killed_at_its_very_end_is_ended() -> None:
    """The engine deletes its providers and the stack last; the state has them, but they are not resources."""
    ended = [resource(states.STACK), resource("urn:pulumi:s::gpuform::pulumi:providers:aws::aws")]
    target = teardown_of("local", {"deployment": {"resources": ended}})
    plan = target.plan()
    assert not plan.is_empty
    Destroy(target, plan).run()
    assert engine_of(target).asked == [()]
    assert target.plan().is_empty


def test_releases_that_a_killed_run_had_uninstalled_are_forgotten() -> None:
    messages: list[str] = []
    other = states.RELEASE.replace("karpenter", "monitoring")
    resources = [resource(urn) for urn in (states.RELEASE, other, states.QUEUE)]
    target = teardown_of("local", {"deployment": {"resources": resources}}, messages.append)
    engine_of(target).uninstalled = (states.RELEASE, other)
    assert target.run_engine_destroy((), lambda event: None) == "10 deleted in 3.0 s"
    assert messages == [f"forgets {name}: already uninstalled" for name in ("karpenter", "monitoring")]
    assert retained(engine_of(target).restored[-1]) == [states.RELEASE, other]


def test_what_fails_in_another_way_is_not_forgotten() -> None:
    target = teardown_of("local")
    engine_of(target).uninstalled = (states.POD,)
    with pytest.raises(EngineFailure):
        target.run_engine_destroy((), lambda event: None)
    assert not engine_of(target).restored


def test_what_the_engine_leaves_is_no_end() -> None:
    with pytest.raises(Failure, match="stack local: still has aws:ec2/vpc:Vpc, "):
        teardown_of("local").require_empty()


@pytest.mark.parametrize("option", ["force", "cluster_gone", "purge"])
def test_options_of_clouds_are_refused_elsewhere(option: str) -> None:
    fact = r"is for (clusters on AWS|stacks that create a cluster at a cloud); local"
    with pytest.raises(InputError, match=fact):
        teardown_of("local", **{option: True}).plan()


def test_the_page_has_the_steps_as_they_are() -> None:
    text = (states.HERE.root / "docs/howto/destroy.md").read_text()
    rows = re.findall(r"^\| \d\. ([a-z ]+) \| (.+?) \| .+? \| (.+?) \|$", text, re.M)
    steps = (*EKS_STEPS, *MAGNUM_STEPS)
    bounds = [f"{step.timeout_s:g} s" if step.timeout_s else "the provider's" for step in steps]
    assert rows == [(s.name, s.description, bound) for s, bound in zip(steps, bounds, strict=True)]
