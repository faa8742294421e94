"""Templates, what is looked up, and the provider's own settings."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pulumi_openstack
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from pulumi_openstack import containerinfra

from gpuform.plugins.handler import Engine, PluginError
from gpuform.plugins.openstack.clouds import KNOWN
from gpuform.plugins.openstack.kubeconfig import usable
from gpuform.plugins.openstack.provider import OpenstackProvider
from gpuform.plugins.openstack.table import CLUSTER, CLUSTER_TEMPLATE, NODE_GROUP, Table
from gpuform.plugins.properties import Secret, reveal
from tests.plugins.openstack import serving
from tests.plugins.openstack.driving import TEMPLATE, Driver
from tests.plugins.openstack.fake import PROJECT, Fake

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("quick")]
OWN = {"name": "own", "coe": "kubernetes", "image": "fedora-coreos-40", "networkDriver": "calico"}


def provider(**config: Any) -> OpenstackProvider:
    made = OpenstackProvider(Engine())
    asyncio.run(made.configure(config))
    return made


def look_up(function: str, **args: Any) -> dict[str, Any]:
    token = f"openstack:containerinfra/{function}:{function}"
    found: dict[str, Any] = asyncio.run(provider(cloud="cern").invoke(token, args))
    return found


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (CLUSTER, containerinfra.Cluster),
        (NODE_GROUP, containerinfra.NodeGroup),
        (CLUSTER_TEMPLATE, containerinfra.ClusterTemplate),
    ],
)
def test_the_properties_are_those_of_the_sdk(table: Table, kind: Any) -> None:
    args = set(inspect.signature(kind._internal_init).parameters) - {"resource_name", "opts", "__props__"}
    args.discard("self")
    args.discard("__self__")
    given = {_snake(name) for name, one in table.items() if one.given} | {"region"}
    assert given == args
    shown = {_snake(name) for name in table} | {"region"}
    outputs = {name for name, value in vars(kind).items() if isinstance(value, property)}
    assert outputs - shown <= {"kubeconfig", "id", "urn", "pulumi_resource_name"}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def test_the_settings_are_those_of_the_sdk() -> None:
    parameters = set(inspect.signature(pulumi_openstack.Provider._internal_init).parameters)
    args = parameters - {"self", "__self__", "resource_name", "opts", "__props__"}
    assert {_snake(name) for name in KNOWN - {"version"}} == args


def test_a_template_is_made_with_the_flags_that_the_official_provider_always_sends(fake: Fake) -> None:
    driver = Driver(TEMPLATE)
    made = driver.up(**OWN, floatingIpEnabled=True, labels={"a": "b"})
    [(_, path, body)] = fake.changes()
    assert path == "/magnum/v1/clustertemplates"
    flags = ("master_lb_enabled", "public", "registry_enabled", "tls_disabled", "hidden")
    assert {name: body[name] for name in flags} == dict.fromkeys(flags, False)
    assert (body["floating_ip_enabled"], body["image_id"], body["labels"]) == (
        True,
        "fedora-coreos-40",
        {"a": "b"},
    )
    assert (made["image"], made["networkDriver"], made["flavor"]) == ("fedora-coreos-40", "calico", "")


def test_a_template_changes_in_place(fake: Fake) -> None:
    driver = Driver(TEMPLATE)
    driver.up(**OWN, dnsNameserver="8.8.8.8", public=False)
    fake.requests.clear()
    made = driver.up(**OWN, public=True, labels={"a": "b"}, name2=None)
    [(_, _, patch)] = fake.changes()
    assert patch == [
        {"op": "remove", "path": "/dns_nameserver"},
        {"op": "replace", "path": "/labels", "value": "{'a':'b'}"},
        {"op": "replace", "path": "/public", "value": "true"},
    ]
    assert made["labels"] == {"a": "b"}
    driver.up(**OWN, public=True, labels={"a": "b"})
    assert driver.steps == ["create", "update"]


def test_a_template_in_use_says_what_to_do(fake: Fake) -> None:
    driver = Driver(TEMPLATE)
    driver.up(**OWN)
    fake.make_cluster({"name": "research", "cluster_template_id": driver.id})
    with pytest.raises(PluginError, match=r"clusters use it.*declare another template beside it"):
        driver.up(**OWN | {"image": "fedora-coreos-41"})


def test_a_template_goes_and_may_be_gone(fake: Fake) -> None:
    driver = Driver(TEMPLATE)
    driver.up(**OWN)
    fake.templates.pop(driver.id)
    driver.down()
    assert "own" not in [one["name"] for one in fake.templates.values()]


@pytest.mark.parametrize("verb", ["refresh", "down"])
def test_a_template_that_another_project_does_not_see_is_not_gone(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    driver = Driver(TEMPLATE)
    driver.up(**OWN)
    fake.templates.pop(driver.id)
    monkeypatch.setattr(serving, "PROJECT", "another")
    with pytest.raises(PluginError, match=f"cluster template own: is in project {PROJECT}, and the creden"):
        getattr(driver, verb)()
    monkeypatch.undo()


def test_a_port_out_of_range() -> None:
    found = Driver(TEMPLATE).ask("check", {}, {**OWN, "apiserverPort": 443})
    assert list(found.failures) == [("apiserverPort", "must be 1024 to 65535")]


def test_a_template_is_looked_up_by_name(fake: Fake) -> None:
    found = look_up("getClusterTemplate", name="kubernetes-1.30.2-2")
    assert found["id"] == next(iter(fake.templates))
    assert (found["coe"], found["labels"], found["region"]) == ("kubernetes", {"kube_tag": "v1.30.2"}, "cern")
    assert fake.changes() == []


def test_a_cluster_and_its_groups_are_looked_up(fake: Fake) -> None:
    made = fake.make_cluster({"name": "old", "cluster_template_id": "kubernetes-1.30.2-2"})
    made["api_address"] = "https://10.0.0.5:6443"
    found = look_up("getCluster", name="old")
    assert (found["id"], isinstance(found["kubeconfig"], Secret)) == (made["uuid"], True)
    assert reveal(found["kubeconfig"])["host"] == "https://10.0.0.5:6443"
    group = look_up("getNodeGroup", clusterId=made["uuid"], name="default-worker")
    assert (group["role"], group["nodeCount"], group["flavor"]) == ("worker", 1, "m1.small")


@pytest.mark.usefixtures("fake")
def test_what_is_not_there_is_named() -> None:
    with pytest.raises(PluginError, match="there is no cluster template none"):
        look_up("getClusterTemplate", name="none")
    with pytest.raises(PluginError, match="has no functions"):
        look_up("getFlavor", name="g2.5xlarge")
    with pytest.raises(PluginError, match=r"stand-in of the openstack provider has .*cluster:Cluster"):
        provider().handler("openstack:compute/instance:Instance")


def test_credentials_may_be_settings_of_the_provider(fake: Fake) -> None:
    settings = {
        "authUrl": f"{fake.address}/identity/v3",
        "userName": "ana",
        "password": Secret(fake.password),
        "tenantName": "gpu",
        "userDomainName": "Default",
        "projectDomainName": "Default",
        "region": "cern",
        "insecure": "true",
        "endpointOverrides": f'{{"container-infra": "{fake.address}/magnum/v1"}}',
    }
    driver = Driver(TEMPLATE, config=settings)
    driver.up(**OWN)
    assert fake.logins == 1
    assert fake.password not in repr(driver.outputs) + repr(driver.inputs)


def test_settings_that_are_not_known_or_not_to_be_had() -> None:
    found = asyncio.run(provider().check_config({}, {"colour": "blue", "swauth": "true", "cloud": "cern"}))
    assert sorted(name for name, _ in found.failures) == ["colour", "swauth"]


def test_another_cloud_replaces_nothing() -> None:
    found = asyncio.run(provider().diff_config({"cloud": "a"}, {"cloud": "b"}))
    assert (list(found.changes), list(found.replaces)) == (["cloud"], [])


@pytest.mark.parametrize(("days", "good"), [(400, True), (20, False), (-1, False)])
def test_a_certificate_is_renewed_before_it_expires(days: int, good: bool) -> None:
    from datetime import UTC, datetime, timedelta

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=500))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    known = {"host": "h", "client_certificate": made.public_bytes(Encoding.PEM).decode()}
    assert usable(known, "h") is good
    assert not usable(known, "another")
    assert not usable(None, "h")
