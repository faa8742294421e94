"""A destroy on OpenStack: its order, requests, deletions and reports; on a made-up cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.clouds.openstack.destroy import MAGNUM_STEPS, Magnum, magnum_cluster
from gpuform.kubernetes.kinds import SERVICE
from gpuform.stack.destroy import Destroy
from gpuform.stack.destroy.state import State
from tests.clouds.openstack import fake_stack as made
from tests.clouds.openstack.fake_cloud import PROJECT, FakeCloud, serve
from tests.clouds.openstack.fake_stack import CLUSTER, OUTPUTS, make_teardown, play_cluster
from tests.stack.destroy.engine_state import engine_of

pytestmark = pytest.mark.unit


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    with serve(FakeCloud(clusters=[made.LIVE])) as found:
        monkeypatch.setattr(
            "gpuform.clouds.openstack.destroy.connect", lambda cloud, region: found.connect(region=region)
        )
        yield found


def test_services_and_data_go_before_the_engine_and_what_nobody_takes_down_is_swept(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.balancers = [made.BALANCER, made.FOREIGN_BALANCER]
    here = make_teardown(tmp_path, CLUSTER, made.QUEUE, made.POD)
    played = play_cluster(monkeypatch)
    plan = here.plan()
    text = "\n".join(plan.text_lines())
    assert played.list_objects(SERVICE), "a plan changes nothing"
    done = Destroy(here, plan).run().to_json()
    assert "3 resources will be deleted" in text
    assert "but in its queues; deleted with its cluster:\n  science: Job lab/train" in text
    assert "has the cluster's name at OpenStack" in text
    assert f"load balancer lb-1 ({made.BALANCER['description']})" in text
    assert "lb-2" not in text
    assert [step["name"] for step in done["steps"]] == [step.name for step in MAGNUM_STEPS]
    assert done["swept"] == [f"load balancer lb-1 ({made.BALANCER['description']})"]
    assert [one["id"] for one in cloud.balancers] == ["lb-2"], "another cluster's stays"
    assert engine_of(here).asked == [()], "the engine runs once, for all of it"
    assert [one for one in cloud.requests if one.startswith("DELETE")] == [
        "DELETE octavia/v2.0/lbaas/loadbalancers/lb-1"
    ]


def test_what_holds_the_cluster_is_named_and_the_same_command_goes_on(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.balancers = [
        {"id": "lb-9", "name": "research-2-api", "provisioning_status": "ERROR"},
        made.FOREIGN_BALANCER,
    ]
    kept = {"id": "port-7", "name": "kept", "network_id": "net-1", "device_owner": "compute:nova"}
    cloud.ports = [kept, {"id": "port-8", "name": "research-2-kept", "device_owner": "compute:nova"}]
    network = {"name": "network", "type": "OS::Neutron::Net", "status": "DELETE_FAILED"}
    network["status_reason"] = "There are one or more ports still in use"
    cloud.stack = [{f"resource_{key}": value for key, value in network.items()}]
    cloud.stack[0]["physical_resource_id"] = "net-1"
    here = make_teardown(tmp_path, CLUSTER, fails=1)
    play_cluster(monkeypatch)
    with pytest.raises(Failure) as stuck:
        Destroy(here, here.plan()).run()
    assert stuck.value.subject == "cluster research of research"
    for named in (
        "Magnum reports DELETE_FAILED (in use)",
        "port kept (port-7, of compute:nova): openstack port delete port-7",
        "port research-2-kept (port-8, of compute:nova, matched by name only: check its owner)",
        "resource network (OS::Neutron::Net net-1): DELETE_FAILED There are one or more ports still",
        "timed out",
    ):
        assert named in stuck.value.fact
    assert "load balancer" not in stuck.value.fact, "other clusters' are not in its way"
    assert stuck.value.remedy.endswith("run the same command again to continue")
    again = make_teardown(tmp_path, CLUSTER)
    again.engine = here.engine
    Destroy(again, again.plan()).run()
    assert len(engine_of(here).asked) == 2


def test_a_cluster_that_was_never_finished_is_the_engine_s_alone(cloud: FakeCloud, tmp_path: Path) -> None:
    """Magnum has no kubeconfig of a failed cluster, and a failed cluster is empty."""
    failed = {**CLUSTER, "outputs": {**OUTPUTS, "kubeconfig": {}}}
    here = make_teardown(tmp_path, failed)
    Destroy(here, here.plan()).run()
    assert engine_of(here).asked == [()]


@pytest.mark.parametrize(
    ("outputs", "kind", "said"),
    [
        ({"projectId": "q"}, Failure,
         f"stack research: is in project q, but the credentials are for project {PROJECT}"),
        ({"region": "south"}, InputError, "declares region cern, but the stack is in south; set cluster"),
    ],
)  # fmt: skip
def test_another_project_or_region_ends_it(
    cloud: FakeCloud, tmp_path: Path, outputs: dict[str, str], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        make_teardown(tmp_path, {**CLUSTER, "outputs": {**OUTPUTS, **outputs}}).plan()


def test_a_cluster_that_does_not_answer_is_not_gone(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_cluster(monkeypatch, problem="no route")
    with pytest.raises(Failure) as silent:
        make_teardown(tmp_path).plan()
    assert "does not answer (no route)" in silent.value.fact
    assert "--cluster-gone, which asks Magnum for proof first" in silent.value.remedy


def test_only_magnum_proves_that_it_is_gone(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_teardown(tmp_path, cluster_gone=True)
    play_cluster(monkeypatch, problem="no route")
    with pytest.raises(InputError, match=r"Magnum still has cluster c-1 \(DELETE_FAILED\)"):
        here.plan()
    cloud.clusters = []
    Destroy(here, here.plan()).run()
    assert engine_of(here).asked == [()], "what lay in it was forgotten, the rest destroyed"


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"force": True},
         "--force: is for a Karpenter that does not run; Magnum deletes the nodes of research itself"),
        ({"cluster_gone": True, "offline": True},
         "--cluster-gone: needs proof from Magnum, which an offline run cannot get"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(tmp_path: Path, options: dict[str, bool], fact: str) -> None:
    with pytest.raises(InputError, match=re.escape(fact)):
        make_teardown(tmp_path, **options).teardown.refuse_options()


def test_an_offline_run_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuform.clouds.openstack.destroy.connect", lambda *_: pytest.fail("asked OpenStack"))
    here = make_teardown(tmp_path, CLUSTER, offline=True)
    play_cluster(monkeypatch, access=here.paths.kubeconfig)  # the one on this machine plays it
    plan = here.plan()
    assert "offline: OpenStack is not queried for leftovers" in "\n".join(plan.text_lines())
    done = Destroy(here, plan).run()
    assert ("leftovers", "OpenStack is not queried offline") in [(name, did) for name, _, did in done.steps]


def test_a_load_balancer_that_changes_at_the_moment_is_asked_for_again(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.balancers = [made.BALANCER]
    said: list[str] = []
    swept = make_teardown(tmp_path).teardown.leftovers(State((CLUSTER,)))
    assert swept is not None
    answer = FakeCloud.answer
    refused: list[str] = []

    def immutable(self: FakeCloud, service: str, path: str, method: str, query: str) -> tuple[int, Any]:
        if method == "DELETE" and not refused:
            refused.append(path)
            return 409, {"faultstring": "Load Balancer lb-1 is immutable and cannot be updated."}
        return answer(self, service, path, method, query)

    monkeypatch.setattr(FakeCloud, "answer", immutable)
    assert [one.id for one in swept.sweep(30, said.append)] == ["lb-1"]
    assert refused
    assert "octavia is changing or deleting it" in said[0]


def test_a_state_is_read(tmp_path: Path) -> None:
    known = State((CLUSTER, made.POD))
    assert magnum_cluster(known) == Magnum("research", "https://10.0.0.5:6443", PROJECT, "cern", "c-1")
    assert known.in_cluster == {made.POD["urn"]}
    assert magnum_cluster(State((made.POD,))) is None
