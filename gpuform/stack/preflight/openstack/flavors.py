"""Flavors: each exists, and has the vCPUs and memory that the environment assumes.

Magnum validates the flavors of masters and default workers when a cluster is requested. It does not validate
the flavor of another node group: that group fails later (seen with Magnum 15 and 23).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.checkout.listing import some
from gpuform.clouds.openstack.api import Json
from gpuform.stack.preflight.check import Check, Judged
from gpuform.stack.preflight.openstack.account import cli
from gpuform.stack.preflight.openstack.demand import Group, named_flavors
from gpuform.stack.preflight.openstack.project import Project
from infra.model.environment import Environment
from infra.model.machines import Machine
from infra.plan.magnum import cluster_of

_SHOWN = 12
_BOOT = "boot_volume_size"


def checks(env: Environment) -> Iterator[Check]:
    by_hand = f"{cli(cluster_of(env))} flavor show"
    for name, groups in named_flavors(env):
        yield Check(f"flavor {name}", f"{by_hand} {name}", partial(_judge, name, groups))


def _judge(name: str, groups: list[Group], project: Project) -> Judged:
    found = project.flavor(name)
    if found is None:
        names = sorted(str(one["name"]) for one in project.flavors())
        fact = f"nova has no such flavor for the project; it has {some(names, _SHOWN) or 'none'}"
        wanted = ", ".join(group.name for group in groups)
        return Judged("FAIL", fact, f"name another one for {wanted}, or give the project access to it")
    machine = groups[0].machine
    said = f"{found['vcpus']} vCPUs, {_gib(found)} GiB"
    if machine and (found["vcpus"], _gib(found)) != (machine.vcpu, machine.memory):
        fact = f"has {said}, but the environment assumes {machine.vcpu} vCPUs, {machine.memory} GiB"
        return Judged("FAIL", fact, _declared(name, machine, found))
    if not found.get("disk") and not all(group.volumes for group in groups):
        fact = f"{said}, and no disk: nodes boot only if Magnum gives them a boot volume by default"
        return Judged("SKIP", fact, f"set the label {_BOOT} (GiB) in cluster.labels")
    if machine and machine.deprecated:
        return Judged("SKIP", f"{said}; deprecated by its cloud", "move the pool to a newer flavor")
    return Judged("PASS", f"{said}, for {', '.join(group.name for group in groups)}")


def _gib(flavor: Json) -> int:
    """nova counts memory in MiB; a flavor may be a few hundred MiB short of the round number it means."""
    return round(int(flavor["ram"]) / 1024)


def _declared(name: str, machine: Machine, found: Json) -> str:
    gpus = f"gpu: {machine.gpu}, count: {machine.gpus}, " if machine.gpu else ""
    own = f"{{{gpus}vcpu: {found['vcpus']}, memory_gib: {_gib(found)}}}"
    return f"declare this cloud's flavor, as cluster.flavors: {name}: {own}"
