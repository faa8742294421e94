"""The functions that programs look things up with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpuform.plugins.answers import no_function
from gpuform.plugins.handler import PluginError, Properties
from gpuform.plugins.openstack.api import Live, Magnum
from gpuform.plugins.openstack.clouds import Clouds
from gpuform.plugins.openstack.kubeconfig import kubeconfig
from gpuform.plugins.openstack.table import CLUSTER, CLUSTER_TEMPLATE, NODE_GROUP, Table, shown
from gpuform.plugins.properties import Secret, reveal

_PREFIX = "openstack:containerinfra/"


async def invoke(clouds: Clouds, token: str, args: Properties) -> Properties:
    """Answer a function; what it looks up and what does not exist is a `PluginError` with its name."""
    if token not in _FUNCTIONS:
        raise no_function("openstack", token)
    given = reveal(args)
    magnum = clouds.of(given.get("region"))
    found = await _FUNCTIONS[token](magnum, given)
    return {**found, "region": given.get("region") or magnum.cloud.region}


async def _template(magnum: Magnum, args: Mapping[str, Any]) -> Properties:
    live = _there(await magnum.template(args["name"]), "cluster template", args["name"])
    return _shown(CLUSTER_TEMPLATE, live)


async def _cluster(magnum: Magnum, args: Mapping[str, Any]) -> Properties:
    live = _there(await magnum.cluster(args["name"]), "cluster", args["name"])
    made = await kubeconfig(magnum, live["uuid"], live["name"], str(live.get("api_address") or ""))
    return {**_shown(CLUSTER, live), "kubeconfig": Secret(made)}


async def _group(magnum: Magnum, args: Mapping[str, Any]) -> Properties:
    cluster = args["clusterId"]
    live = _there(
        await magnum.group(cluster, args["name"]), "node group", f"{args['name']} in cluster {cluster}"
    )
    found = _shown(NODE_GROUP, live)
    return {**found, "clusterId": cluster, "image": found.pop("imageId"), "flavor": found.pop("flavorId")}


_FUNCTIONS: Mapping[str, Callable[[Magnum, Mapping[str, Any]], Awaitable[Properties]]] = {
    f"{_PREFIX}getClusterTemplate:getClusterTemplate": _template,
    f"{_PREFIX}getCluster:getCluster": _cluster,
    f"{_PREFIX}getNodeGroup:getNodeGroup": _group,
}


def _shown(table: Table, live: Live) -> Properties:
    return {"id": live["uuid"], **shown(table, live)}


def _there(live: Live | None, noun: str, name: str) -> Live:
    if live is None:
        raise PluginError(f"there is no {noun} {name}")
    return live
