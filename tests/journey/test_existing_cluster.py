"""The same platform half on an existing cluster: its nodes are found, labelled and given back."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.clouds import stack_teardown
from gpuform.clouds.existing.preflight import cluster, controllers, prometheus
from gpuform.engine import Engine, EngineFailure
from gpuform.stack.destroy import Destroy, Options
from gpuform.usage.prometheus import Prometheus, local_client
from gpuform.usage.status import read_status
from infra.config import load
from infra.plan import monitoring, queues
from lab.offline import pinned_charts
from lab.plane.layout import prometheus_port
from lab.toolchain import Toolchain
from tests.build.environments import on
from tests.conftest import Plane
from tests.journey.conftest import HERE, Checkout
from tests.journey.theirs import declare, live, proven
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
SYSTEM = ["kube-system", "kueue-system"]


def quiet_engine(checkout: Checkout) -> Engine:
    return Engine(checkout.paths, Toolchain(checkout.paths), say=lambda line: None)


@pytest.mark.usefixtures("gate")
def test_nodes_are_found_labelled_cut_and_given_back(fresh: Checkout, theirs: Plane, repository: str) -> None:
    before = live(theirs, "theirs-cpu")["metadata"]["labels"]
    declare(fresh, theirs, repository, {"rack": "7"})
    engine = quiet_engine(fresh)
    engine.up("there", on_event=lambda event: None)
    found = live(theirs, "theirs-gpu")
    assert found["metadata"]["labels"]["gpuform.io/pool"] == "a100"
    assert {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"} in found["spec"]["taints"]
    assert proven(theirs, "theirs-gpu")["offers"] == {"nvidia.com/mig-1g.5gb": 7}
    taints = live(theirs, "theirs-gpu")["spec"]["taints"]
    assert taints == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    status = read_status(load(fresh.paths.root / "Pulumi.there.yaml"), theirs.kubeconfig)
    assert [pool.settled for pool in status.pools] == [True]
    assert status.pools[0].planned == {"nvidia.com/mig-1g.5gb": 7}
    ours = {key for key in live(theirs, "theirs-cpu")["metadata"]["labels"] if key.startswith("gpuform.io/")}
    assert ours == set(), "a node that no selector matches gets nothing of ours"
    assert before.items() <= live(theirs, "theirs-cpu")["metadata"]["labels"].items()
    assert not engine.preview("there", on_event=lambda event: None).changed
    engine.destroy("there", on_event=lambda event: None)
    left = live(theirs, "theirs-gpu")
    assert "gpuform.io/pool" not in left["metadata"]["labels"]
    assert left["metadata"]["labels"]["rack"] == "7"
    assert not left["spec"].get("taints")
    assert "gpuform.io/gpu-ready" not in left["metadata"]["annotations"]


@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize("theirs", ["real"], indirect=True)
def test_nvidias_operator_leaves_no_label_and_no_cordoned_node(
    fresh: Checkout, theirs: Plane, repository: str
) -> None:
    """Its release alone leaves all of them, and stops a driver upgrade half-way."""

    def labels() -> dict[str, str]:
        found: dict[str, str] = live(theirs, "theirs-gpu")["metadata"]["labels"]
        return found

    def cordoned() -> bool:
        return bool(live(theirs, "theirs-gpu")["spec"].get("unschedulable"))

    before = live(theirs, "theirs-gpu")["metadata"]
    declare(fresh, theirs, repository, {"rack": "7"})
    engine = quiet_engine(fresh)
    engine.up("there", on_event=lambda event: None)
    assert proven(theirs, "theirs-gpu")["offers"] == {"nvidia.com/mig-1g.5gb": 7}
    until(labels, lambda found: found.get(UPGRADE) == "upgrade-done", 60)
    theirs.kubectl(
        *("patch", "clusterpolicy", "cluster-policy", "--type", "merge", "-p"),
        json.dumps({"spec": {"driver": {"version": "580.159.03"}}}),
    )
    until(cordoned, bool, 60)
    engine.destroy("there", on_event=lambda event: None)
    left = live(theirs, "theirs-gpu")["metadata"]
    assert not cordoned()
    assert {key for key in left["labels"] if key.startswith("nvidia.com/")} == set()
    assert {key for key in left["annotations"] if key.startswith("nvidia.com/")} == set()
    assert before["labels"].items() <= left["labels"].items()


@pytest.mark.usefixtures("gate")
def test_what_others_have_in_a_namespace_is_taken_by_no_update_and_no_destroy(
    fresh: Checkout, theirs: Plane, repository: str
) -> None:
    def shared() -> list[str]:
        found = theirs.kubectl("get", "configmap,pvc", "-n", "shared", "-o", "name").split()
        return [name for name in found if "kube-root-ca" not in name]

    quota = {"namespaces": [{"name": "shared", "quota": {"a100": {"1g.5gb": 2}}}]}
    declare(fresh, theirs, repository, {"rack": "7"}, **quota)
    engine = quiet_engine(fresh)
    engine.up("there", on_event=lambda event: None)
    theirs.kubectl("create", "configmap", "notes", "-n", "shared")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    data = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": claim}
    data["metadata"] = {"name": "data", "namespace": "shared"}
    theirs.kubectl("apply", "-f", "-", input=json.dumps(data))
    declare(fresh, theirs, repository, {"rack": "7"})
    lost = "namespace shared is deleted, with what the stack did not create: PersistentVolumeClaim data, "
    for run in (engine.preview, engine.up):
        with pytest.raises(EngineFailure) as refused:
            run("there", on_event=lambda event: None)
        assert f"{lost}ConfigMap notes; " in " ".join(refused.value.result.errors)

    env = load(fresh.paths.root / "Pulumi.there.yaml")
    site = stack_teardown(env, fresh.paths, engine, "there", Options(), say=lambda line: None)
    plan = site.plan()
    assert plan.kept_namespaces == ("shared (PersistentVolumeClaim data, ConfigMap notes)",)
    Destroy(site, plan).run()
    assert shared() == ["configmap/notes", "persistentvolumeclaim/data"]
    until(
        lambda: theirs.kubectl("get", "namespaces", "-o", "name"), lambda all_: "gpu-operator" not in all_, 60
    )


def kept(theirs: Plane) -> Any:
    """Spec and labels of what a team has in the namespace of its Prometheus."""
    kinds = "prometheuses,servicemonitors,prometheusrules,deployments,services,configmaps,serviceaccounts"
    items = json.loads(theirs.kubectl("get", kinds, "-n", "metrics", "-o", "json"))["items"]
    return [
        (item["kind"], item["metadata"]["name"], item["metadata"].get("labels"), item.get("spec"))
        for item in items
    ]


@pytest.mark.usefixtures("gate")
def test_a_prometheus_of_others_measures_the_stack_and_stays_as_it_is(
    fresh: Checkout, theirs: Plane, repository: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    theirs.plane.prepare_monitoring()
    own = on("existing", {"machine": "g4.p1.40g"}, monitoring={})
    assert own.monitoring
    values = monitoring.values(own, own.monitoring)
    for kind in ("podMonitor", "probe", "rule", "scrapeConfig", "serviceMonitor"):
        del values["prometheus"]["prometheusSpec"][f"{kind}Selector"]  # the chart's: by the release's name
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    chart = str(HERE.root / "charts/kube-prometheus-stack-sim")
    command = ["--kubeconfig", str(theirs.kubeconfig), "install", "stack", chart, "-f", str(file)]
    helm = [str(toolchain.path("helm")), *command, "-n", "metrics", "--create-namespace"]
    theirs.kubectl("create", "namespace", "gpu-operator")
    subprocess.run(helm, check=True, capture_output=True)
    before = kept(theirs)

    labels = {"release": "stack"}
    service = "stack-kube-prometheus-prometheus.metrics:9090"
    declare(
        fresh,
        theirs,
        repository,
        {"rack": "7"},
        monitoring={"prometheus": {"service": service, "labels": labels}},
    )
    env = load(fresh.paths.root / "Pulumi.there.yaml")
    listed = functools.partial(cluster.list_objects, str(theirs.kubeconfig), None)
    live_cluster = cluster.LiveCluster(env, False, listed)
    results = [check.run(live_cluster) for check in prometheus.checks(env, "kubectl")]
    assert [result.verdict for result in results] == ["PASS", "PASS"], results

    engine = quiet_engine(fresh)
    engine.up("there", on_event=lambda event: None)
    assert kept(theirs) == before
    with local_client(f"http://127.0.0.1:{prometheus_port(theirs.paths)}") as client:
        asked = Prometheus(client, "")
        found = until(lambda: asked.query("gpuform:device:util_ratio"), lambda all_: len(all_) == 7, 120)
        assert {sample.labels["node"] for sample in found} == {"theirs-gpu"}
        until(lambda: asked.query('gpuform:pool:gpus_requested{pool="a100"}'), bool, 60)
    engine.destroy("there", on_event=lambda event: None)
    assert kept(theirs) == before


@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize("theirs", ["kueue"], indirect=True)
def test_kueue_of_others_admits_the_stacks_jobs_and_stays_as_it_is(
    fresh: Checkout, theirs: Plane, repository: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    folder = HERE.root / pinned_charts.pin_folder("kueue")
    chart = pinned_charts.controller_chart("kueue", folder, HERE.cache)
    queued = {"teams": [{"name": "team", "namespaces": ["lab"], "quota": {"a100": {"1g.5gb": 2}}}]}
    jobs = [
        {
            "name": name,
            "namespace": "lab",
            "kind": "job",
            "pool": "a100",
            "queue": "team",
            "image": "a:1",
            "parallelism": 2,
        }
        for name in ("first", "second")
    ]
    declare(fresh, theirs, repository, {"rack": "7"}, queues=queued, workloads=jobs, existing=["kueue"])
    env = load(fresh.paths.root / "Pulumi.there.yaml")
    assert env.queues
    values = queues.values(env, env.queues)
    config = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": SYSTEM}
    config["managedJobsNamespaceSelector"] = {"matchExpressions": [others]}
    values["managerConfig"]["controllerManagerConfigYaml"] = yaml.safe_dump(config)
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = ["--kubeconfig", str(theirs.kubeconfig), "install", "kueue", str(chart), "-f", str(file)]
    place = ["-n", "kueue-system", "--create-namespace", "--wait", "--timeout", "90s"]
    done = subprocess.run([str(toolchain.path("helm")), *command, *place], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def theirs_now() -> Any:
        kinds = "deployments,configmaps,serviceaccounts,services"
        items = json.loads(theirs.kubectl("get", kinds, "-n", "kueue-system", "-o", "json"))["items"]
        return [(item["kind"], item["metadata"]["name"], item.get("spec")) for item in items]

    before = theirs_now()
    live_cluster = cluster.LiveCluster(
        env,
        False,
        functools.partial(cluster.list_objects, str(theirs.kubeconfig), None),
        functools.partial(cluster.find_object, str(theirs.kubeconfig), None),
    )
    (result,) = [check.run(live_cluster) for check in controllers.checks(env, "kubectl")]
    assert result.verdict == "PASS", result
    engine = quiet_engine(fresh)
    engine.up("there", on_event=lambda event: None)

    def admitted() -> list[bool]:
        items = json.loads(theirs.kubectl("get", "jobs", "-n", "lab", "-o", "json"))["items"]
        return sorted(not item["spec"].get("suspend") for item in items)

    assert until(admitted, lambda found: True in found, 60) == [False, True]
    engine.destroy("there", on_event=lambda event: None)
    assert theirs_now() == before
