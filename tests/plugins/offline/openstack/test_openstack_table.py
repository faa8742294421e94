"""Magnum's types offline: against the SDK that programs use, and what Magnum itself refuses."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi_openstack as openstack
import pytest
import yaml
from pulumi import _types

from gpuform.plugins.handler import Call, Checked, Diffed, Engine, PluginError
from gpuform.plugins.offline.openstack import functions
from gpuform.plugins.offline.openstack.outputs import kubeconfig
from gpuform.plugins.offline.openstack.resource import OfflineResource
from gpuform.plugins.offline.openstack.row import Kind
from gpuform.plugins.offline.openstack.table import CLUSTER, NODE_GROUP, ROWS, TEMPLATE, row
from gpuform.plugins.properties import UNKNOWN, Secret, reveal
from tests.plugins.offline.test_handover import data

pytestmark = pytest.mark.unit

GOOD: Mapping[str, dict[str, Any]] = {
    CLUSTER: {"name": "research", "clusterTemplateId": "t", "masterCount": 1, "labels": {"a": "b"}},
    NODE_GROUP: {"name": "gpu-t4", "clusterId": "c", "flavorId": "g2.5xlarge", "nodeCount": 2},
    TEMPLATE: {"name": "own", "coe": "kubernetes", "image": "fedora-coreos-40"},
}
TYPES = {Kind.TEXT: str, Kind.WHOLE: int, Kind.FLAG: bool}


def call(token: str, *, preview: bool = False) -> Call:
    return Call(f"urn:pulumi:s::p::{token}::x", token, "x", Engine(), asyncio.Event(), preview=preview)


def handler(token: str) -> OfflineResource:
    return OfflineResource(row(token), "cern")


def check(token: str, inputs: dict[str, Any]) -> Checked:
    return asyncio.run(handler(token).check(call(token), {}, inputs))


def make(token: str, inputs: dict[str, Any], *, preview: bool = False) -> tuple[str, dict[str, Any]]:
    checked = check(token, inputs)
    assert not checked.failures
    return asyncio.run(handler(token).create(call(token, preview=preview), checked.inputs))


def diff(token: str, old: dict[str, Any], new: dict[str, Any]) -> Diffed:
    before = check(token, old).inputs
    after = asyncio.run(handler(token).check(call(token), before, new)).inputs
    id, outputs = asyncio.run(handler(token).create(call(token), before))
    return asyncio.run(handler(token).diff(call(token), id, before, outputs, after))


def sdk(token: str, suffix: str = "") -> Any:
    return getattr(openstack.containerinfra, token.rsplit(":", 1)[-1] + suffix)


@pytest.mark.parametrize("token", ROWS)
def test_inputs_are_those_of_the_sdk_with_its_types(token: str) -> None:
    assert sdk(token).pulumi_type == token
    found = _types.input_type_types(sdk(token, "Args"))
    assert set(found) == set(ROWS[token].inputs)
    for name, kind in ROWS[token].inputs.items():
        if kind is Kind.TEXTS:
            assert typing.get_origin(found[name]) is Mapping
        else:
            assert found[name] is TYPES[kind], name


@pytest.mark.parametrize("token", ROWS)
def test_outputs_are_those_of_the_sdk(token: str) -> None:
    known = set(_types.resource_py_to_pulumi_names(sdk(token)).values())
    _, made = make(token, GOOD[token])
    assert set(made) <= known
    assert {*ROWS[token].replaces, *ROWS[token].filled, *ROWS[token].defaults} <= set(ROWS[token].inputs)
    assert (make(token, GOOD[token])) == make(token, GOOD[token]), "the same inputs, the same answer"


@pytest.mark.parametrize("token", ROWS)
def test_a_preview_does_not_know_what_magnum_decides(token: str) -> None:
    id, made = make(token, GOOD[token], preview=True)
    assert id == ""
    assert made["createdAt"] is UNKNOWN
    assert made["name"] == GOOD[token]["name"]


@pytest.mark.parametrize(
    ("token", "bad", "path", "reason"),
    [
        (CLUSTER, {"colour": "blue"}, "colour", "there is no such input; there are clusterTemplateId, "),
        (CLUSTER, {"clusterTemplateId": None}, "clusterTemplateId", "missing; Magnum makes no cluster"),
        (CLUSTER, {"labels": {"a": True}}, "labels", "{'a': True} is not a map of strings"),
        (CLUSTER, {"nodeCount": "1"}, "nodeCount", "'1' is not a whole number"),
        (CLUSTER, {"mergeLabels": "yes"}, "mergeLabels", "'yes' is not true or false"),
        (CLUSTER, {"name": "1st"}, "name", "'1st' does not match [a-zA-Z]"),
        (CLUSTER, {"name": "a" * 243}, "name", "243 characters are too many; 242 is the most"),
        (CLUSTER, {"masterCount": 2}, "masterCount", "2 is even; Magnum takes an odd number of masters"),
        (
            CLUSTER,
            {"masterCount": 3, "masterLbEnabled": False},
            "masterCount",
            "3 masters need masterLbEnabled",
        ),
        (CLUSTER, {"dockerVolumeSize": 0}, "dockerVolumeSize", "0 is too small; 1 is the least"),
        (NODE_GROUP, {"clusterId": None}, "clusterId", "missing; Magnum makes no node group without it"),
        (NODE_GROUP, {"maxNodeCount": 1}, "maxNodeCount", "1 is less than nodeCount, 2"),
        (
            NODE_GROUP,
            {"nodeCount": 3, "minNodeCount": 3, "maxNodeCount": 2},
            "maxNodeCount",
            "2 is less than minNodeCount, 3",
        ),
        (NODE_GROUP, {"minNodeCount": 3}, "minNodeCount", "3 is more than nodeCount, 2"),
        (NODE_GROUP, {"dockerVolumeSize": 0}, "dockerVolumeSize", "0 is too small; 1 is the least"),
        (NODE_GROUP, {"name": "default-worker"}, "name", "every cluster has a group default-worker"),
        (NODE_GROUP, {"role": "master"}, "role", "Magnum makes no further groups of masters"),
        (TEMPLATE, {"networkDriver": "weave"}, "networkDriver", "it knows flannel, calico, cilium"),
        (TEMPLATE, {"apiserverPort": 443}, "apiserverPort", "443 is too small; 1024 is the least"),
        (TEMPLATE, {"image": None}, "image", "missing; Magnum makes no cluster template without it"),
    ],
)
def test_what_magnum_refuses(token: str, bad: dict[str, Any], path: str, reason: str) -> None:
    failures = dict(check(token, {**GOOD[token], **bad}).failures)
    assert list(failures) == [path]
    assert reason in failures[path]


@pytest.mark.parametrize(
    ("token", "new", "changed", "replaced"),
    [
        (CLUSTER, {"nodeCount": 3}, {"nodeCount"}, set()),
        (CLUSTER, {"clusterTemplateId": "u"}, {"clusterTemplateId"}, set()),
        (CLUSTER, {"labels": {"a": "c"}}, {"labels.a"}, {"labels.a"}),
        (CLUSTER, {"labels": None}, set(), set()),
        (CLUSTER, {"masterCount": 3}, {"masterCount"}, {"masterCount"}),
        (CLUSTER, {"mergeLabels": True}, {"mergeLabels"}, {"mergeLabels"}),
        (NODE_GROUP, {"nodeCount": 3}, {"nodeCount"}, set()),
        (NODE_GROUP, {"minNodeCount": 1, "maxNodeCount": 4}, {"minNodeCount", "maxNodeCount"}, set()),
        (NODE_GROUP, {"flavorId": "g2.xlarge"}, {"flavorId"}, {"flavorId"}),
        (NODE_GROUP, {"flavorId": None}, set(), set()),
        (TEMPLATE, {"image": "fedora-coreos-41"}, {"image"}, set()),
        (TEMPLATE, {"region": "other"}, {"region"}, {"region"}),
    ],
)
def test_what_changes_and_what_that_replaces(
    token: str, new: dict[str, Any], changed: set[str], replaced: set[str]
) -> None:
    found = diff(token, GOOD[token], {**GOOD[token], **new})
    assert set(found.changes) == changed
    assert set(found.replaces) == replaced
    assert found.delete_before_replace == bool(replaced), "the name is the program's own"


def test_an_update_keeps_what_magnum_has_decided() -> None:
    old = check(CLUSTER, GOOD[CLUSTER]).inputs
    id, made = make(CLUSTER, GOOD[CLUSTER])
    changed = {**old, "nodeCount": 4}
    now = asyncio.run(handler(CLUSTER).update(call(CLUSTER), id, old, made, changed))
    assert now == {**made, "nodeCount": 4}


def test_a_type_that_nobody_taught_it_is_named() -> None:
    with pytest.raises(PluginError, match="does not know this type \\(it knows Cluster, ClusterTemplate, "):
        row("openstack:compute/instance:Instance")


def test_the_kubeconfig_is_a_secret_and_leads_to_the_embedded_control_plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": data("CA")}
    user = {"client-certificate-data": data("CERT"), "client-key-data": data("KEY")}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({"clusters": [{"cluster": cluster}], "users": [{"user": user}]}))
    monkeypatch.setenv("GPUFORM_OFFLINE_KUBECONFIG", str(file))
    _, made = make(CLUSTER, GOOD[CLUSTER])
    assert isinstance(made["kubeconfig"], Secret)
    found = reveal(made["kubeconfig"])
    assert {key: found[key] for key in found if key != "raw_config"} == {
        "host": "https://127.0.0.1:6443",
        "cluster_ca_certificate": "CA",
        "client_certificate": "CERT",
        "client_key": "KEY",
    }
    document = yaml.safe_load(found["raw_config"])
    assert document["clusters"] == [{"name": "research", "cluster": cluster}]
    assert document["users"] == [{"name": "research-admin", "user": user}]
    assert document["current-context"] == "research"
    assert made["apiAddress"] == cluster["server"]


def test_without_a_control_plane_the_kubeconfig_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUFORM_OFFLINE_KUBECONFIG", raising=False)
    assert kubeconfig("x")["host"] == "https://198.51.100.1:6443"


@pytest.mark.parametrize("name", ["ClusterTemplate", "Cluster", "NodeGroup"])
def test_lookups_have_every_answer_of_the_sdk(name: str) -> None:
    token = f"openstack:containerinfra/get{name}:get{name}"
    found = functions.answer(token, {"name": "kubernetes-1.30.2-2", "clusterId": "c"}, "cern")
    result = getattr(openstack.containerinfra, f"Get{name}Result")
    camel = set(_types.resource_py_to_pulumi_names(sdk(f"x:{name}")).values())
    asked = {"flavor", "image"} if name == "NodeGroup" else camel - {"mergeLabels"}
    assert asked <= set(found)
    assert {key for key in vars(result) if not key.startswith("_")} <= {_snake(key) for key in found}
    assert found["region"] == "cern"
    if name == "ClusterTemplate":
        assert found["labels"] == {"kube_tag": "v1.30.2"}


def _snake(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name)


@pytest.mark.parametrize(
    ("token", "args", "message"),
    [
        ("openstack:images/getImage:getImage", {"name": "x"}, "answers getCluster, getClusterTemplate, "),
        ("openstack:containerinfra/getCluster:getCluster", {}, "name is missing"),
    ],
)
def test_lookups_that_cannot_be_answered(token: str, args: dict[str, str], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        functions.answer(token, dict(args), "cern")
