"""The parts that decide without a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuform.plugins.handler import Call, Change, Engine, PluginError
from gpuform.plugins.kubernetes.difference import changes, like
from gpuform.plugins.kubernetes.naming import field_manager, named, split_id
from gpuform.plugins.kubernetes.replacement import replacing, steps
from gpuform.plugins.properties import UNKNOWN, Secret, from_struct, has_unknown, reveal, to_struct

pytestmark = pytest.mark.unit


def call(seed: bytes = b"seed", **more: Any) -> Call:
    urn = "urn:pulumi:s::p::kubernetes:core/v1:ConfigMap::cm"
    return Call(
        urn=urn,
        type="kubernetes:core/v1:ConfigMap",
        name="cm",
        engine=Engine(),
        cancelled=asyncio.Event(),
        random_seed=seed,
        **more,
    )


def test_property_values_survive_the_wire() -> None:
    values = {
        "text": "x",
        "whole": 3,
        "part": 0.5,
        "yes": True,
        "none": None,
        "list": [1, {"a": []}],
        "map": {},
        "secret": Secret({"p": [Secret("q")]}),
        "unknown": UNKNOWN,
    }
    back = from_struct(to_struct(values))
    assert back == values
    assert isinstance(back["whole"], int)
    assert has_unknown(back)
    assert "q" not in repr(back["secret"])
    assert reveal(back["secret"]) == {"p": ["q"]}


def test_an_output_value_is_what_it_holds() -> None:
    signature = "4dabf18193072939515e22adb298388d"
    output = {signature: "d0e6a833031e9bbcd3f4e8bde6ca49a4"}
    values = {"a": output, "b": {**output, "value": "x", "secret": True}, "c": {**output, "value": "x"}}
    assert from_struct(to_struct(values)) == {"a": UNKNOWN, "b": Secret("x"), "c": "x"}


@pytest.mark.parametrize(
    ("news", "olds", "expected"),
    [
        ({}, {}, r"^cm-[0-9a-f]{8}$"),
        ({"metadata": {"name": "mine"}}, {}, r"^mine$"),
        ({}, {"metadata": {"name": "cm-old", "annotations": {"pulumi.com/autonamed": "true"}}}, r"^cm-old$"),
        ({}, {"metadata": {"name": "mine"}}, r"^cm-[0-9a-f]{8}$"),
    ],
)
def test_names(news: dict[str, Any], olds: dict[str, Any], expected: str) -> None:
    import re

    metadata = named(call(), olds, news)["metadata"]
    assert re.search(expected, metadata["name"])
    assert (metadata.get("annotations") == {"pulumi.com/autonamed": "true"}) == (metadata["name"] != "mine")


def test_a_made_up_name_follows_from_the_seed() -> None:
    names = {named(call(seed), {}, {})["metadata"]["name"] for seed in (b"a", b"a", b"b")}
    assert len(names) == 2
    assert "name" not in named(call(), {}, {"metadata": {"generateName": "x-"}})["metadata"]
    assert named(call(), {}, {"metadata": UNKNOWN}) == {"metadata": UNKNOWN}


def test_the_stack_may_choose_or_forbid_made_up_names() -> None:
    assert named(call(autonaming=("enforce", "chosen")), {}, {})["metadata"]["name"] == "chosen"
    with pytest.raises(PluginError, match=r"cm: automatic names are switched off; set metadata.name"):
        named(call(autonaming=("disable", "")), {}, {})


def test_the_field_manager_follows_from_the_urn() -> None:
    assert field_manager("urn:a") == field_manager("urn:a") != field_manager("urn:b")
    assert len(field_manager("urn:a")) == len("pulumi-kubernetes-40ab003a")


def test_ids() -> None:
    assert split_id("ns/name") == ("ns", "name")
    assert split_id("name") == (None, "name")
    with pytest.raises(PluginError, match="neither NAME nor NAMESPACE/NAME"):
        split_id("a/b/c")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": Change.UPDATE}),
        ({"a": None}, {}, {}),
        ({}, {"a": {"b": 1}}, {"a": Change.ADD}),
        ({"l": [{"x": 1}, 2]}, {"l": [{"x": 2}]}, {"l[0].x": Change.UPDATE, "l[1]": Change.DELETE}),
        ({"m": {"a.b/c": "x"}}, {"m": {}}, {'m["a.b/c"]': Change.DELETE}),
        ({"a": "x"}, {"a": UNKNOWN}, {"a": Change.UPDATE}),
        ({"a": Secret("x")}, {"a": "x"}, {}),
        ({"a": True}, {"a": 1}, {"a": Change.UPDATE}),
    ],
)
def test_differences(old: Any, new: Any, expected: dict[str, Change]) -> None:
    assert changes(old, new) == expected


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 0}, {"a": 1}),
        ({"cpu": "1"}, {"cpu": "1000m"}, {"cpu": "1000m"}),
        ({"mem": "1073741824"}, {"mem": "1Gi"}, {"mem": "1Gi"}),
        ({"cpu": "2"}, {"cpu": "1000m"}, {"cpu": "2"}),
        ({"t": [{"key": "a"}, {"key": "added"}]}, {"t": [{"key": "a"}]}, {"t": [{"key": "a"}]}),
        ({"c": [{"name": "b", "i": 2}]}, {"c": [{"name": "a", "i": 1}]}, {"c": [{"name": "b", "i": 2}]}),
        ({}, {"gone": 1}, {}),
        ({"d": {"p": "new"}}, {"d": Secret({"p": "old"})}, {"d": Secret({"p": "new"})}),
    ],
)
def test_what_a_refresh_writes_down(live: Any, wanted: Any, expected: Any) -> None:
    assert like(live, wanted) == expected


@pytest.mark.parametrize(
    ("kind", "path", "replaced"),
    [
        ("v1/ConfigMap", "data.a", True),
        ("v1/ConfigMap", 'binaryData["a.b"]', True),
        ("v1/ConfigMap", "metadata.labels.a", False),
        ("v1/ConfigMap", "immutable", False),
        ("v1/Secret", "type", True),
        ("v1/Pod", "spec.containers[0].image", True),
        ("v1/Pod", "spec.nodeSelector.a", True),
        ("v1/Pod", "spec.tolerations[2]", False),
        ("v1/Pod", "spec.activeDeadlineSeconds", False),
        ("v1/Service", "spec.clusterIP", True),
        ("v1/Service", "spec.ports[0].port", False),
        ("v1/PersistentVolumeClaim", "spec.storageClassName", True),
        ("v1/PersistentVolumeClaim", "spec.resources.requests.storage", False),
        ("apps/v1/Deployment", "spec.selector.matchLabels.a", True),
        ("apps/v1/Deployment", "spec.template.spec.containers[0].image", False),
        ("apps/v1/DaemonSet", "spec.selector", True),
        ("apps/v1/StatefulSet", "spec.volumeClaimTemplates[0].spec", True),
        ("batch/v1/Job", "spec.template.spec.containers[0].image", True),
        ("batch/v1/Job", "spec.suspend", False),
        ("batch/v1/CronJob", "spec.schedule", False),
        ("rbac.authorization.k8s.io/v1/RoleBinding", "roleRef.name", True),
        ("storage.k8s.io/v1/StorageClass", "provisioner", True),
        ("scheduling.k8s.io/v1/PriorityClass", "value", True),
        ("karpenter.sh/v1/NodePool", "spec.limits.cpu", False),
        ("karpenter.sh/v1/NodePool", "metadata.name", True),
        ("v1/Namespace", "metadata.namespace", True),
    ],
)
def test_replacement(kind: str, path: str, replaced: bool) -> None:
    api_version, _, name = kind.rpartition("/")
    assert replacing(api_version, name, [path]) == ([path] if replaced else [])


def test_mutable_content_stays_in_place() -> None:
    assert replacing("v1", "ConfigMap", ["data.a", "metadata.name"], mutable=True) == ["metadata.name"]
    assert replacing("v1", "Secret", ["data.a", "type"], mutable=True) == ["type"]


def test_paths_fall_into_their_steps() -> None:
    assert steps('metadata.annotations["a.b/c"].x[0].y') == [
        "metadata",
        "annotations",
        "a.b/c",
        "x",
        "0",
        "y",
    ]
    assert steps('data["a.b"]') == ["data", "a.b"]


def test_metadata_that_is_secret_as_a_whole_is_named_and_stays_secret() -> None:
    secret = named(call(), {}, {"metadata": Secret({"labels": {"a": "b"}})})["metadata"]
    assert isinstance(secret, Secret)
    assert set(secret.value) == {"labels", "annotations", "name"}
    given = {"metadata": Secret({"name": "mine"})}
    assert named(call(), {}, given) == given
