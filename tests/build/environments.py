"""Environments of the plan's tests on any kind of cluster, and what their workloads' manifests hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from infra.config import parse
from infra.model.environment import Environment
from infra.plan import sharing

Json = dict[str, Any]
DRIVER = {"source": "nvidia", "version": "580.178.04"}
CLUSTERS: dict[str, Json] = {
    "embedded": {},
    "existing": {"kubeconfig": "/k"},
    "hosts": {"driver": DRIVER, "kubeconfig": "/k"},
    "openstack": {"template": "t", "version": "1.34"},
}


def declared(
    kind: str, *pools: Json, cluster: Json | None = None, workloads: Sequence[Json] = (), **more: Any
) -> Json:
    """An environment with these pools; one without a name or place is ``p<index>`` on nodes that exist.

    A workload is a pod ``w<index>`` unless it says something else.
    """
    named = [{"name": f"p{index}", **_place(kind, index, pool), **pool} for index, pool in enumerate(pools)]
    work = [{"name": f"w{at}", "kind": "pod", "image": "a:1", **item} for at, item in enumerate(workloads)]
    whole = {"kind": kind, **CLUSTERS[kind], **(cluster or {})}
    whole = {key: value for key, value in whole.items() if value is not None}
    return {"name": "e", "cluster": whole, "pools": named, "workloads": work, **more}


def _place(kind: str, index: int, pool: Json) -> Json:
    if kind in ("existing", "hosts"):
        return {"selector": {"pool": f"p{index}"}} if kind == "existing" else {"hosts": [f"h{index}"]}
    return {} if "elastic" in pool else {"nodes": 1}


def on(kind: str, *pools: Json, **more: Any) -> Environment:
    return parse(declared(kind, *pools, **more))


def pod_spec(manifest: Json) -> Json:
    """Of a pod, or of what makes pods."""
    spec: Json = manifest["spec"]
    found: Json = spec.get("template", manifest)["spec"]
    return found


def gpus(manifest: Json) -> dict[str, str]:
    """GPU resources that the first container requests; its limits are the same."""
    resources = pod_spec(manifest)["containers"][0]["resources"]
    found, limits = (
        {key: value for key, value in resources[side].items() if key.startswith("nvidia.com/")}
        for side in ("requests", "limits")
    )
    assert found == limits
    return found


def plugin(env: Environment) -> Json:
    """The device plugin's configurations by key."""
    config_map = sharing.device_plugin_config_map(env)
    assert config_map is not None
    return {key: yaml.safe_load(text) for key, text in config_map["data"].items()}


def mig_configs(env: Environment) -> Json:
    """The MIG manager's layouts by name."""
    config_map = sharing.mig_parted_config_map(env)
    assert config_map is not None
    assert list(config_map["data"]) == ["config.yaml"]
    content = yaml.safe_load(config_map["data"]["config.yaml"])
    assert content["version"] == "v1"
    found: Json = content["mig-configs"]
    return found
