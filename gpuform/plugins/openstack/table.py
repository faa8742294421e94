"""The properties of the three types: what Magnum calls them, and what a change of one means.

Names, defaults and what forces a new object are those of the schemas that pulumi_openstack 5.5 wraps:
openstack/resource_openstack_containerinfra_{clustertemplate,cluster,nodegroup}_v1.go of
terraform-provider-openstack (ForceNew, Computed, Default, DefaultFunc).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "number", "flag", "map", "list"]
_EMPTY: Mapping[str, Any] = {"text": "", "number": 0, "flag": False, "map": {}, "list": []}


@dataclass(frozen=True)
class Field:
    """One property; ``api`` is Magnum's name of it.

    ``given``: a program may set it. ``fixed``: a change needs a new object. ``computed``: Magnum fills it in
    where the program says nothing, so that taking it out of the program changes nothing. ``variable`` is the
    OS_ variable that it falls back to. ``always``: sent even where it is empty.
    """

    api: str
    kind: Kind = "text"
    given: bool = True
    fixed: bool = False
    computed: bool = False
    required: bool = False
    variable: str = ""
    default: Any = None
    always: bool = False

    def shown(self, value: Any) -> Any:
        """Magnum's value as the official provider shows it: an absent one is the empty one of its kind."""
        if value is None:
            return _EMPTY[self.kind]
        if self.kind == "map":
            return {str(key): str(item) for key, item in value.items()}
        if self.kind == "number":
            return int(value)
        return value


Table = Mapping[str, Field]


def _fixed(api: str, kind: Kind = "text", **more: Any) -> Field:
    """Set once, filled in by Magnum where it is left out."""
    return Field(api, kind, fixed=True, computed=True, **more)


def _only_shown(api: str, kind: Kind = "text") -> Field:
    return Field(api, kind, given=False)


_STAMPS: Table = {
    "projectId": _only_shown("project_id"),
    "createdAt": _only_shown("created_at"),
    "updatedAt": _only_shown("updated_at"),
}

CLUSTER: Table = {
    "name": _fixed("name"),
    "clusterTemplateId": Field(
        "cluster_template_id", required=True, always=True, variable="OS_MAGNUM_CLUSTER_TEMPLATE"
    ),
    "createTimeout": _fixed("create_timeout", "number"),
    "discoveryUrl": _fixed("discovery_url"),
    "dockerVolumeSize": _fixed("docker_volume_size", "number"),
    "flavor": _fixed("flavor_id", variable="OS_MAGNUM_FLAVOR"),
    "masterFlavor": _fixed("master_flavor_id", variable="OS_MAGNUM_MASTER_FLAVOR"),
    "keypair": _fixed("keypair"),
    "labels": _fixed("labels", "map"),
    "mergeLabels": Field("merge_labels", "flag", fixed=True),
    "masterCount": _fixed("master_count", "number"),
    "masterLbEnabled": _fixed("master_lb_enabled", "flag"),
    "nodeCount": Field("node_count", "number", default=1, always=True),
    "fixedNetwork": _fixed("fixed_network"),
    "fixedSubnet": _fixed("fixed_subnet"),
    "floatingIpEnabled": _fixed("floating_ip_enabled", "flag"),
    "userId": _only_shown("user_id"),
    "apiAddress": _only_shown("api_address"),
    "coeVersion": _only_shown("coe_version"),
    "containerVersion": _only_shown("container_version"),
    "masterAddresses": _only_shown("master_addresses", "list"),
    "nodeAddresses": _only_shown("node_addresses", "list"),
    "stackId": _only_shown("stack_id"),
    **_STAMPS,
}

NODE_GROUP: Table = {
    "clusterId": Field("cluster_id", required=True, fixed=True),
    "name": Field("name", fixed=True),
    "dockerVolumeSize": _fixed("docker_volume_size", "number"),
    "labels": _fixed("labels", "map"),
    "mergeLabels": Field("merge_labels", "flag", fixed=True),
    "role": _fixed("role"),
    "nodeCount": Field("node_count", "number", default=1, always=True),
    "minNodeCount": Field("min_node_count", "number", computed=True),
    "maxNodeCount": Field("max_node_count", "number"),
    "imageId": _fixed("image_id"),
    "flavorId": _fixed("flavor_id"),
    **_STAMPS,
}

CLUSTER_TEMPLATE: Table = {
    "name": Field("name"),
    "apiserverPort": Field("apiserver_port", "number"),
    "coe": Field("coe", required=True),
    "clusterDistro": Field("cluster_distro", computed=True),
    "dnsNameserver": Field("dns_nameserver"),
    "dockerStorageDriver": Field("docker_storage_driver"),
    "dockerVolumeSize": Field("docker_volume_size", "number"),
    "externalNetworkId": Field("external_network_id"),
    "fixedNetwork": Field("fixed_network"),
    "fixedSubnet": Field("fixed_subnet"),
    "flavor": Field("flavor_id", variable="OS_MAGNUM_FLAVOR"),
    "masterFlavor": Field("master_flavor_id", variable="OS_MAGNUM_MASTER_FLAVOR"),
    "floatingIpEnabled": Field("floating_ip_enabled", "flag", always=True),
    "httpProxy": Field("http_proxy"),
    "httpsProxy": Field("https_proxy"),
    "image": Field("image_id", required=True, variable="OS_MAGNUM_IMAGE"),
    "insecureRegistry": Field("insecure_registry"),
    "keypairId": Field("keypair_id"),
    "labels": Field("labels", "map"),
    "masterLbEnabled": Field("master_lb_enabled", "flag", always=True),
    "networkDriver": Field("network_driver", computed=True),
    "noProxy": Field("no_proxy"),
    "public": Field("public", "flag", always=True),
    "registryEnabled": Field("registry_enabled", "flag", always=True),
    "serverType": Field("server_type", computed=True),
    "tlsDisabled": Field("tls_disabled", "flag", always=True),
    "volumeDriver": Field("volume_driver"),
    "hidden": Field("hidden", "flag", always=True),
    "userId": _only_shown("user_id"),
    **_STAMPS,
}


def request(table: Table, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a create, as the official provider writes it: what is empty is left out, unless `always`.

    A flag of a cluster or a group that is false is sent where the program says so; a template's always.
    """
    body = {}
    for name, field in table.items():
        value = inputs.get(name)
        if not field.given or (value is None and not field.always):
            continue
        if value in ("", {}) or (field.kind == "number" and not value and not field.always):
            continue
        body[field.api] = field.shown(value)
    return body


def shown(table: Table, live: Mapping[str, Any]) -> dict[str, Any]:
    """Magnum's answer as properties; what it does not answer (whether labels were merged) is left out."""
    return {
        name: _moment(live.get(field.api)) if name.endswith("edAt") else field.shown(live.get(field.api))
        for name, field in table.items()
        if name != "mergeLabels"
    }


def _moment(value: Any) -> str:
    return str(value or "").replace("+00:00", "Z")
