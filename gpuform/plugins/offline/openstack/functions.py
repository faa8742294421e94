"""The lookups of the provider, answered without a cloud: every template, cluster and group is there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from gpuform.plugins.handler import PluginError, Properties
from gpuform.plugins.offline.openstack.outputs import computed, kubeconfig
from gpuform.plugins.offline.openstack.table import CLUSTER, NODE_GROUP, TEMPLATE, row
from gpuform.plugins.offline.row import words
from gpuform.plugins.offline.templates import uuid
from gpuform.plugins.properties import Secret, reveal

_RELEASE = re.compile(r"\d+\.\d+\.\d+")


def answer(token: str, args: Properties, region: str) -> Properties:
    """What the function returns; `PluginError` names the functions that there are."""
    if token not in _FUNCTIONS:
        known = ", ".join(sorted(name.rsplit(":", 1)[-1] for name in _FUNCTIONS))
        raise PluginError(f"{token}: the offline stand-in of the openstack provider answers {known} only")
    plain = reveal(args)
    if not plain.get("name"):
        raise PluginError(f"{token}: name is missing")
    return _FUNCTIONS[token](plain, plain.get("region") or region)


def _id(noun: str, name: str) -> str:
    return uuid(hashlib.sha256(f"{noun} {name}".encode()).hexdigest())


def _found(token: str, args: Properties, region: str, **more: Any) -> dict[str, Any]:
    id = _id(token, str(args["name"]))
    given = {"name": args["name"], "region": region, **more}
    return {**computed(row(token), region, "", given, id)[1], "id": id}


def _template(args: Properties, region: str) -> dict[str, Any]:
    """A template by its name; the release of Kubernetes is what follows from that, where one is in it."""
    release = _RELEASE.search(str(args["name"]))
    labels = {"kube_tag": f"v{release.group()}"} if release else {}
    return {
        **dict.fromkeys(_TEXTS, ""),
        **dict.fromkeys(_FLAGS, False),
        "apiserverPort": 6443,
        "dockerVolumeSize": 0,
        **_found(TEMPLATE, args, region, coe="kubernetes", labels=labels),
        "floatingIpEnabled": True,
    }


def _cluster(args: Properties, region: str) -> dict[str, Any]:
    found = _found(CLUSTER, args, region, clusterTemplateId=_id(TEMPLATE, "any"), nodeCount=1)
    return {**found, "kubeconfig": Secret(kubeconfig(str(args["name"])))}


def _group(args: Properties, region: str) -> dict[str, Any]:
    found = _found(NODE_GROUP, args, region, clusterId=args.get("clusterId") or "", nodeCount=1)
    return {**found, "flavor": found.pop("flavorId"), "image": found.pop("imageId"), "maxNodeCount": 0}


_TEXTS = words(
    "dnsNameserver dockerStorageDriver externalNetworkId fixedNetwork fixedSubnet flavor httpProxy "
    "httpsProxy image insecureRegistry keypairId masterFlavor noProxy volumeDriver"
)
_FLAGS = words("hidden masterLbEnabled public registryEnabled tlsDisabled")

_FUNCTIONS: Mapping[str, Callable[[Properties, str], dict[str, Any]]] = {
    "openstack:containerinfra/getClusterTemplate:getClusterTemplate": _template,
    "openstack:containerinfra/getCluster:getCluster": _cluster,
    "openstack:containerinfra/getNodeGroup:getNodeGroup": _group,
}
