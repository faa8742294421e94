"""The OpenStack part of the environment: Magnum cluster, flavors, a pool's node group, and their values.

Ranges and names are those of Magnum's API (its source of 2026-07: api/controllers/v1 and api/validation.py).

Source: magnum-capi-helm of 2026-06 (``driver.py``: ``_process_node_groups``, ``_update_helm_release``,
``_validate_allowed_node_counts``, ``provides``; ``conf.py``), and its chart ``openstack-cluster`` in
capi-helm-charts (``node-group/machine-deployment.yaml``, ``cluster-addons/templates/cni``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from infra.model.base.errors import InputError
from infra.model.base.fields import (
    ClusterModel,
    Cores,
    Count,
    Flag,
    GpuCount,
    MemoryGib,
    Minutes,
    Model,
    PoolSize,
    Strict,
    Supported,
    Text,
    VolumeGib,
    matching,
    option,
    refusing,
    required,
)
from infra.model.gpu.choice import GpuName
from infra.model.gpu.machines import MACHINES, Catalogue, Machine, catalogue_of
from infra.model.gpu.models import Gpu

MASTER_ROLE = "master"

_LONGEST_LABEL = 255
_VALUES = {
    "auto_healing_controller": ("draino", "magnum-auto-healer"),
    "calico_ipv4pool_ipip": ("Always", "CrossSubnet", "Never", "Off"),
    "cgroup_driver": ("systemd", "cgroupfs"),
    "container_runtime": ("containerd",),
    "flannel_backend": ("udp", "vxlan", "host-gw"),
    "ingress_controller": ("traefik", "nginx", "octavia"),
    "selinux_mode": ("enforcing", "permissive", "disabled"),
}
"""Labels with a few values, or empty for the driver's own (Magnum's user guide, "Labels")."""
_BOOLEANS = ("0", "1", "f", "false", "n", "no", "off", "on", "t", "true", "y", "yes")
"""Words for true and false (oslo.utils, ``bool_from_string``)."""


def _as_text(value: Any) -> Any:
    """Magnum's labels are strings; YAML reads true and 20 as other types, and 1.30 as 1.3 (refused)."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _labels(values: dict[str, str]) -> dict[str, str]:
    """Refuse values of another type than the label's name says (Magnum's user guide, "Labels")."""
    for key, value in values.items():
        if len(value) > _LONGEST_LABEL or _has_control_characters(value):
            fact = "is too long, or has control characters"
            raise InputError(key, fact, f"use at most {_LONGEST_LABEL} characters on one line")
        if key.endswith("_enabled") and value.strip().lower() not in _BOOLEANS:
            raise InputError(key, f"{value!r} is neither true nor false", "use true or false")
        if key.endswith(("_size", "_count")) and not re.fullmatch("[0-9]{1,9}", value):
            raise InputError(key, f"{value!r} is not a whole number", "write a number, of GiB for volumes")
        if value and key in _VALUES and value not in _VALUES[key]:
            raise InputError(key, f"{value!r} is not known", f"use {' or '.join(_VALUES[key])}")
        if key.endswith(("_prefix", "_provider", "_tag")) and re.search(r"\s", value):
            raise InputError(key, f"{value!r} has blanks", "write one word")
    _check_networks(values)
    lower, upper = (
        int(values.get(f"{bound}_node_count", default)) for bound, default in (("min", 0), ("max", 10**9))
    )
    if lower > upper:
        raise InputError("max_node_count", f"{upper} is less than min_node_count, {lower}", "correct one")
    return values


def _check_networks(values: dict[str, str]) -> None:
    """Nodes, pods and Services each have a network of their own (kube-apiserver, kube-controller-manager)."""
    networks: dict[str, Any] = {}
    for key, value in values.items():
        if not key.endswith(("_cidr", "_ipv4pool", "_ip_range")):
            continue
        try:
            network = ipaddress.ip_network(value if "/" in value else "")
        except ValueError:
            raise InputError(key, f"{value!r} is not a network", "write it as 10.0.0.0/24") from None
        for other, known in networks.items():
            if network.overlaps(known):
                raise InputError(key, f"{value} and {other} overlap", "use networks apart from each other")
        networks[key] = network


