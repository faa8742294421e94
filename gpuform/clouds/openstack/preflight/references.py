"""Existing resources that the environment names: template, images, key pair, networks, flavors.

The checks are those of Magnum's own validation (magnum/api/attr_validator.py), which runs only once the
cluster is requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from urllib.parse import quote

from gpuform.checkout.listing import abbreviate
from gpuform.clients.openstack.api import Json
from gpuform.clouds.openstack.preflight.account import openstack_cli
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.clouds.openstack.preflight.quotas import Group, groups, groups_by_flavor
from gpuform.stack.preflight.check import Check, Result
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.openstack.cluster import OpenstackCluster
from infra.plan.magnum import cluster_of

_KUBE_TAG = "kube_tag"
"""Label of the Heat driver: the Kubernetes release, ``v1.30.2-rancher1`` (Magnum user guide, labels)."""
_KUBE_VERSION = "kube_version"
"""Property of a Cluster API image: its Kubernetes release (magnum-capi-helm, ``driver.py``)."""
CAPI_DISTROS = ("ubuntu", "flatcar")
"""Values of ``os_distro`` for which magnum-capi-helm is the driver (``provides``)."""
_MAX_SHOWN = 12
_BOOT = "boot_volume_size"


def checks(env: Environment) -> Iterator[Check]:
    cluster = cluster_of(env)
    cli = openstack_cli(cluster)
    by_hand = f"{cli} coe cluster template show {cluster.template}"
    yield Check(f"template {cluster.template}", by_hand, partial(_judge_template, cluster))
    for image in dict.fromkeys(group.image for group in groups(env) if group.image):
        yield Check(f"image {image}", f"{cli} image show {image}", partial(_judge_image, cluster, image))
    if cluster.keypair:
        by_hand = f"{cli} keypair show {cluster.keypair}"
        yield Check(f"key pair {cluster.keypair}", by_hand, partial(_judge_keypair, cli, cluster.keypair))
    yield from _network_checks(cluster, cli)


def _network_checks(cluster: OpenstackCluster, cli: str) -> Iterator[Check]:
    fixed, subnet = cluster.network.fixed_network, cluster.network.fixed_subnet
    if fixed:
        yield Check(f"network {fixed}", f"{cli} network show {fixed}", partial(_judge_network, fixed))
    if subnet:
        yield Check(f"subnet {subnet}", f"{cli} subnet show {subnet}", partial(_judge_subnet, subnet, fixed))


def _judge_template(cluster: OpenstackCluster, project: Project) -> Result:
    template = project.template(cluster.template)
    if template is None:
        templates = project.list_all("magnum", "/clustertemplates", "clustertemplates")
        names = sorted(str(item["name"]) for item in templates)
        shown = ", ".join(names[:_MAX_SHOWN]) or "none"
        fact = f"Magnum has no such template for the project; it has {shown}"
        return Result("FAIL", fact, "name one of them as cluster.template, or create one")
    if template.get("coe") != "kubernetes":
        return Result("FAIL", f"is for {template.get('coe')}", "name one for kubernetes as cluster.template")
    if cluster.driver == "capi":  # takes the version from the image, and reads no kube_tag
        return _judge_image(cluster, str(template.get("image_id")), project)
    labels = {**(template.get("labels") or {}), **cluster.labels}
    version = str(labels.get(_KUBE_TAG) or "")
    return _judge_version(cluster, version, f"its label {_KUBE_TAG}", f"image {template.get('image_id')}")


def _judge_image(cluster: OpenstackCluster, name: str, project: Project) -> Result:
    images = find_images(name, project)
    if failure := _judge_count(images, "glance", "image"):
        return failure
    image = images[0]
    distro, capi = image.get("os_distro"), cluster.driver == "capi"
    if not distro or (capi and distro not in CAPI_DISTROS):
        has = f"os_distro {distro}" if distro else "no os_distro"
        fact = f"has {has}, by which Magnum selects its driver"
        distros = " or ".join(CAPI_DISTROS) if capi else "fedora-coreos"
        return Result("FAIL", fact, f"openstack image set --property os_distro={distros} {image['id']}")
    if image.get("status") != "active":
        return Result("FAIL", f"is {image.get('status')}", "wait, or name another one")
    version = str(image.get(_KUBE_VERSION) or "")
    if capi and not version:
        fact = "has no kube_version, which Magnum's Cluster API driver requires"
        return Result("FAIL", fact, f"openstack image set --property kube_version=v1.X.Y {image['id']}")
    return _judge_version(cluster, version, f"its {_KUBE_VERSION}", f"os_distro {image['os_distro']}")


def find_images(name: str, project: Project) -> list[Json]:
    """Glance's images of this id or name, as Magnum finds them."""
    listed = project.list_all("glance", "/images", "images")
    return _filter_by_name(listed, name) or _find_unlisted_images(name, project)


def _find_unlisted_images(name: str, project: Project) -> list[Json]:
    """Images that glance does not list by default, but that Magnum finds.

    By id any readable image, such as a community image, then a hidden one (openstacksdk's ``Image.find``).
    """
    image = project.find("glance", f"/images/{quote(name, safe='')}")
    if image:
        return [image]
    return _filter_by_name(project.list_all("glance", "/images", "images", os_hidden="true"), name)


