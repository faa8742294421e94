"""Everything that an environment creates, as files for review."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.hosts.cluster import HostsCluster
from infra.model.pool import allocatable
from infra.plan import cost, inventory, karpenter_patches, sharing
from infra.plan.cloud_files import cloud_documents, role_policies
from infra.plan.cost import to_document
from infra.plan.manifest import Manifest
from infra.plan.parts import Part, parts
from infra.strict_yaml import Dumper


def render(
    env: Environment, keys: Mapping[str, str] | None = None, prices: PriceList | None = None
) -> dict[str, str]:
    """Text by file name: the resolved environment, every manifest and the chart's values.

    The same environment gives the same bytes; no cluster or cloud is contacted. ``keys`` has the texts of the
    keys that sign own hosts' repositories, by path; ``prices`` is us-east-1's list if omitted.
    """
    files = {
        "environment.yaml": to_documents([env.resolved()]),
        "cost.yaml": to_documents([to_document(cost.bill(env, prices or PriceList()))]),
        "pools.yaml": to_documents([_pool(env, index) for index in range(len(env.pools))]),
    }
    if isinstance(env.cluster, HostsCluster):
        content = inventory.inventory(env, keys or {})
        files["inventory.json"] = _json(content)
    if env.has_cluster:
        documents = {f"{part.name}.yaml": _part(part) for part in parts(env).values()}
        documents |= cloud_documents(env)
        found = karpenter_patches.patches(env)
        documents |= {f"nodepool-{name}.yaml": [patch] for name, patch in found.items()}
        if overlays := karpenter_patches.overlays(env):
            documents["node-overlays.yaml"] = list(overlays)
        files |= {name: to_documents(contents) for name, contents in documents.items()}
    files |= {f"role-{name}.json": _json(policy) for name, policy in role_policies(env).items()}
    return dict(sorted(files.items()))


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _part(part: Part) -> list[Manifest]:
    """Its releases, without what they leave open, and its objects."""
    releases = [
        {key: value for key, value in vars(release).items() if value is not None} for release in part.releases
    ]
    return [*releases, *part.manifests]


def _pool(env: Environment, index: int) -> dict[str, Any]:
    pool = env.pools[index]
    fields: dict[str, Any] = {
        "pool": pool.name,
        "labels": sharing.pool_labels(env, pool),
        "taints": sharing.pool_taints(env, pool),
        "offered": allocatable.summary(pool),
    }
    claimable = allocatable.claimable(pool)
    if claimable:
        fields["claimable"] = claimable
    if pool.selector is not None:
        fields["selector"] = dict(pool.selector)
    if pool.hosts:
        fields["hosts"] = [host.name for host in pool.hosts]
    if pool.gpus and env.operator_strategy is None:
        fields["mig_strategy"] = pool.strategy
    memory = allocatable.mps_memory_mib(pool)
    if memory is not None:
        fields["mps"] = {"memory_mib_per_client": memory}
    mig = sharing.mig_config_name(pool)
    if mig is not None and env.ownership.mig != "none":
        fields["mig"] = mig
    if pool.relayout is not None:
        fields["relayout"] = pool.relayout.model_dump()
    return fields


class _Dumper(Dumper):
    """Dumps multi-line texts as blocks, so that a configuration inside a ConfigMap is readable."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_documents(values: Iterable[Any]) -> str:
    return yaml.dump_all(list(values), Dumper=_Dumper, sort_keys=True, width=1000, explicit_start=True)
