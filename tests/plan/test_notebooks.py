from __future__ import annotations

from typing import Any

import pytest

from gpuform.stack.preview import snapshot
from infra.config import parse
from infra.plan import images, notebooks, workloads
from lab.rehearse import pods
from policies.pack import RULES
from policies.rule import judge
from tests.build.edits import changed
from tests.config import tables
from tests.fakes.recorder import record

pytestmark = pytest.mark.unit

GOOD = tables.GOOD["notebooks"]
QUEUED = (
    {"at": "queues", "put": {"teams": [{"name": "course", "namespaces": ["course"], "quota": {"mig": 7}}]}},
    {"at": "workloads/0/queue", "put": "course"},
)


def objects_of(*changes: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Objects of the notebooks by kind and name."""
    env = parse(changed(GOOD, *changes))
    return {(item["kind"], item["metadata"]["name"]): item for item in workloads.manifests(env)}


def container(found: dict[tuple[str, str], Any], name: str) -> Any:
    (item,) = found["StatefulSet", name]["spec"]["template"]["spec"]["containers"]
    return item


def variables(found: dict[tuple[str, str], Any], name: str) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container(found, name)["env"]}


def test_no_update_starts_or_stops_a_notebook_or_loses_its_home() -> None:
    spec = objects_of()["StatefulSet", "ada"]["spec"]
    assert "replicas" not in spec
    assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
    (claim,) = spec["volumeClaimTemplates"]
    (mount,) = container(objects_of(), "ada")["volumeMounts"]
    assert mount == {"name": claim["metadata"]["name"], "mountPath": "/home/jovyan"}
    assert "storageClassName" not in claim["spec"]
    other = objects_of({"at": "workloads/0/user", "put": "eve"})["StatefulSet", "ada"]["spec"]
    assert other["volumeClaimTemplates"][0]["metadata"]["name"] != claim["metadata"]["name"]


def test_shm_and_home_are_both_mounted() -> None:
    found = objects_of({"at": "workloads/0/shm", "put": "512Mi"})
    assert [item["name"] for item in container(found, "ada")["volumeMounts"]] == ["shm", "home-ada"]


def test_an_editor_ends_after_the_idle_time() -> None:
    found = objects_of(
        {"at": "workloads/1/home", "put": {"size": "1Gi"}},
        {"at": "workloads/1/cull", "put": {"idle_minutes": 2}},
    )
    assert "--ServerApp.shutdown_no_activity_timeout=3600 " in variables(found, "ada")["NOTEBOOK_ARGS"]
    assert variables(found, "bob")["CODE_SERVER_IDLE_TIMEOUT_SECONDS"] == "120"
    assert "env" not in container(objects_of({"at": "workloads/0/cull", "put": None}), "ada")


def test_a_password_is_only_referred_to() -> None:
    key = {"secretKeyRef": {"name": "bob-password", "key": "password"}}
    assert variables(objects_of(), "bob") == {"PASSWORD": key}
    found = objects_of({"at": "workloads/0/secret", "put": "s"})
    assert variables(found, "ada")["JUPYTER_TOKEN"]["secretKeyRef"]["name"] == "s"
    assert found["Service", "ada"]["spec"]["type"] == "ClusterIP"


def test_pinned_images_come_from_the_mirror() -> None:
    env = parse(changed(GOOD, {"at": "registries", "put": {"quay.io": "m.example/quay"}}))
    mine = {
        item.name: item.pulled_as for item in images.list_artifacts(env) if "StatefulSet" in str(item.used_by)
    }
    assert len(mine) == 2
    assert [name for name in mine.values() if name.startswith("m.example/quay/jupyter/pytorch-notebook:")]
    own = objects_of({"at": "workloads/0/image", "put": "r.example/lab:1"})
    assert container(own, "ada")["image"] == "r.example/lab:1"


def test_the_culler_may_stop_the_notebooks_that_are_culled_and_nothing_else() -> None:
    found = notebooks.manifests(parse(GOOD))
    (role,) = [item for item in found if item["kind"] == "Role"]
    assert role["metadata"]["namespace"] == "course"
    assert [(entry["resources"], entry["verbs"], entry.get("resourceNames")) for entry in role["rules"]] == [
        (["pods"], ["get"], ["ada-0"]),
        (["statefulsets/scale"], ["patch"], ["ada"]),
        (["events"], ["create"], None),
    ]
    assert not [one for one in found if one["kind"] == "ClusterRole"]
    (files,) = [one for one in found if one["kind"] == "ConfigMap"]
    assert set(files["data"]) == {*notebooks.FILES, notebooks.CULLED}
    without = parse(changed(GOOD, {"at": "workloads/0/cull", "put": None}))
    assert [one["kind"] for one in notebooks.manifests(without)] == ["StorageClass"]


def test_the_policies_hold_and_find_a_notebook_that_bypasses_its_queue() -> None:
    judged = record(changed(GOOD, *QUEUED)).judged()
    assert list(judge(RULES, judged)) == []
    for item in judged:
        item.props.get("metadata", {}).get("labels", {}).pop("kueue.x-k8s.io/queue-name", None)
    assert {item.rule.id for item in judge(RULES, judged)} == {"gpu-workload-queued"}


def test_what_kueue_lets_no_update_change_replaces_the_stateful_set() -> None:
    for env, expected in ((GOOD, []), (changed(GOOD, *QUEUED), ["spec.template.spec", "metadata.labels"])):
        (ada,) = [
            item for item in record(env).of("kubernetes:apps/v1:StatefulSet") if item.name.endswith("-ada")
        ]
        assert list(ada.request.replaceOnChanges) == expected
        assert ada.request.deleteBeforeReplace


def test_a_rehearsal_has_every_storage_class_and_a_preview_names_what_is_restarted() -> None:
    edits = {"cluster": {"kind": "existing", "kubeconfig": "/k"}, "pools/0/selector": {"a": "b"}}
    edits |= {"pools/1/selector": {"a": "c"}, "pools/0/nodes": None, "pools/1/nodes": None}
    edits |= {"workloads/0/home/storage_class": "fast"}
    env = parse(changed(GOOD, *({"at": at, "put": put} for at, put in edits.items())))
    assert [item["kind"] for item in notebooks.manifests(env)][:1] == ["ServiceAccount"]
    (found,) = [entry for entry in pods.manifests(env) if entry["kind"] == "StorageClass"]
    assert found["metadata"] == {"name": "fast"}
    assert [one.owner for one in snapshot.declared_snapshot(env).pods] == ["StatefulSet/ada"]
