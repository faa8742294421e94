"""What a cluster pulls, and mirrors: every image and chart is listed, and redirected to its mirror."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from infra import versions
from infra.config import load, parse
from infra.model.base import registries
from infra.model.environment import Environment
from infra.plan import charts, images, user_data
from infra.plan.render import render
from infra.strict_yaml import load_all
from tests.build import aws_environments
from tests.checks import everything
from tests.external import reference

pytestmark = pytest.mark.unit

MIRROR = "registry.example.org"
HOSTS = (
    *("docker.io", "ghcr.io", "nvcr.io", "quay.io", "registry.k8s.io", "public.ecr.aws"),
    "602401143452.dkr.ecr.us-west-2.amazonaws.com",
)
REGISTRIES = {
    **{host: f"{MIRROR}/{host.split('.')[0]}" for host in HOSTS},
    versions.GPU_OPERATOR_REPOSITORY: f"oci://{MIRROR}/charts",
    versions.DEVICE_PLUGIN_REPOSITORY: f"oci://{MIRROR}/charts",
    versions.DCGM_EXPORTER_REPOSITORY: f"oci://{MIRROR}/charts",
    versions.KUBE_PROMETHEUS_STACK_REPOSITORY: "https://charts.example.org/stable",
    versions.KEDA_REPOSITORY: f"oci://{MIRROR}/charts",
    versions.CERT_MANAGER_REPOSITORY: f"oci://{MIRROR}/charts",
    versions.EKS_CHARTS_REPOSITORY: "https://charts.example.org/eks",
}


@cache
def stacks() -> dict[str, Environment]:
    """Every checked environment of a cluster with nodes that pull images."""
    return {name: env for name, env in everything.environments().items() if env.cluster.kind != "embedded"}


def with_mirrors(env: Environment) -> Environment:
    """The same with a mirror of everything."""
    return parse({**env.resolved(), "registries": REGISTRIES})


def names(text: str) -> Iterator[str]:
    """Every image and every registry that rendered documents name, by the keys that charts and pods have."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in ("image", "repository", "registry", "chart") and isinstance(inner, str):
                    yield inner
                else:
                    yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    for document in load_all(text):
        yield from walk(document)


@pytest.mark.parametrize("name", sorted(stacks()))
def test_with_mirrors_of_all_nothing_is_pulled_from_anywhere_else(name: str) -> None:
    env = stacks()[name]
    mirrored = with_mirrors(env)
    for item in images.list_artifacts(mirrored):
        if item.kind != "add-on" and not item.name.startswith(MIRROR):
            assert item.pulled_as != item.name
            assert "example.org/" in item.pulled_as
    files = render(mirrored)
    for file in set(files) - {"environment.yaml"}:
        found = [entry for entry in names(files[file]) if entry.removeprefix("oci://").startswith(HOSTS)]
        assert not found, file


# karpenter-crd has no values; charts of KEDA and cert-manager are in no pinned Go module; tests/checks has
# test_controllers.py.
WITHOUT_VALUES = {"cert-manager", "karpenter-crd", "keda", "kserve-crd", "kserve-resources", "kueue"}


@pytest.mark.parametrize("chart", sorted(charts.PINNED.keys() - WITHOUT_VALUES))
def test_the_charts_values_name_what_the_table_has(chart: str) -> None:
    values = yaml.safe_load(reference(f"charts/{chart}/values.yaml").read_text())
    there = str(yaml.safe_load(reference(f"charts/{chart}/Chart.yaml").read_text())["version"])
    pinned, table = charts.PINNED[chart]
    ours = {item.path for item in table}
    for entry in table:
        found: Any = values
        for part in entry.path:
            found = (found or {}).get(part)
        if found is None or "repository" not in found:  # a sub-chart's: its values are not here
            assert entry.path[0] in OF_SUB_CHARTS, entry.path
            continue
        folder, _, last = entry.name.rpartition("/")
        host, _, path = entry.name.partition("/")
        assert {
            "parts": {"repository": folder, "image": last},
            "host": {"registry": host, "repository": path.removeprefix("library/")},
            "whole": {"repository": entry.name},
        }[entry.form].items() <= found.items(), entry.path
        stated = str(found.get("version") or found.get("tag") or "")
        if pinned.removeprefix("v") == there.removeprefix("v"):  # else the file is of an older release
            assert not stated or stated in (entry.tag, "latest"), entry.path
            assert entry.digest == found.get("digest"), entry.path
    missing = {at for at in images_of(values) if at not in ours}
    assert missing == NEVER_STARTED.get(chart, set())


