"""States of versions that had one resource for each simulated node: these become one for each pool.

The engine would delete nodes that the program no longer registers one by one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from gpuform.engine.events import SIMULATED_NODES
from infra.model.base.labels import HOSTNAME, PATCH_FORCE, POOL

_FORMER = "gpuform:platform:NodePools$kubernetes:core/v1:Node::"
_PROVIDER = "pulumi:providers:gpuform"
Resource = dict[str, Any]


def combine(deployment: dict[str, Any]) -> int:
    """Combine the nodes of each pool, and return their number; nothing while one is being created.

    The new resource has the inputs that the same program declares today, so that an update finds nothing to
    do. What depended on a node depends on its pool.
    """
    resources, pending = (deployment.get(key) or [] for key in ("resources", "pending_operations"))
    former = [resource for resource in resources if _FORMER in resource["urn"]]
    if not former or any(_FORMER in operation["resource"]["urn"] for operation in pending):
        return 0
    own = next((item for item in resources if item["type"] == _PROVIDER), None) or _new_provider(former[0])
    pools: dict[str, Resource] = {}
    renamed = {}
    for node in former:
        pool = _pool(node, own, resources)
        combined = pools.setdefault(pool["urn"], pool)
        combined["inputs"]["nodes"][node["inputs"]["metadata"]["name"]] = {}
        renamed[node["urn"]] = pool["urn"]
    first = resources.index(former[0])
    parts = (resources[:first], pools.values(), resources[first:])
    kept = (item for part in parts for item in part if item is not own and _FORMER not in item["urn"])
    # The provider may have come after the nodes: it depends on nothing.
    deployment["resources"] = [_with_pools(item, renamed) for item in (own, *kept)]
    return len(former)


def _new_provider(node: Resource) -> Resource:
    """The default provider of a stack that had no resource of ours."""
    urn = f"{'::'.join(node['urn'].split('::')[:2])}::{_PROVIDER}::default"
    return {
        "urn": urn,
        "custom": True,
        "id": str(uuid.uuid4()),
        "type": _PROVIDER,
        "inputs": {},
        "outputs": {},
    }


def _pool(node: Resource, own: Resource, resources: Iterable[Resource]) -> Resource:
    """The resource of the node's pool, without nodes."""
    metadata, parent = node["inputs"]["metadata"], node["parent"]
    kubernetes = next(item for item in resources if node["provider"].startswith(f"{item['urn']}::"))
    inputs = {
        "kubeconfig": kubernetes["inputs"].get("kubeconfig"),
        "labels": _without(metadata["labels"], HOSTNAME),
        "annotations": _without(metadata["annotations"], PATCH_FORCE),
        "taints": node["inputs"].get("spec", {}).get("taints") or [],
        "nodes": {},
    }
    name = f"{parent.rpartition('::')[2]}-{metadata['labels'][POOL]}"
    types = node["urn"].rpartition("$")[0]
    return {
        **{"urn": f"{types}${SIMULATED_NODES}::{name}", "custom": True, "id": name, "type": SIMULATED_NODES},
        **{"inputs": inputs, "outputs": inputs, "parent": parent, "provider": f"{own['urn']}::{own['id']}"},
    }


def _without(values: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if name != key}


def _with_pools(resource: Resource, renamed: Mapping[str, str]) -> Resource:
    changed = dict(resource)
    if urns := resource.get("dependencies"):
        changed["dependencies"] = _distinct(urns, renamed)
    if properties := resource.get("propertyDependencies"):
        changed["propertyDependencies"] = {
            key: _distinct(urns or (), renamed) for key, urns in properties.items()
        }
    return changed


def _distinct(urns: Iterable[str], renamed: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(renamed.get(urn, urn) for urn in urns))
