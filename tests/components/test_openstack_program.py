"""The OpenStack program under mocks: registered resources, their order and options, and loaded SDKs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.build.aws_stacks import waits_for
from tests.build.openstack_stacks import BURST, T4, small
from tests.fakes.recorder import MAGNUM, Recorded, Recorder, kubeconfig, record

pytestmark = pytest.mark.unit

GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
GUARD = "gpuform:openstack:ReplacementGuard"
KUBERNETES = "pulumi:providers:kubernetes"


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(small(T4, BURST))


def test_everything_goes_through_a_provider_that_knows_the_cloud_and_no_secret(recorded: Recorder) -> None:
    provider = recorded.one("pulumi:providers:openstack")
    assert provider.inputs == {"cloud": "cern"}
    (call,) = recorded.calls
    assert "pulumi:providers:openstack::" in (call.provider or "")
    for resource in recorded.resources:
        for kind in ("openstack", "kubernetes"):
            if resource.type.startswith(f"{kind}:"):
                assert f"pulumi:providers:{kind}::" in resource.provider, resource.name
    assert record(small(region="two")).one("pulumi:providers:openstack").inputs["region"] == "two"


def test_credentials_in_the_environment_never_reach_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("OS_PASSWORD", "OS_TOKEN", "OS_USERNAME", "OS_APPLICATION_CREDENTIAL_SECRET", "OS_AUTH_URL")
    for name in names:
        monkeypatch.setenv(name, "canary-4711")
    assert all("canary-4711" not in str(resource.inputs) for resource in record(small()).resources)


def test_a_template_is_looked_up_by_its_name(recorded: Recorder) -> None:
    (call,) = recorded.calls
    assert call.args["name"] == "kubernetes-1.30.2-2"
    assert recorded.one(MAGNUM).inputs["clusterTemplateId"] == "id of kubernetes-1.30.2-2"


def test_the_guard_knows_a_template_by_its_id_for_its_name_may_come_to_mean_another(
    recorded: Recorder,
) -> None:
    cluster = next(guard for guard in recorded.of(GUARD) if guard.name == "guard-cluster")
    assert cluster.inputs["template"] == {"cluster.template": "id of kubernetes-1.30.2-2"}
    assert "template" not in record(small(driver="capi")).of(GUARD)[0].inputs


def test_nothing_of_openstack_is_touched_before_every_guard_has_agreed(recorded: Recorder) -> None:
    guards = {f"{GUARD} {resource.name}" for resource in recorded.of(GUARD)}
    assert guards == {f"{GUARD} guard-{name}" for name in ("cluster", "pool-gpu-t4", "pool-burst")}
    resources = [resource for resource in recorded.resources if resource.type.startswith("openstack:")]
    assert len(resources) == 3
    for resource in resources:
        assert guards <= waits_for(recorded, resource), resource.name


def test_groups_come_after_the_cluster_and_the_platform_after_the_groups(recorded: Recorder) -> None:
    groups = {f"{GROUP} groups-{name}" for name in ("gpu-t4", "burst")}
    for group in recorded.of(GROUP):
        assert f"{MAGNUM} research-cluster" in waits_for(recorded, group)
    for resource in recorded.resources:
        if resource.type.startswith("kubernetes:"):
            assert groups <= waits_for(recorded, resource), resource.name


def test_objects_go_with_a_cluster_that_is_replaced(recorded: Recorder) -> None:
    platform = [r for r in recorded.resources if r.type.startswith("gpuform:platform:")]
    assert len(platform) > 4
    for component in platform:  # their children inherit it
        assert component.request.deletedWith.endswith(f"{KUBERNETES}::research-kubernetes"), component.name


def trigger(resource: Recorded) -> dict[str, Any]:
    return dict(resource.request.replacement_trigger.struct_value.items())


def test_the_cluster_is_replaced_for_what_is_declared_and_never_for_labels_that_magnum_writes() -> None:
    before, after = (record(small(labels={"boot_volume_size": size})).one(MAGNUM) for size in (20, 40))
    request = before.request
    assert list(request.ignoreChanges) == ["labels", "createTimeout"]
    assert (request.deleteBeforeReplace, request.deleteBeforeReplaceDefined) == (True, True)
    times = request.customTimeouts
    assert (times.create, times.update, times.delete) == ("65m", "65m", "65m")
    assert trigger(before) == {**trigger(after), "cluster.labels.boot_volume_size": "20"}
    assert trigger(after)["cluster.labels.boot_volume_size"] == "40"


def test_a_region_is_compared_by_the_provider_for_it_may_be_the_one_that_was_implied() -> None:
    before, after = (record(small(**cluster)) for cluster in ({}, {"region": "two"}))
    assert trigger(before.one(MAGNUM)) == trigger(after.one(MAGNUM))
    assert "region" not in before.one(MAGNUM).inputs
    assert after.one(MAGNUM).inputs["region"] == "two"
    guards = [next(r for r in run.of(GUARD) if r.name == "guard-cluster") for run in (before, after)]
    assert [guard.inputs["cloud"] for guard in guards] == ["cern", "cern"]
    assert [guard.inputs["fixed"].get("cluster.region") for guard in guards] == [None, "two"]
    assert all("cloud" not in guard.inputs for guard in after.of(GUARD) if guard.name != "guard-cluster")


@pytest.mark.parametrize(("driver", "replaced"), [("heat", ["clusterTemplateId"]), ("capi", [])])
def test_another_template_is_an_upgrade_where_the_driver_has_one(driver: str, replaced: list[str]) -> None:
    assert list(record(small(driver=driver)).one(MAGNUM).request.replaceOnChanges) == replaced


def test_a_groups_nodes_are_counted_by_us_or_by_the_autoscaler(recorded: Recorder) -> None:
    burst, t4 = recorded.of(GROUP)
    assert burst.name == "groups-burst"
    assert list(burst.request.ignoreChanges) == ["labels", "nodeCount"]
    assert list(t4.request.ignoreChanges) == ["labels"]
    assert trigger(t4) == {"machine": "g2.5xlarge"}
    for group in (burst, t4):
        assert group.request.deleteBeforeReplace
        assert group.request.customTimeouts.delete == "65m"
        assert group.inputs["clusterId"] == "research-cluster-id"


def test_another_name_of_the_environment_meets_the_same_guard() -> None:
    recorder, renamed = record(small()), record({**small(), "name": "lab"})
    assert [r.name for r in recorder.of(GUARD)] == [r.name for r in renamed.of(GUARD)]
    before, after = (r.of(GUARD)[0].inputs["fixed"]["name"] for r in (recorder, renamed))
    assert (before, after) == ("research", "lab")


def test_a_pool_may_have_any_name_of_ours() -> None:
    names = [guard.name for guard in record(small({**T4, "name": "cluster"})).of(GUARD)]
    assert len(set(names)) == len(names) == 2


def test_the_kubeconfig_is_a_secret_and_the_cluster_decides_what_is_in_it() -> None:
    assert kubeconfig(small()) == (True, "apiVersion: v1")
    assert record(small()).one(KUBERNETES).inputs["clusterIdentifier"] == "research-cluster-id"