def _judge_version(cluster: OpenstackCluster, version: str, source: str, fact: str) -> Result:
    """Whether a stated release has the declared minor version; no stated release passes."""
    minor = ".".join(version.lstrip("v").split(".")[:2])
    if version and minor != cluster.version:
        fact = f"gives Kubernetes {minor} ({source} is {version}), but cluster.version is {cluster.version}"
        return Result("FAIL", fact, f'write version: "{minor}", or name another one')
    return Result("PASS", f"Kubernetes {version}, {fact}" if version else fact)


def _judge_keypair(cli: str, name: str, project: Project) -> Result:
    if project.find("nova", f"/os-keypairs/{quote(name, safe='')}"):
        return Result("PASS", "exists")
    fact = "nova has no such key pair for the user of these credentials: key pairs belong to a user"
    return Result("FAIL", fact, f"{cli} keypair create --public-key ~/.ssh/id_ed25519.pub {name}")


def _judge_network(name: str, project: Project) -> Result:
    matches = _filter_by_name(project.list_all("neutron", "/networks", "networks"), name)
    if failure := _judge_count(matches, "neutron", "network"):
        return failure
    if not matches[0].get("subnets"):
        return Result("FAIL", "has no subnet, so nodes get no address", "create one, or name another network")
    return Result("PASS", f"{len(matches[0]['subnets'])} subnet(s)")


def _judge_subnet(name: str, network: str | None, project: Project) -> Result:
    subnets = _filter_by_name(project.list_all("neutron", "/subnets", "subnets"), name)
    if failure := _judge_count(subnets, "neutron", "subnet"):
        return failure
    networks = _filter_by_name(project.list_all("neutron", "/networks", "networks"), network or "")
    if networks and subnets[0]["network_id"] not in {item["id"] for item in networks}:
        return Result("FAIL", f"is not in network {network}", "name a subnet of it")
    return Result("PASS", str(subnets[0].get("cidr")))


def _filter_by_name(items: list[Json], name: str) -> list[Json]:
    """Matches by id, else by name, as in Magnum."""
    return [item for item in items if item["id"] == name] or [item for item in items if item["name"] == name]


def _judge_count(items: list[Json], service: str, kind: str) -> Result | None:
    """The result if a name does not lead to exactly one object."""
    if not items:
        fact = f"{service} has no such {kind} for the project"
        return Result("FAIL", fact, f"see `openstack {kind} list`")
    if len(items) > 1:
        ids = ", ".join(str(item["id"]) for item in items)
        return Result("FAIL", f"{len(items)} {kind}s have this name", f"give the id: {ids}")
    return None


def flavors(env: Environment) -> Iterator[Check]:
    """Each exists, and has the vCPUs and memory that the environment assumes.

    Magnum validates only those of masters and default workers when a cluster is requested. With another
    flavor that does not exist, the node group fails later (seen with Magnum 15 and 23).
    """
    by_hand = f"{openstack_cli(cluster_of(env))} flavor show"
    for name, node_groups in groups_by_flavor(env).items():
        yield Check(f"flavor {name}", f"{by_hand} {name}", partial(_judge_flavor, name, node_groups))


def _judge_flavor(name: str, node_groups: list[Group], project: Project) -> Result:
    flavor = project.flavor(name)
    if flavor is None:
        names = sorted(str(item["name"]) for item in project.flavors())
        fact = f"nova has no such flavor for the project; it has {abbreviate(names, _MAX_SHOWN) or 'none'}"
        groups = ", ".join(group.name for group in node_groups)
        return Result("FAIL", fact, f"name another one for {groups}, or give the project access to it")
    machine = node_groups[0].machine
    size = f"{flavor['vcpus']} vCPUs, {_gib(flavor)} GiB"
    if machine and (flavor["vcpus"], _gib(flavor)) != (machine.vcpu, machine.memory):
        fact = f"has {size}, but the environment assumes {machine.vcpu} vCPUs, {machine.memory} GiB"
        return Result("FAIL", fact, _flavor_declaration(name, machine, flavor))
    if not flavor.get("disk") and not all(group.volumes for group in node_groups):
        fact = f"{size}, and no disk: nodes boot only if Magnum gives them a boot volume by default"
        return Result("SKIP", fact, f"set the label {_BOOT} (GiB) in cluster.labels")
    if machine and machine.deprecated:
        return Result("SKIP", f"{size}; deprecated by its cloud", "move the pool to a newer flavor")
    return Result("PASS", f"{size}, for {', '.join(group.name for group in node_groups)}")


def _gib(flavor: Json) -> int:
    """nova counts memory in MiB; a flavor may be a few hundred MiB short of the round number it means."""
    return round(int(flavor["ram"]) / 1024)


def _flavor_declaration(name: str, machine: Machine, flavor: Json) -> str:
    gpus = f"gpu: {machine.gpu}, count: {machine.gpus}, " if machine.gpu else ""
    fields = f"{{{gpus}vcpu: {flavor['vcpus']}, memory_gib: {_gib(flavor)}}}"
    return f"declare this cloud's flavor, as cluster.flavors: {name}: {fields}"
