"""Existing resources that the environment names: template, images, key pair, networks, flavors.

The checks are those of Magnum's own validation (magnum/api/attr_validator.py), which runs only once the
cluster is requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from urllib.parse import quote

from gpuform.checkout.listing import some
from gpuform.clients.openstack.api import Json
from gpuform.clouds.openstack.preflight.account import cli
from gpuform.clouds.openstack.preflight.demand import Group, groups, named_flavors
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment
from infra.model.machines import Machine
from infra.model.openstack import OpenstackCluster
from infra.plan.magnum import cluster_of

_KUBE_TAG = "kube_tag"
"""Label of the Heat driver: the Kubernetes release, ``v1.30.2-rancher1`` (Magnum user guide, labels)."""
_KUBE_VERSION = "kube_version"
"""Property of a Cluster API image: its Kubernetes release (magnum-capi-helm, ``driver.py``)."""
CAPI_DISTROS = ("ubuntu", "flatcar")
"""Values of ``os_distro`` for which magnum-capi-helm is the driver (``provides``)."""
_SHOWN = 12
_BOOT = "boot_volume_size"


def checks(env: Environment) -> Iterator[Check]:
    cluster = cluster_of(env)
    ask = cli(cluster)
    if isinstance(cluster.template, str):
        by_hand = f"{ask} coe cluster template show {cluster.template}"
        yield Check(f"template {cluster.template}", by_hand, partial(_template, cluster, cluster.template))
    images = dict.fromkeys(group.image for group in groups(env) if group.image)
    if cluster.own_template:
        images = {cluster.own_template.image: None, **images}
    for image in images:
        yield Check(f"image {image}", f"{ask} image show {image}", partial(_image, cluster, image))
    if cluster.keypair:
        by_hand = f"{ask} keypair show {cluster.keypair}"
        yield Check(f"key pair {cluster.keypair}", by_hand, partial(_keypair, ask, cluster.keypair))
    yield from _networks(cluster, ask)


def _networks(cluster: OpenstackCluster, ask: str) -> Iterator[Check]:
    own, fixed, subnet = cluster.own_template, cluster.network.fixed_network, cluster.network.fixed_subnet
    if own and own.external_network:
        by_hand = f"{ask} network list --external"
        judge = partial(_network, own.external_network, True)
        yield Check(f"external network {own.external_network}", by_hand, judge)
    if fixed:
        yield Check(f"network {fixed}", f"{ask} network show {fixed}", partial(_network, fixed, False))
    if subnet:
        yield Check(f"subnet {subnet}", f"{ask} subnet show {subnet}", partial(_subnet, subnet, fixed))


def _template(cluster: OpenstackCluster, named: str, project: Project) -> Judged:
    found = project.template(named)
    if found is None:
        there = project.listed("magnum", "/clustertemplates", "clustertemplates")
        names = sorted(str(one["name"]) for one in there)
        fact = f"Magnum has no such template for the project; it has {', '.join(names[:_SHOWN]) or 'none'}"
        return Judged("FAIL", fact, "name one of them as cluster.template, or declare one of your own there")
    if found.get("coe") != "kubernetes":
        return Judged("FAIL", f"is for {found.get('coe')}", "name one for kubernetes as cluster.template")
    if cluster.driver == "capi":  # takes the version from the image, and reads no kube_tag
        return _image(cluster, str(found.get("image_id")), project)
    given = {**(found.get("labels") or {}), **cluster.labels}
    said = str(given.get(_KUBE_TAG) or "")
    return _versioned(cluster, said, f"its label {_KUBE_TAG}", f"image {found.get('image_id')}")


def _image(cluster: OpenstackCluster, named: str, project: Project) -> Judged:
    found = images_named(named, project)
    if wrong := _not_one(found, "glance", "image"):
        return wrong
    image = found[0]
    distro, capi = image.get("os_distro"), cluster.driver == "capi"
    if not distro or (capi and distro not in CAPI_DISTROS):
        fact = (
            f"has {f'os_distro {distro}' if distro else 'no os_distro'}, by which Magnum selects its driver"
        )
        wanted = " or ".join(CAPI_DISTROS) if capi else "fedora-coreos"
        return Judged("FAIL", fact, f"openstack image set --property os_distro={wanted} {image['id']}")
    if image.get("status") != "active":
        return Judged("FAIL", f"is {image.get('status')}", "wait, or name another one")
    said = str(image.get(_KUBE_VERSION) or "")
    if capi and not said:
        fact = "has no kube_version, which Magnum's Cluster API driver requires"
        return Judged("FAIL", fact, f"openstack image set --property kube_version=v1.X.Y {image['id']}")
    return _versioned(cluster, said, f"its {_KUBE_VERSION}", f"os_distro {image['os_distro']}")


def images_named(named: str, project: Project) -> list[Json]:
    """Glance's images of this id or name, as Magnum finds them."""
    return _by_name(project.listed("glance", "/images", "images"), named) or _unlisted(named, project)


def _unlisted(named: str, project: Project) -> list[Json]:
    """Images that glance does not list by default, but that Magnum finds.

    By id any readable image, such as a community image, then a hidden one (openstacksdk's ``Image.find``).
    """
    whole = project.find("glance", f"/images/{quote(named, safe='')}")
    return (
        [whole] if whole else _by_name(project.listed("glance", "/images", "images", os_hidden="true"), named)
    )