def _has_control_characters(value: str) -> bool:
    return any(ord(char) < 32 or ord(char) == 127 for char in value)


_check_name = refusing(
    lambda value: not value.strip() or len(value) > 255 or _has_control_characters(value),
    "{!r} is not a name in OpenStack",
    "give a name or an id, 255 characters at most",
)
OpenstackName = Annotated[Strict, Field(min_length=1), _check_name]
"""Name or id of an OpenStack object; preflight checks that it exists."""
ImageName = Annotated[
    Strict,
    Field(min_length=1),
    refusing(
        lambda value: set(value) & {*"/@"},
        "{!r} is a container image",
        "name an image of Glance, which the nodes boot from",
    ),
    _check_name,
]
_LabelKey = Annotated[
    Strict, matching("[A-Za-z0-9][-A-Za-z0-9_./]*", "a label of Magnum's", "write it as boot_volume_size")
]
_LabelText = Annotated[Text, BeforeValidator(_as_text, json_schema_input_type=str | int | bool)]
MagnumLabels = Annotated[dict[_LabelKey, _LabelText], AfterValidator(_labels)]
MinorVersion = Annotated[
    Strict, matching(r"1\.[1-9][0-9]?", "a minor version of Kubernetes", 'write it as "1.30"'), Supported
]
Role = Annotated[
    Strict,
    refusing(
        lambda value: value == MASTER_ROLE,
        "Magnum keeps the role master for the control plane",
        "use another role",
    ),
    matching(
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        "a valid value of a node's role label",
        "use at most 63 of a-z, 0-9 and -",
        63,
    ),
]

GPU_LABEL = "nvidia_gpu_enabled"
"""Magnum's label for clusters with GPUs [CERN]; set if a pool has GPUs, unless it is declared."""
AUTOSCALER_LABEL = "auto_scaling_enabled"
"""Magnum's label that runs cluster-autoscaler (its user guide, labels); set for elastic pools with a
driver of `SCALING_DRIVERS`, unless it is declared.
"""
SCALING_DRIVERS: tuple[str, ...] = ("capi",)
"""Drivers that, with that label, scale every node group that has bounds, as magnum-capi-helm does. The
autoscaler of Magnum's Heat driver (enable-auto-scaling.sh, ``--nodes=MIN:MAX:default-worker``) scales the
default workers and no pool.
"""
RESERVED_GROUPS = ("default-worker", "default-master")
"""The two node groups that every Magnum cluster has (conductor/utils.py)."""


class Flavor(Model):
    """What the nodes of a flavor have: Nova does not report the GPU model."""

    gpu: GpuName | None = option("GPU model; none if left out.")
    count: GpuCount | None = option("GPUs of a node; 1 if left out.")
    vcpu: Cores = required("vCPUs of a node.")
    memory_gib: MemoryGib = required("Memory of a node in GiB.")

    _model: Gpu | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_count(self, info: ValidationInfo) -> Flavor:
        self._model = catalogue_of(info).gpu(self.gpu) if self.gpu else None
        if self.count is not None and self.gpu is None:
            fact = "no GPU is named, so there is nothing to count"
            raise InputError("count", fact, "add gpu, or leave it out")
        return self

    def machine(self, name: str) -> Machine:
        count = (self.count or 1) if self.gpu else 0
        return Machine(
            name, "openstack", self.vcpu, self.memory_gib, self.gpu, count, declared_gpu=self._model
        )


