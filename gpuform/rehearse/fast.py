"""The fast way: Karpenter's core with its own provider for kwok, and no AWS at all.

NodePools and NodeOverlays are copies of the stack's own, under other names and for this provider's node
class; the stack's own stay as they are, and this Karpenter passes them over. What is lost that way is in
``CANNOT_SHOW``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from gpuform.embedded.kwokctl import Tools
from gpuform.offline import karpenter_crds
from gpuform.paths import Paths
from gpuform.rehearse.children import Children
from gpuform.rehearse.cloud.joining import hardware
from gpuform.rehearse.following import Following
from gpuform.rehearse.instance_types import instance_types
from gpuform.rehearse.karpenter import Karpenter, Release, environment, installed, linked
from gpuform.simulator.api import Api
from infra.model import labels
from infra.model.environment import Environment
from infra.model.machines import MACHINES
from infra.model.pool import Pool
from infra.model.prices import PriceList
from infra.plan.karpenter import node_pools
from infra.plan.overlays import node_overlays

TOOL = "karpenter-kwok"
SUFFIX = "-fast"
"""Of the copies' names."""
JOIN_S = 2
"""Seconds from a purchase to the node; about half a minute in reality."""
PRICE = "eks-node-viewer/instance-price"
"""The provider's label with USD per hour."""
CANNOT_SHOW = (
    "EC2NodeClasses, user data and images: nodes come up without any of them",
    "what AWS has no capacity for, how much a reservation holds, spot interruptions: everything can be had",
    "nodes before their operands have acted: one offers at birth what the pods that bought it ask for",
    "an instance's own limits: cores and memory that the kubelet keeps back are nearly the same for all",
    "different prices or numbers of pods of one machine in two pools: it has one of each here",
)
"""What a rehearsal with this cannot tell, a sentence each."""

_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "fast"}
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "KWOKNodeClass": "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
    "NodeOverlay": "/apis/karpenter.sh/v1alpha1/nodeoverlays",
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
}

Manifest = dict[str, Any]


class Fast(Karpenter):
    """The core's controller as it is now, and what its nodes cost."""

    def __init__(self, following: Following[Release], children: Children, book: Mapping[str, float]) -> None:
        """Of one context of :func:`fast`."""
        super().__init__(following, children)
        self._book = book

    def paid(self) -> Mapping[str, float]:
        """USD per hour of every node that was ever bought, by its name."""
        return dict(self._book)


@contextmanager
def fast(env: Environment, prices: PriceList, paths: Paths, tools: Tools, log: Path) -> Iterator[Fast]:
    """The core while the stack's release of Karpenter is in the cluster, with copies of its NodePools.

    The copies are made once, when Karpenter's kinds are there. Nodes get what the simulator has to know of
    their GPUs as soon as they are seen. Raises what ``tools`` raises where the controller cannot be had, and
    Failure where the kwok provider's CRD cannot.
    """
    crd = karpenter_crds.kwok_node_class(paths.root / karpenter_crds.CORE_FOLDER, paths.cache)
    children = Children(paths.state / "controllers" / TOOL)
    children.end_left()
    program = linked(children.folder / TOOL, tools.path(TOOL))
    types = children.folder / "instance-types.json"
    types.write_text(json.dumps(instance_types(env, prices)), encoding="utf-8")
    made = (yaml.safe_load(crd.read_text(encoding="utf-8")), *copies(env))
    cluster = _Cluster(made)

    def start(release: Release) -> subprocess.Popen[bytes]:
        own = {"KUBECONFIG": str(paths.kubeconfig), "INSTANCE_TYPES_FILE_PATH": str(types)}
        return children.start([str(program)], {**environment(_unreserved(release)), **own}, log)

    following = Following(paths.kubeconfig, cluster.look, start, log)
    try:
        with following:
            yield Fast(following, children, cluster.book)
    finally:
        children.end_left()


def _unreserved(release: Release) -> Release:
    """Without the gate by which Karpenter counts what is left of a reservation: this provider has none."""
    values = json.loads(release.values)
    settings = values.get("settings") or {}
    gates = {**(settings.get("featureGates") or {}), "reservedCapacity": False}
    changed = {**values, "settings": {**settings, "featureGates": gates}}
    return Release(release.namespace, json.dumps(changed))


def copies(env: Environment) -> tuple[Manifest, ...]:
    """The node class, then of each pool that Karpenter serves the NodeOverlays and the NodePools."""
    spec = {"nodeRegistrationDelay": f"{JOIN_S}s"}
    kwok = {"apiVersion": f"{_CLASS['group']}/v1alpha1", "kind": _CLASS["kind"]}
    made: list[Manifest] = [{**kwok, "metadata": {"name": _CLASS["name"]}, "spec": spec}]
    for pool in env.pools:
        if pool.by_karpenter:
            made += [_overlay(pool, one) for one in node_overlays(env, pool)]
            made += [_node_pool(one) for one in node_pools(env, pool)]
    return tuple(made)


def _renamed(manifest: Manifest, **spec: Any) -> Manifest:
    metadata = {**manifest["metadata"], "name": manifest["metadata"]["name"] + SUFFIX}
    return {**manifest, "metadata": metadata, "spec": {**manifest["spec"], **spec}}


def _node_pool(declared: Manifest) -> Manifest:
    """The copy of a NodePool: its nodes are the same but for where they come from."""
    template = declared["spec"]["template"]
    return _renamed(
        declared, template={**template, "spec": {**template["spec"], "nodeClassRef": dict(_CLASS)}}
    )


def _overlay(pool: Pool, declared: Manifest) -> Manifest:
    """The copy of a NodeOverlay, for the copies of its NodePools.

    The number of GPUs is no property of an instance type here, only of its offerings, where an overlay does
    not look; so it names the types.
    """
    wanted = []
    for one in declared["spec"]["requirements"]:
        key, values = one["key"], one["values"]
        if key == labels.NODE_POOL:
            values = [name + SUFFIX for name in values]
        if key == labels.INSTANCE_GPU_COUNT:
            key, values = labels.INSTANCE_TYPE, [m.name for m in pool.machines if str(m.gpus) in values]
        wanted.append({**one, "key": key, "values": values})
    return _renamed(declared, requirements=wanted)


class _Cluster:
    """What is done there at every look: the copies are made, and new nodes are told their hardware."""

    def __init__(self, made: tuple[Manifest, ...]) -> None:
        """Nothing is there yet."""
        self._left = list(made)
        self.book: dict[str, float] = {}

    async def look(self, api: Api) -> Release | None:
        """The release, once the copies are in the cluster; nodes that are new are equipped."""
        release = await installed(api)
        if release is None:
            return None
        while self._left:
            await _create(api, self._left[0])
            self._left.pop(0)
        async for nodes, _ in api.pages("/api/v1/nodes", {"labelSelector": PRICE}):
            for node in nodes:
                await self._equip(api, node["metadata"])
        return release

    async def _equip(self, api: Api, node: Manifest) -> None:
        if node["name"] in self.book:
            return
        told = hardware(MACHINES[node["labels"][labels.INSTANCE_TYPE]])
        try:
            await api.patch(f"/api/v1/nodes/{node['name']}", {"metadata": {"annotations": told}})
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.NOT_FOUND:  # gone again already
                raise
        self.book[node["name"]] = float(node["labels"][PRICE])


async def _create(api: Api, manifest: Manifest) -> None:
    try:
        await api.create(_PATHS[manifest["kind"]], manifest)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:
            raise
