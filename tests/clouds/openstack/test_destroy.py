"""A destroy on OpenStack: its order, requests, deletions and reports; on a made-up cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.clouds.openstack.destroy import MAGNUM_STEPS, Magnum, magnum_cluster
from gpuform.kubernetes.kinds import SERVICE
from gpuform.stack.destroy import Destroy, StackTeardown
from gpuform.stack.destroy.state import State
from infra.config import parse
from tests.build.openstack_stacks import small
from tests.fakes.openstack import PROJECT, FakeCloud, serve
from tests.stack.destroy.engine_state import (
    BASE,
    PlayedCluster,
    engine_of,
    patch_cluster,
    resource,
    teardown_of,
)

pytestmark = pytest.mark.unit

KUBERNETES = f"{BASE}pulumi:providers:kubernetes::k::id"
OUTPUTS = {
    "name": "research",
    "apiAddress": "https://10.0.0.5:6443",
    "projectId": PROJECT,
    "region": "cern",
    "kubeconfig": {"4dabf18193072939515e22adb298388d": "1", "plaintext": '{"rawConfig": "kind: Config"}'},
}
CLUSTER = resource(f"{BASE}openstack:containerinfra/cluster:Cluster::c", id="c-1", outputs=OUTPUTS)
POD = resource(f"{BASE}kubernetes:core/v1:Pod::p", id="lab/p", provider=KUBERNETES)
QUEUE_TYPE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"
QUEUE = resource(f"{BASE}{QUEUE_TYPE}::q", id="science", provider=KUBERNETES)
LIVE = {"uuid": "c-1", "name": "research", "stack_id": "s-1"}
LIVE |= {"status": "DELETE_FAILED", "status_reason": "in use"}
FROM = "Kubernetes external service shop/web from cluster"
BALANCER = {"id": "lb-1", "name": "web", "description": f"{FROM} c-1", "provisioning_status": "ACTIVE"}
FOREIGN_BALANCER = {**BALANCER, "id": "lb-2", "description": f"{FROM} c-10"}


def make_teardown(
    tmp_path: Path, *resources: dict[str, Any], fails: int = 0, **options: Any
) -> StackTeardown:
    env = parse(small(cloud=None, region="cern"))
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    state = {"deployment": {"resources": list(resources or (CLUSTER, POD))}}
    return teardown_of(env, state, paths=paths, fails=fails, **options)


def play_cluster(
    monkeypatch: pytest.MonkeyPatch, problem: str = "", access: Any = "kind: Config"
) -> PlayedCluster:
    """A cluster with one LoadBalancer Service and no controller: octavia's load balancer stays."""
    service = {"metadata": {"namespace": "shop", "name": "web", "uid": "u"}, "spec": {"type": "LoadBalancer"}}
    cluster = PlayedCluster({SERVICE: [service]}, problem, waiting={"science": ["Job lab/train"]})
    patch_cluster(monkeypatch, cluster, access)
    return cluster


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    with serve(FakeCloud(clusters=[LIVE])) as found:
        connect = "gpuform.clouds.openstack.destroy.connect"
        monkeypatch.setattr(connect, lambda _, region: found.connect(region=region))
        yield found


def test_destroy_deletes_services_first_and_sweeps_the_rest(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.balancers = [BALANCER, FOREIGN_BALANCER]
    here = make_teardown(tmp_path, CLUSTER, QUEUE, POD)
    played = play_cluster(monkeypatch)
    plan = here.plan()
    text = "\n".join(plan.text_lines())
    assert played.list_objects(SERVICE), "a plan changes nothing"
    done = Destroy(here, plan).run().to_json()
    assert "3 resources will be deleted" in text
    assert "but in its queues; deleted with its cluster:\n  science: Job lab/train" in text
    assert "has the cluster's name at OpenStack" in text
    assert f"load balancer lb-1 ({BALANCER['description']})" in text
    assert "lb-2" not in text
    assert [step["name"] for step in done["steps"]] == [step.name for step in MAGNUM_STEPS]
    assert done["swept"] == [f"load balancer lb-1 ({BALANCER['description']})"]
    assert [one["id"] for one in cloud.balancers] == ["lb-2"], "another cluster's stays"
    assert engine_of(here).asked == [()], "the engine runs once, for all of it"
    deletions = [one for one in cloud.requests if one.startswith("DELETE")]
    assert deletions == ["DELETE octavia/v2.0/lbaas/loadbalancers/lb-1"]


def test_blockers_are_named_and_the_same_command_continues(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"id": "lb-9", "name": "research-2-api", "provisioning_status": "ERROR"}
    cloud.balancers = [named, FOREIGN_BALANCER]
    kept = {"id": "port-7", "name": "kept", "network_id": "net-1", "device_owner": "compute:nova"}
    cloud.ports = [kept, {"id": "port-8", "name": "research-2-kept", "device_owner": "compute:nova"}]
    network = {
        "resource_name": "network",
        "resource_type": "OS::Neutron::Net",
        "physical_resource_id": "net-1",
    }
    why = {"resource_status": "DELETE_FAILED", "resource_status_reason": "There are ports still in use"}
    cloud.stack = [network | why]
    here = make_teardown(tmp_path, CLUSTER, fails=1)
    play_cluster(monkeypatch)
    with pytest.raises(Failure) as stuck:
        Destroy(here, here.plan()).run()
    assert stuck.value.subject == "cluster research of research"
    for part in (
        "Magnum reports DELETE_FAILED (in use)",
        "port kept (port-7, of compute:nova): openstack port delete port-7",
        "port research-2-kept (port-8, of compute:nova, matched by name only: check its owner)",
        "resource network (OS::Neutron::Net net-1): DELETE_FAILED There are ports still",
        "timed out",
    ):
        assert part in stuck.value.fact
    assert "load balancer" not in stuck.value.fact, "other clusters' are not in its way"
    assert stuck.value.remedy.endswith("run the same command again to continue")
    again = make_teardown(tmp_path, CLUSTER)
    again.engine = here.engine
    Destroy(again, again.plan()).run()
    assert len(engine_of(here).asked) == 2


def test_unfinished_cluster_is_destroyed_by_the_engine_alone(cloud: FakeCloud, tmp_path: Path) -> None:
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
def test_other_project_or_region_is_refused(
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
def test_inapplicable_options_are_refused(tmp_path: Path, options: dict[str, bool], fact: str) -> None:
    with pytest.raises(InputError, match=re.escape(fact)):
        make_teardown(tmp_path, **options).teardown.refuse_options()


def test_an_offline_run_sends_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuform.clouds.openstack.destroy.connect", lambda *_: pytest.fail("asked OpenStack"))
    here = make_teardown(tmp_path, CLUSTER, offline=True)
    play_cluster(monkeypatch, access=here.paths.kubeconfig)  # the one on this machine plays it
    plan = here.plan()
    assert "offline: OpenStack is not queried for leftovers" in "\n".join(plan.text_lines())
    done = Destroy(here, plan).run()
    assert ("leftovers", "OpenStack is not queried offline") in [(name, did) for name, _, did in done.steps]


def test_busy_load_balancer_is_deleted_again(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.balancers = [BALANCER]
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


def test_magnum_cluster_is_read_from_the_state(tmp_path: Path) -> None:
    known = State((CLUSTER, POD))
    assert magnum_cluster(known) == Magnum("research", "https://10.0.0.5:6443", PROJECT, "cern", "c-1")
    assert known.in_cluster == {POD["urn"]}
    assert magnum_cluster(State((POD,))) is None