OF_SUB_CHARTS = {"node-feature-discovery", "nfd", "grafana", "kube-state-metrics", "prometheus-node-exporter"}
_SANDBOX = {
    ("vgpuManager",),
    ("vgpuManager", "driverManager"),
    ("vgpuDeviceManager",),
    ("vfioManager",),
    ("vfioManager", "driverManager"),
    ("sandboxDevicePlugin",),
    ("kataSandboxDevicePlugin",),
    ("ccManager",),
}
NEVER_STARTED: Mapping[str, set[tuple[str, ...]]] = {
    # Virtual machines as workloads, and the DRA driver, which is a release of its own here.
    "gpu-operator": _SANDBOX | {("draDriver",)},
    "kube-prometheus-stack": {
        ("prometheusOperator", "admissionWebhooks", "deployment", "image"),
        ("prometheusOperator", "thanosImage"),
        ("thanosRuler", "thanosRulerSpec", "image"),
    },
}
"""Images that the charts start only with values that no plan sets."""


def images_of(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where values name an image: a repository beside an image's name, a registry or a tag."""
    if isinstance(values, Mapping):
        if "repository" in values and {"image", "tag", "registry"} & set(values):
            yield path
        for key, inner in values.items():
            yield from images_of(inner, (*path, key))


def test_the_operators_driver_has_the_system_of_its_nodes_in_its_tag() -> None:
    env = load(everything.ROOT / "Pulumi.openstack-dev.yaml")
    (driver,) = [item.name for item in images.list_artifacts(env) if "/driver:" in item.name]
    assert driver.endswith("-<system>")


def test_another_version_of_a_chart_has_other_tags() -> None:
    env = load(everything.ROOT / "Pulumi.onprem-dev.yaml")
    older = parse(
        {**env.resolved(), "gpu_operator": {**env.resolved()["gpu_operator"], "version": "v26.3.2"}}
    )
    found = {item.name for item in images.list_artifacts(older)}
    assert "nvcr.io/nvidia/gpu-operator" in found
    assert not any(name.startswith("nvcr.io/nvidia/gpu-operator:") for name in found)


def test_a_mirror_that_redirects_nothing_is_named() -> None:
    env = load(everything.ROOT / "Pulumi.onprem-dev.yaml")
    typo = parse({**env.resolved(), "registries": {**REGISTRIES, "docker.oi": f"{MIRROR}/hub"}})
    unused = images.unused_registries(typo, images.list_artifacts(typo))
    assert "docker.oi" in unused
    assert "docker.io" not in unused


def test_images_are_listed_with_the_digest_that_pins_them() -> None:
    found = {
        item.name: item for item in images.list_artifacts(load(everything.ROOT / "Pulumi.onprem-dev.yaml"))
    }
    name, _, digest = versions.READINESS_GATE_IMAGE.partition("@")
    assert found[name].digest == digest
    assert "Deployment readiness-gate" in found[name].used_by
    assert found[f"nvcr.io/nvidia/gpu-operator:{versions.GPU_OPERATOR}"].digest is None


def test_a_cluster_with_its_own_operator_pulls_none_of_ours() -> None:
    env = everything.existing({**everything.T4}, mode="existing")
    assert not [item.name for item in images.list_artifacts(env) if "nvidia" in item.name]


def test_an_elastic_pool_pulls_its_images_ahead_of_pods_from_the_mirror() -> None:
    env = with_mirrors(aws_environments.TABLE["at boot"])
    script = user_data.render(env, env.pools[0])
    wanted = [env.image(image) for image in env.pools[0].aws_settings.prepull]
    assert wanted
    assert all(image.startswith(MIRROR) and f"pull {image}" in script for image in wanted)


@pytest.mark.parametrize("name", ["a:1", "library/a:1", "docker.io/a:1", "index.docker.io/library/a:1"])
def test_an_image_of_docker_hub_has_one_name_in_the_mirror(name: str) -> None:
    assert registries.mirrored_image(name, {"docker.io": "m.example/hub"}) == "m.example/hub/library/a:1"