def _existing_template(value: Any) -> Any:
    if isinstance(value, Mapping):
        command = "openstack coe cluster template create NAME --coe kubernetes --image IMAGE"
        command += " --external-network NETWORK --labels kube_tag=v1.X.Y"
        remedy = f"run `{command}` (driver capi: without --labels), and write template: NAME"
        raise InputError("", "gpuform creates no template", remedy)
    return value


class ClusterNetwork(Model):
    """Network of the nodes; what is left out comes from the template."""

    fixed_network: OpenstackName | None = option(
        "Network of the nodes; name or id. Magnum creates one if neither cluster nor template names one."
    )
    fixed_subnet: OpenstackName | None = option("Subnet in it; name or id.")
    floating_ip: Flag | None = option("Whether every node has a floating IP.")


class Masters(Model):
    """The control plane's nodes; their number cannot change in place."""

    # etcd's FAQ, "What is maximum cluster size?": no more than seven.
    nodes: Annotated[Count, Field(le=7)] = option("Number of masters, odd, 7 at most: etcd runs on them.", 1)
    flavor: OpenstackName | None = option("Flavor; the template's if left out.")
    lb: Flag | None = option(
        "A load balancer in front of them; the template's setting if left out. Several masters need one."
    )

    @model_validator(mode="after")
    def _check_quorum(self) -> Masters:
        if self.nodes % 2 == 0:
            fact = f"{self.nodes} tolerate no more failures than {self.nodes - 1}: etcd needs a majority"
            raise InputError("nodes", fact, f"use {self.nodes - 1} or {self.nodes + 1}")
        if self.nodes > 1 and self.lb is False:
            fact = f"Magnum makes {self.nodes} masters only behind a load balancer"
            raise InputError("lb", fact, "use lb: true, or one master")
        return self


class Workers(Model):
    """The node group default-worker, without GPUs, for pods that need no GPU."""

    nodes: PoolSize = option("Number of nodes; 0 needs version 1.10 of Magnum's API.", 1)
    flavor: OpenstackName | None = option("Flavor; the template's if left out.")


class OpenstackCluster(ClusterModel):
    """A Kubernetes cluster made by Magnum; each pool becomes one of its node groups."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "autoscaler": (
            "cluster-autoscaler runs only if a pool is elastic",
            "leave it out, and give a pool elastic: {min, max: {nodes}}",
        ),
        "node_count": ("unknown key", "write workers: {nodes: N}"),
        "master_count": ("unknown key", "write masters: {nodes: N}"),
        "flavor": ("unknown key", "write workers: {flavor: NAME}"),
        "master_flavor": ("unknown key", "write masters: {flavor: NAME}"),
    }

    kind: Literal["openstack"]
    cloud: OpenstackName | None = option("Entry of clouds.yaml; the OS_ variables if left out.")
    region: OpenstackName | None = option("Region; the entry's own if left out.")
    driver: Literal["heat", "capi"] = option(
        "Magnum's driver in the cloud (capi: magnum-capi-helm); the label of the nodes and the settings "
        "that have an effect depend on it.",
        "heat",
    )
    template: Annotated[OpenstackName, BeforeValidator(_existing_template)] = required(
        "Existing cluster template, by name or id."
    )
    version: MinorVersion = required("Kubernetes minor version that the template gives, in quotes.")
    keypair: OpenstackName | None = option("Key pair of the nodes; the template's if left out.")
    network: ClusterNetwork = Field(default_factory=ClusterNetwork)
    masters: Masters = Field(default_factory=Masters)
    workers: Workers = Field(default_factory=Workers)
    labels: MagnumLabels = option(
        "Magnum labels in addition to those that follow from the pools (nvidia_gpu_enabled, and with driver "
        "capi auto_scaling_enabled).",
        dict,
    )
    merge_labels: Flag = option("Whether labels are merged with the template's or replace them.", True)
    docker_volume_gib: VolumeGib | None = option("Volume of each node for images and containers, in GiB.")
    timeout_minutes: Annotated[Minutes, Field(ge=5)] = option("Minutes after which its creation fails.", 60)
    flavors: dict[OpenstackName, Flavor] = option(
        "The cloud's own flavors by name, each with its resources; they override the catalogue's of that "
        "name.",
        dict,
    )
    allow_replace: Flag = option(
        "Whether the cluster may be replaced, with everything in it, if a change requires it.", False
    )

    def machine(self, flavor: str | None) -> Machine | None:
        """The machine of a flavor, as declared or else from the catalogue; None if neither has it."""
        if flavor is None:
            return None
        declared = self.flavors.get(flavor)
        built_in = MACHINES.get(flavor)
        if declared:
            return declared.machine(flavor)
        return built_in if built_in and built_in.seller == "openstack" else None


_POOL_SETS_COUNT = (
    "the pool sets the number of its nodes",
    "give the pool nodes: N or elastic: {min, max: {nodes}}",
)


class OpenstackPool(Model):
    """Magnum's settings of a pool's node group, beside the pool's own fields."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "node_count": _POOL_SETS_COUNT,
        "min_node_count": _POOL_SETS_COUNT,
        "max_node_count": _POOL_SETS_COUNT,
        "flavor": ("the pool's machine is its flavor", "write machine: NAME at the pool"),
        "node_labels": ("node labels are set on the pool", "write labels: {KEY: VALUE} at the pool"),
        "node_taints": ("node taints are set on the pool", "write taints: [{key, value}] at the pool"),
    }

    role: Role | None = option("Role of the node group; worker if left out.")
    image: ImageName | None = option("Image of its nodes in Glance; the template's if left out.")
    labels: MagnumLabels = option("Magnum labels of this group only. Node labels are set on the pool.", dict)
    merge_labels: Flag = option("Whether they are merged with the cluster's or replace them.", True)
    docker_volume_gib: VolumeGib | None = option("Volume of each node for images and containers, in GiB.")
    allow_replace: Flag = option("Whether all its nodes may be replaced if a change requires it.", False)


