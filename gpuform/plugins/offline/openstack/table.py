"""Every type that offline runs know of OpenStack: Magnum's three."""

from __future__ import annotations

from collections.abc import Mapping

from gpuform.plugins.handler import PluginError
from gpuform.plugins.offline.openstack import rules
from gpuform.plugins.offline.openstack.row import Kind, Row
from gpuform.plugins.offline.row import words
from infra.model.magnum_changes import CLUSTER as CHANGES_OF_CLUSTER
from infra.model.magnum_changes import POOL as CHANGES_OF_POOL
from infra.model.magnum_changes import Change

CLUSTER = "openstack:containerinfra/cluster:Cluster"
NODE_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
TEMPLATE = "openstack:containerinfra/clusterTemplate:ClusterTemplate"

_MOMENT = "2026-01-01T00:00:00Z"  # nothing is made, so no moment is the right one; this one never changes
_PROJECT = "00000000000000000000000000000000"
_MADE = {"createdAt": _MOMENT, "updatedAt": _MOMENT, "projectId": _PROJECT, "region": "{region}"}


def _inputs(**kinds: str) -> dict[str, Kind]:
    """Inputs by kind: ``text="name region"``."""
    return {name: Kind[kind.upper()] for kind, names in kinds.items() for name in words(names)}


def _forced(table: Mapping[str, Change], **fields: str) -> tuple[str, ...]:
    """Inputs that the one table of changes says a replacement of: each input with its field there."""
    return tuple(name for name, at in fields.items() if table[at].how == "replace")


_CLUSTER_FILLED = words(
    "createTimeout discoveryUrl dockerVolumeSize fixedNetwork fixedSubnet flavor floatingIpEnabled keypair "
    "labels masterCount masterFlavor masterLbEnabled name region"
)
_GROUP_FILLED = words("dockerVolumeSize flavorId imageId labels minNodeCount region role")

ROWS: Mapping[str, Row] = {
    CLUSTER: Row(
        "cluster",
        _inputs(
            text="clusterTemplateId discoveryUrl fixedNetwork fixedSubnet flavor keypair masterFlavor name "
            "region",
            whole="createTimeout dockerVolumeSize masterCount nodeCount",
            flag="floatingIpEnabled masterLbEnabled mergeLabels",
            texts="labels",
        ),
        required=("clusterTemplateId",),
        filled=_CLUSTER_FILLED,
        # A timeout is of the making alone, which our program has the provider ignore; it itself does not.
        replaces=(
            *words("name discoveryUrl createTimeout"),
            *_forced(
                CHANGES_OF_CLUSTER,
                dockerVolumeSize="docker_volume_gib",
                fixedNetwork="network.fixed_network",
                fixedSubnet="network.fixed_subnet",
                flavor="workers.flavor",
                floatingIpEnabled="network.floating_ip",
                keypair="keypair",
                labels="labels",
                masterCount="masters.nodes",
                masterFlavor="masters.flavor",
                masterLbEnabled="masters.lb",
                mergeLabels="merge_labels",
                nodeCount="workers.nodes",
                region="region",
            ),
        ),
        defaults={"nodeCount": 1},
        outputs={
            **_MADE,
            "userId": _PROJECT,
            "apiAddress": "{endpoint}",
            "coeVersion": "",
            "containerVersion": "",
            "createTimeout": 60,
            "discoveryUrl": "",
            "dockerVolumeSize": 0,
            "fixedNetwork": "",
            "fixedSubnet": "",
            "flavor": "",
            "floatingIpEnabled": True,
            "keypair": "",
            "labels": {},
            "masterAddresses": ["{ip}"],
            "masterCount": 1,
            "masterFlavor": "",
            "masterLbEnabled": False,
            "nodeAddresses": [],
            "stackId": "{uuid}",
        },
        rules=(
            rules.cluster_name,
            rules.bounds(
                createTimeout=(0, None),
                dockerVolumeSize=(1, None),
                masterCount=(1, None),
                nodeCount=(0, None),
            ),
            rules.masters,
        ),
        has_kubeconfig=True,
    ),
    NODE_GROUP: Row(
        "node group",
        _inputs(
            text="clusterId flavorId imageId name region role",
            whole="dockerVolumeSize maxNodeCount minNodeCount nodeCount",
            flag="mergeLabels",
            texts="labels",
        ),
        required=("clusterId",),
        filled=_GROUP_FILLED,
        replaces=(
            *words("clusterId name region"),
            *_forced(
                CHANGES_OF_POOL,
                dockerVolumeSize="openstack.docker_volume_gib",
                flavorId="machine",
                imageId="openstack.image",
                labels="openstack.labels",
                maxNodeCount="elastic",
                mergeLabels="openstack.merge_labels",
                minNodeCount="elastic",
                nodeCount="nodes",
                role="openstack.role",
            ),
        ),
        defaults={"nodeCount": 1},
        outputs={
            **_MADE,
            "dockerVolumeSize": 0,
            "flavorId": "",
            "imageId": "",
            "labels": {},
            "minNodeCount": 0,
            "role": "worker",
        },
        rules=(
            rules.name,
            rules.bounds(
                dockerVolumeSize=(1, None),
                maxNodeCount=(0, None),
                minNodeCount=(0, None),
                nodeCount=(0, None),
            ),
            rules.group,
            rules.group_size,
        ),
    ),
    TEMPLATE: Row(
        "cluster template",
        _inputs(
            text="clusterDistro coe dnsNameserver dockerStorageDriver externalNetworkId fixedNetwork "
            "fixedSubnet flavor httpProxy httpsProxy image insecureRegistry keypairId masterFlavor name "
            "networkDriver noProxy region serverType volumeDriver",
            whole="apiserverPort dockerVolumeSize",
            flag="floatingIpEnabled hidden masterLbEnabled public registryEnabled tlsDisabled",
            texts="labels",
        ),
        required=("coe", "image"),
        filled=words("clusterDistro networkDriver region serverType"),
        replaces=("region",),
        outputs={
            **_MADE,
            "userId": _PROJECT,
            "clusterDistro": "",
            "networkDriver": "flannel",
            "serverType": "vm",
        },
        rules=(
            rules.name,
            rules.bounds(apiserverPort=(1024, 65535), dockerVolumeSize=(1, None)),
            rules.one_of(
                coe=("kubernetes",),
                networkDriver=("flannel", "calico", "cilium"),
                serverType=("vm", "bm"),
                volumeDriver=("cinder",),
            ),
        ),
    ),
}


def row(token: str) -> Row:
    """The row of a type; `PluginError` names the types that there are."""
    if token not in ROWS:
        known = ", ".join(sorted(name.rsplit(":", 1)[-1] for name in ROWS))
        raise PluginError(
            f"{token}: the offline stand-in of the openstack provider does not know this type (it knows "
            f"{known}); add a row to gpuform/plugins/offline/openstack, or run with a cloud"
        )
    return ROWS[token]
