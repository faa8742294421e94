from __future__ import annotations

from typing import Any

import pytest

from tests.components.recording import Recorded, Recorder, record

pytestmark = pytest.mark.unit

ENV: dict[str, Any] = {
    "name": "there",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"gpu": "t4"}}],
    "queues": {
        "cohorts": [{"name": "lab"}],
        "teams": [
            {"name": "team", "namespaces": ["a", "a-b"], "cohort": "lab", "quota": {"t4": 4}},
            {"name": "b", "namespaces": ["b"], "quota": {"t4": 4}},
        ],
    },
    "workloads": [
        {"name": "w", "namespace": "a", "kind": "deployment", "pool": "t4", "image": "a:1", "queue": "team"}
    ],
}
KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2"
RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(ENV)


def after(recorded: Recorder, kind: str, name: str) -> frozenset[str]:
    (found,) = [one for one in recorded.of(kind) if one.inputs["metadata"]["name"] == name]
    return found.after


def the_release(recorded: Recorder) -> Recorded:
    (found,) = [one for one in recorded.of(RELEASE) if one.name == "queues-release"]
    return found


def test_preview_and_up_register_the_same_resources(recorded: Recorder) -> None:
    assert record(ENV, preview=True).registered() == recorded.registered()


def test_the_release_is_the_published_chart_and_a_failed_install_stays(recorded: Recorder) -> None:
    """A rollback would leave the aggregated ClusterRoles behind, which Helm does not take over."""
    inputs = the_release(recorded).inputs
    assert (inputs["chart"], inputs["version"]) == ("oci://registry.k8s.io/kueue/charts/kueue", "0.19.2")
    assert (inputs["namespace"], inputs["atomic"]) == ("kueue-system", False)
    assert "kubernetes:core/v1:Namespace namespaces-kueue-system" in the_release(recorded).after


def test_the_teams_queues_go_first_and_the_release_last(recorded: Recorder) -> None:
    """What is created later is deleted earlier: Kueue drains a queue before its flavors and CRDs go."""
    release = f"{RELEASE} queues-release"
    others = {
        f"{KUEUE}:ResourceFlavor queues-ResourceFlavor-t4",
        f"{KUEUE}:Cohort queues-Cohort-lab",
        f"{KUEUE}:LocalQueue queues-LocalQueue-a-team",
        f"{KUEUE}:LocalQueue queues-LocalQueue-a--b-team",
    }
    for name in ("team", "b"):
        found = after(recorded, f"{KUEUE}:ClusterQueue", name)
        assert {release, *others} <= found
        assert not [one for one in found if "ClusterQueue" in one], "a queue that drains holds up no other"
    for kind in ("ResourceFlavor", "Cohort", "LocalQueue"):
        assert all(release in one.after for one in recorded.of(f"{KUEUE}:{kind}"))


def test_the_removal_of_a_queue_has_the_time_that_its_workloads_take(recorded: Recorder) -> None:
    for one in recorded.of(f"{KUEUE}:ClusterQueue"):
        assert one.request.customTimeouts.delete == "60m"


def test_a_topology_is_deleted_after_its_flavor_and_with_another_content_is_another_object() -> None:
    """Kueue keeps a topology while a flavor names it."""

    def made(*levels: str) -> tuple[str, frozenset[str]]:
        changed = record({**ENV, "queues": {**ENV["queues"], "topology": {"t4": list(levels)}}})
        (topology,) = changed.of(f"{KUEUE}:Topology")
        return topology.name, after(changed, f"{KUEUE}:ResourceFlavor", topology.inputs["metadata"]["name"])

    (name, flavor), (other, _) = made(), made("example.com/rack")
    assert f"{KUEUE}:Topology {name}" in flavor
    assert name != other


def test_pods_come_after_their_queue(recorded: Recorder) -> None:
    found = after(recorded, "kubernetes:apps/v1:Deployment", "w")
    assert {f"{KUEUE}:ClusterQueue queues-ClusterQueue-team", f"{RELEASE} queues-release"} <= found


def test_workloads_that_go_with_their_queue_are_deleted_before_it(recorded: Recorder) -> None:
    """The engine knows dependencies of deleted resources only: those of the component `Workloads` stay."""
    (work,) = recorded.of("gpuform:workloads:GpuDeployment")
    before = {urn.rpartition("::")[2] for urn in work.request.dependencies}
    assert {"queues-ClusterQueue-team", "queues-ClusterQueue-b", "queues-removal"} <= before
    free = {**ENV, "workloads": [{**ENV["workloads"][0], "namespace": "other", "queue": None}]}
    assert not record(free).one("gpuform:workloads:GpuDeployment").request.dependencies


def test_kueue_is_stopped_before_anything_of_it_is_deleted(recorded: Recorder) -> None:
    removal = recorded.one("gpuform:queues:KueueRemoval")
    assert removal.inputs == {"kubeconfig": "/k"}
    ours = [one for one in recorded.resources if one.type == RELEASE or one.type.startswith(KUEUE)]
    named = {f"{one.type} {one.name}" for one in ours if one.name.startswith("queues-")}
    assert len(named) == 8
    assert named <= removal.after


def test_without_queues_there_is_nothing_of_it() -> None:
    plain = {key: ENV[key] for key in ("name", "cluster", "pools")}
    assert not [one for one in record(plain).resources if one.name.startswith("queues")]