def declared_flavors(cluster: Any, known: Catalogue) -> dict[str, Machine]:
    """The flavors that a cluster declares, read before its validation, for the pools that name them.

    Invalid flavors are skipped: the cluster's own validation reports them, with their path.
    """
    declared = cluster.get("flavors") if isinstance(cluster, Mapping) else None
    machines: dict[str, Machine] = {}
    for name, data in declared.items() if isinstance(declared, Mapping) else ():
        try:
            machines[str(name)] = Flavor.model_validate(data, context={"catalogue": known}).machine(str(name))
        except ValidationError:
            continue
    return machines


LABELS = frozenset(
    """
    api_master_lb_allowed_cidrs auto_healing_enabled auto_scaling_enabled boot_volume_size boot_volume_type
    capi_helm_chart_version csi_cinder_allow_volume_expansion csi_cinder_availability_zone csi_cinder_fstype
    csi_cinder_reclaim_policy csi_cinder_volume_binding_mode etcd_blockdevice_size etcd_blockdevice_type
    etcd_blockdevice_volume_az etcd_blockdevice_volume_type etcd_volume_size etcd_volume_type
    extra_network_name extra_network_names fixed_subnet_cidr keystone_auth_enabled kube_dashboard_enabled
    master_lb_floating_ip_enabled max_node_count min_node_count monitoring_enabled octavia_lb_algorithm
    octavia_lb_healthcheck octavia_provider
    """.split()  # noqa: SIM905
)
"""Labels of a cluster that the driver reads (``conf.py``)."""
_TRUE_VALUES = ("1", "on", "t", "true", "y", "yes")
"""What the driver takes for true (oslo.utils, ``bool_from_string``)."""


def is_enabled(labels: Mapping[str, str], key: str = AUTOSCALER_LABEL) -> bool:
    """Whether the driver takes a label for true: without ``key``, the one that runs cluster-autoscaler."""
    return labels.get(key, "").strip().lower() in _TRUE_VALUES
