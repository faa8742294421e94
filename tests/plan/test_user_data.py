"""User data, parsed by the formats' own parsers."""

from __future__ import annotations

import base64
import copy
import email
import tomllib
from typing import Any

import pytest
import yaml

from infra.model.environment import Environment
from infra.plan import karpenter, user_data
from policies import guarded
from policies.rule import Resource, judge
from tests.build.aws_environments import TABLE
from tests.fakes.recorder import record

pytestmark = pytest.mark.unit


def text_of(env: Environment) -> str:
    return user_data.render(env, env.pools[0])


def parts_of(text: str) -> dict[str, str]:
    message = email.message_from_string(text)
    assert message.is_multipart()
    assert not message.defects
    return {part.get_content_type(): part.get_payload() for part in message.get_payload()}  # type: ignore[union-attr,misc]


def settings_of(env: Environment) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(text_of(env))["settings"]
    return settings


def nvidia_of(env: Environment) -> dict[str, Any]:
    found: dict[str, Any] = settings_of(env)["kubelet-device-plugins"]["nvidia"]
    return found


def test_nothing_to_say_is_nothing() -> None:
    assert user_data.render(TABLE["bottlerocket"], TABLE["bottlerocket"].pools[1]) == ""


def test_al2023_closes_the_toolkit_before_it_pulls_images() -> None:
    text = text_of(TABLE["at boot"])
    assert list(parts_of(text)) == ["application/node.eks.aws", "text/x-shellscript"]
    assert text.index("nvidia-ctk") < text.index("ctr version")


@pytest.mark.parametrize("name", TABLE)
def test_the_policy_finds_containers_that_see_gpus_without_a_request(name: str) -> None:
    """On every node with GPUs and a toolkit of its own, whoever creates the node."""
    env = TABLE[name]
    judged = record(env.resolved()).judged()
    assert list(judge(guarded.RULES, judged)) == []
    found = judge(guarded.RULES, [_open(item) for item in judged])
    with_gpus = [pool.name for pool in env.pools if pool.gpus and pool.image.family == "AL2023"]
    assert sorted(entry.resource.name.rpartition("-")[2] for entry in found) == with_gpus


def _open(resource: Resource) -> Resource:
    """The resource without the part of its user data that closes the setting."""
    closing = "unprivileged=false"
    props: Any = copy.deepcopy(resource.props)
    if encoded := props.get("userData"):
        text = base64.b64decode(encoded).decode()
        props["userData"] = base64.b64encode(text.replace(closing, "").encode()).decode()
    elif "userData" in props.get("spec", {}):
        props["spec"]["userData"] = props["spec"]["userData"].replace(closing, "")
    return Resource(resource.type, resource.name, props)


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("busybox:1.37", "docker.io/library/busybox:1.37"),
        ("tensorflow/serving:2.12.1-gpu", "docker.io/tensorflow/serving:2.12.1-gpu"),
        ("quay.io/a/b:1", "quay.io/a/b:1"),
        ("localhost/a:1", "localhost/a:1"),
        ("registry:5000/a:1", "registry:5000/a:1"),
    ],
)
def test_an_image_is_pulled_under_the_name_that_pods_will_find(image: str, full: str) -> None:
    assert f"images pull {full}" in user_data.prepull_script((image,))


def test_bottlerocket_is_told_the_kubelets_limits_by_settings() -> None:
    assert settings_of(TABLE["bottlerocket"])["kubernetes"] == {"max-pods": 110, "pod-pids-limit": 32768}


def test_bottlerocket_shares_by_settings() -> None:
    assert nvidia_of(TABLE["bottlerocket"]) == {
        "device-sharing-strategy": "time-slicing",
        "time-slicing": {"replicas": 3, "rename-by-default": True, "fail-requests-greater-than-one": True},
    }
    assert nvidia_of(TABLE["bottlerocket mps"]) == {
        "device-sharing-strategy": "mps",
        "mps": {"replicas": 4, "rename-by-default": False},
    }
    assert nvidia_of(TABLE["bottlerocket mig"]) == {
        "device-partitioning-strategy": "mig",
        "mig": {"profile": {"a100.40gb": "1g.5gb"}},
    }


@pytest.mark.parametrize(
    ("name", "policy"), [("own disks", "RAID0"), ("bottlerocket, own disks", "RAID0"), ("sliced", None)]
)
def test_karpenter_is_told_to_use_the_nodes_disks(name: str, policy: str | None) -> None:
    manifest = karpenter.ec2_node_class(TABLE[name], TABLE[name].pools[0], "role", "labs")
    assert manifest["spec"].get("instanceStorePolicy") == policy


def test_managed_nodes_are_told_to_use_their_disks_and_karpenters_by_their_class() -> None:
    env = TABLE["own disks"]
    elastic, managed = env.pools
    assert "NodeConfig" not in user_data.render(env, elastic)
    config = yaml.safe_load(parts_of(user_data.render(env, managed))["application/node.eks.aws"])
    assert config["spec"] == {"instance": {"localStorage": {"strategy": "RAID0"}}}
    env = TABLE["bottlerocket, own disks"]
    elastic, managed = env.pools
    assert "bootstrap-commands" not in tomllib.loads(user_data.render(env, elastic))["settings"]
    steps = tomllib.loads(user_data.render(env, managed))["settings"]["bootstrap-commands"]["instance-store"]
    init, bind = steps.pop("commands")
    assert init == ["apiclient", "ephemeral-storage", "init"]
    assert bind[:4] == ["apiclient", "ephemeral-storage", "bind", "--dirs"]
    assert set(bind[4:]) == {"/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"}
    assert steps == {"mode": "always", "essential": True}
