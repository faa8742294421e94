"""Quotas: what the environment needs beyond what it has already, against the project's limits.

nova has no quota of GPUs: only its scheduler knows which flavors still find a host, and the inventory that it
queries (placement) is for administrators.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.stack.preflight.check import Check, Judged
from gpuform.stack.preflight.openstack.account import cli
from gpuform.stack.preflight.openstack.needs import Needs
from gpuform.stack.preflight.openstack.project import Project
from gpuform.stack.preflight.openstack.rooms import ROOMS, Room
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of

_UNSEEN = (
    "not checked: nova has no quota of GPUs, and only its scheduler knows whether a host has a free one "
    "(a project sees neither PCI devices nor placement's inventory)"
)


def checks(env: Environment) -> Iterator[Check]:
    """One check for each quota that the environment uses, and a SKIP for GPUs."""
    ask = cli(cluster_of(env))
    for room in ROOMS:
        if room.concerns(env):
            yield Check(
                f"quota of {room.what}",
                f"{ask} {room.by_hand}".replace("{ask}", ask),
                partial(_judge, env, room),
            )
    pools = [pool.name for pool in env.pools if pool.flavor and pool.flavor.gpus]
    if pools:
        fact = f"{_UNSEEN}: {', '.join(pools)}"
        yield Check("quota of GPUs", f"{ask} server list --long", partial(_said, Judged("SKIP", fact)))


def _judge(env: Environment, room: Room, project: Project) -> Judged:
    needs = Needs(env, project)
    if unknown := needs.unknown():
        return Judged("SKIP", f"not checked: {unknown}")
    try:
        limit, used = room.read(project)
    except KeyError as missing:  # an older service, or one without the call, which answers 404
        return Judged("SKIP", f"not known: the service's answer has no {missing}")
    wanted = dict(room.needs(needs, True))
    need, always = (sum(amount for _, amount in room.needs(needs, most)) for most in (True, False))
    of_each = ", ".join(f"{name} {amount}" for name, amount in wanted.items() if amount)
    more = f"{need} more at most ({of_each})" if need else "no more than it has"
    if limit is None:
        return Judged("PASS", f"{more}; the project has no limit, {used} taken")
    fact = f"{more}; {used} of {limit} taken"
    if need + used <= limit or not need:
        return Judged("PASS", fact)
    if always + used > limit:
        fact += f"; the nodes that always run need {always} more"
    return Judged("FAIL", fact, room.fix.format(wanted=need + used, project=project.id))


def _said(judged: Judged, project: Project) -> Judged:
    return judged