def _versioned(cluster: OpenstackCluster, said: str, where: str, fact: str) -> Judged:
    """Whether a stated release has the declared minor version; no stated release passes."""
    minor = ".".join(said.lstrip("v").split(".")[:2])
    if said and minor != cluster.version:
        fact = f"gives Kubernetes {minor} ({where} is {said}), but cluster.version is {cluster.version}"
        return Judged("FAIL", fact, f'write version: "{minor}", or name another one')
    return Judged("PASS", f"Kubernetes {said}, {fact}" if said else fact)


def _keypair(ask: str, named: str, project: Project) -> Judged:
    if project.find("nova", f"/os-keypairs/{quote(named, safe='')}"):
        return Judged("PASS", "exists")
    fact = "nova has no such key pair for the user of these credentials: key pairs belong to a user"
    return Judged("FAIL", fact, f"{ask} keypair create --public-key ~/.ssh/id_ed25519.pub {named}")


def _network(named: str, external: bool, project: Project) -> Judged:
    networks = project.listed("neutron", "/networks", "networks")
    found = _by_name(networks, named)
    outside = [one for one in networks if one.get("router:external")]
    if external:
        known = ", ".join(sorted(str(one["name"]) for one in outside)) or "none"
        found = _by_name(outside, named)
        if not found:
            fact = f"neutron has no such external network; it has {known}"
            return Judged("FAIL", fact, "name another one as external_network of the template")
    if wrong := _not_one(found, "neutron", "network"):
        return wrong
    if not external and not found[0].get("subnets"):
        return Judged("FAIL", "has no subnet, so nodes get no address", "create one, or name another network")
    return Judged("PASS", "external" if external else f"{len(found[0]['subnets'])} subnet(s)")


def _subnet(named: str, network: str | None, project: Project) -> Judged:
    found = _by_name(project.listed("neutron", "/subnets", "subnets"), named)
    if wrong := _not_one(found, "neutron", "subnet"):
        return wrong
    within = _by_name(project.listed("neutron", "/networks", "networks"), network or "")
    if within and found[0]["network_id"] not in {one["id"] for one in within}:
        return Judged("FAIL", f"is not in network {network}", "name a subnet of it")
    return Judged("PASS", str(found[0].get("cidr")))


def _by_name(every: list[Json], named: str) -> list[Json]:
    """Matches by id, else by name, as in Magnum."""
    return [one for one in every if one["id"] == named] or [one for one in every if one["name"] == named]


def _not_one(found: list[Json], service: str, kind: str) -> Judged | None:
    """The result if a name does not lead to exactly one object."""
    if not found:
        fact = f"{service} has no such {kind} for the project"
        return Judged("FAIL", fact, f"see `openstack {kind} list`")
    if len(found) > 1:
        ids = ", ".join(str(one["id"]) for one in found)
        return Judged("FAIL", f"{len(found)} {kind}s have this name", f"give the id: {ids}")
    return None


def flavors(env: Environment) -> Iterator[Check]:
    """Each exists, and has the vCPUs and memory that the environment assumes.

    Magnum validates only those of masters and default workers when a cluster is requested. With another
    flavor that does not exist, the node group fails later (seen with Magnum 15 and 23).
    """
    by_hand = f"{cli(cluster_of(env))} flavor show"
    for name, users in named_flavors(env).items():
        yield Check(f"flavor {name}", f"{by_hand} {name}", partial(_flavor, name, users))


def _flavor(name: str, users: list[Group], project: Project) -> Judged:
    found = project.flavor(name)
    if found is None:
        names = sorted(str(one["name"]) for one in project.flavors())
        fact = f"nova has no such flavor for the project; it has {some(names, _SHOWN) or 'none'}"
        wanted = ", ".join(group.name for group in users)
        return Judged("FAIL", fact, f"name another one for {wanted}, or give the project access to it")
    machine = users[0].machine
    said = f"{found['vcpus']} vCPUs, {_gib(found)} GiB"
    if machine and (found["vcpus"], _gib(found)) != (machine.vcpu, machine.memory):
        fact = f"has {said}, but the environment assumes {machine.vcpu} vCPUs, {machine.memory} GiB"
        return Judged("FAIL", fact, _declared(name, machine, found))
    if not found.get("disk") and not all(group.volumes for group in users):
        fact = f"{said}, and no disk: nodes boot only if Magnum gives them a boot volume by default"
        return Judged("SKIP", fact, f"set the label {_BOOT} (GiB) in cluster.labels")
    if machine and machine.deprecated:
        return Judged("SKIP", f"{said}; deprecated by its cloud", "move the pool to a newer flavor")
    return Judged("PASS", f"{said}, for {', '.join(group.name for group in users)}")


def _gib(flavor: Json) -> int:
    """nova counts memory in MiB; a flavor may be a few hundred MiB short of the round number it means."""
    return round(int(flavor["ram"]) / 1024)


def _declared(name: str, machine: Machine, found: Json) -> str:
    gpus = f"gpu: {machine.gpu}, count: {machine.gpus}, " if machine.gpu else ""
    own = f"{{{gpus}vcpu: {found['vcpus']}, memory_gib: {_gib(found)}}}"
    return f"declare this cloud's flavor, as cluster.flavors: {name}: {own}"
