"""The stack that is destroyed, and everybody who is asked about it: the engine, the cluster, AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpuform.destroy import blockers
from gpuform.destroy.cluster import NODE_CLASS, NODE_POOL, Cluster, access
from gpuform.destroy.leftovers import Leftovers, Scope, may_be_asked, vpc_by_tag
from gpuform.destroy.plan import Inside, Plan, look_inside
from gpuform.destroy.proof import require_gone
from gpuform.destroy.state import Known, without_cluster
from gpuform.destroy.steps import OF_EKS, OF_OTHERS
from gpuform.engine import Engine, Event
from gpuform.engine.backend import project
from gpuform.errors import Failure, InputError
from gpuform.paths import Paths
from gpuform.plugins.kubernetes.client import Unreachable
from gpuform.recover import locks
from gpuform.recover.aws import require_account
from gpuform.recover.state import same
from infra.model.aws import AwsCluster
from infra.model.environment import Environment

Say = Callable[[str], None]

_HOSTS = (
    "hosts: what was installed on them (driver, toolkit, settings) stays; docs/roles.md says what that is"
)
_OFFLINE = "offline: AWS is not asked for leftovers; point AWS_ENDPOINT_URL at a stand-in on this machine"


@dataclass(frozen=True)
class Options:
    """How; ``wait_s`` is in place of every step's own bound."""

    offline: bool = False
    force: bool = False
    cluster_gone: bool = False
    purge: bool = False
    wait_s: float | None = None


@dataclass
class Site:
    """One stack of a checkout."""

    env: Environment
    paths: Paths
    engine: Engine
    stack: str
    options: Options
    say: Say = print
    _state: Mapping[str, Any] | None = field(default=None, repr=False)

    def known(self) -> Known:
        """The state as it is now; no other run may change it while we work, see `require_unchanged`."""
        if self._state is None:
            self._state = self.engine.export(self.stack)
        return Known.of(self._state)

    def require_unchanged(self) -> None:
        """Raise Failure where the state is no longer the plan's: nobody has agreed to that."""
        planned, self._state = self._state, None
        self.known()
        if planned is not None and not same(planned, self._state or {}):
            raise Failure(f"stack {self.stack}", "its state has changed since the plan", "look again")

    def require_free(self) -> None:
        """Raise Failure while somebody holds the stack: the engine asks too late, the cluster comes first.

        Beside the checkout the engine's export has asked; what `recover` looks into is asked here, no other.
        """
        env, shared = self.engine.environment(self.stack)
        if shared is None:
            return
        try:
            place = locks.store(env["PULUMI_BACKEND_URL"], project(self.paths.root), self.stack)
        except InputError:
            return
        for lock in locks.require_removable(self.stack, place.locks(), ()):
            raise Failure(
                f"stack {self.stack}", f"is locked by {lock.named}", f"run 'gpuform recover {self.stack}'"
            )

    def engine_destroys(self, targets: Sequence[str], told: Callable[[Event], None]) -> str:
        """The engine's destroy of these URNs, or of all that is left; its own count."""
        self._state = None
        return self.engine.destroy(self.stack, told, targets).summary

    @property
    def aws(self) -> AwsCluster | None:
        """The declared cluster where it is one of AWS."""
        return self.env.cluster if isinstance(self.env.cluster, AwsCluster) else None

    def refuse_options(self) -> None:
        """InputError for an option that means nothing here, or must not be used now."""
        asked = {
            "--force": self.options.force,
            "--cluster-gone": self.options.cluster_gone,
            "--purge": self.options.purge,
        }
        if self.aws is None:
            for name in (name for name, given in asked.items() if given):
                raise InputError(name, f"is for clusters on AWS, and {self.stack} is none", "leave it out")
        if self.options.cluster_gone and not may_be_asked(self.options.offline):
            raise InputError("--cluster-gone", "asks EKS for proof, which an offline run does not", _REAL)

    def _require_place(self, known: Known, region: str) -> None:
        """Refuse another region or account than the stack's: there, all of it would seem to be gone."""
        if known.regions and region not in known.regions:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"says {region}, and the stack lies in {', '.join(sorted(known.regions))}",
                "set cluster.region back to where it was made",
            )
        if known.counts() and not self.options.offline:
            require_account(self.stack, self._state or {})

    def plan(self) -> Plan:
        """What is there. Raises Failure where the cluster has to be asked and does not answer."""
        self.refuse_options()
        known = self.known()
        if self.aws is None:
            notes = (_HOSTS,) if self.env.cluster.kind == "hosts" else ()
            counts, more = known.counts(), bool(known.resources)
            return Plan(self.stack, self.env.cluster.kind, OF_OTHERS, counts, notes=notes, unfinished=more)
        self._require_place(known, self.aws.region)
        if self.options.cluster_gone and known.eks:
            self.say(require_gone(known.eks, self.aws.region))
        workloads = tuple(f"{one.kind} {one.namespace}/{one.name}" for one in known.workloads())
        found, notes = Inside(), () if may_be_asked(self.options.offline) else (_OFFLINE,)
        with self.cluster() as cluster:
            if cluster is not None:
                try:
                    found = look_inside(cluster, workloads)
                    if self.options.force:
                        self.refuse_force(cluster)
                except Unreachable as problem:
                    remedy = "run the same command again"
                    raise Failure(f"cluster of {self.stack}", str(problem), remedy) from None
        left = self.leftovers(known)
        return Plan(
            self.stack,
            "aws",
            OF_EKS,
            known.counts(),
            inside=found,
            swept=left.find() if left else (),
            left_alone=left.foreign(unused=True) if left else (),
            purge=self.options.purge,
            notes=notes,
            unfinished=bool(known.resources),
        )

    @contextmanager
    def cluster(self) -> Iterator[Cluster | None]:
        """The stack's cluster on AWS, None where it is gone, or never came to have anything in it.

        Raises Failure where it has something that only it can end, and does not answer.
        """
        known = self.known()
        if not self.aws or not known.eks or (self.options.cluster_gone and not known.inside):
            yield None
            return
        how = self.paths.kubeconfig if self.options.offline else access(known.eks, self.aws.region)
        with Cluster(how) as cluster:
            problem = cluster.reachable()
            if problem and not known.inside:
                self.say(f"the cluster does not answer, and nothing of the stack is in it: {problem}")
            elif self.options.cluster_gone and not problem:
                fact = f"the cluster answers at {known.eks.endpoint}, so it is not gone"
                raise InputError("--cluster-gone", fact, "run without it")
            elif problem and not self.options.cluster_gone:
                raise Failure(
                    f"cluster {known.eks.name} of {self.stack}",
                    f"does not answer ({problem}), and what is in it can only be ended there",
                    "reach it (credentials, VPC, public_cidrs); if it is gone, run with --cluster-gone, "
                    "which asks EKS for proof first",
                )
            yield None if problem else cluster

    def refuse_force(self, cluster: Cluster | None) -> None:
        """InputError while Karpenter lives and has something to end: two would work on the same nodes."""
        if cluster is None:
            return
        lives = blockers.controller(cluster)
        if lives.alive and any(cluster.objects(kind) for kind in (NODE_POOL, NODE_CLASS)):
            raise InputError(
                "--force", f"Karpenter {lives.said}, and ends its nodes itself", "run without --force"
            )

    def leftovers(self, known: Known | None = None) -> Leftovers | None:
        """Who asks AWS for what the cluster left; None where there is no VPC, or AWS is not to be asked."""
        known = known or self.known()
        if self.aws is None or not known.vpcs or not may_be_asked(self.options.offline):
            return None
        vpc = known.vpcs[0]
        if self.options.offline:
            vpc = vpc_by_tag(self.aws.region, self.env.name)
        return Leftovers(Scope(self.aws.region, self.env.name, self.env.name, vpc)) if vpc else None

    def forget_cluster(self) -> None:
        """Take everything that lay in a cluster that is gone out of the state, on proof alone."""
        known = self.known()
        if known.eks is None or self.aws is None or not known.inside:
            return
        self.say(require_gone(known.eks, self.aws.region))
        self.engine.restore(self.stack, without_cluster(self.engine.export(self.stack)))
        self._state = None
        self.say(f"{len(known.inside)} resources that were in it taken out of the state, releases included")

    def require_empty(self) -> None:
        """Raise Failure where the engine has left something in the state."""
        known = self.known()
        if not known.empty:
            left = ", ".join(known.counts()) or "components"
            raise Failure(f"stack {self.stack}", f"still has {left}", "run the same command again")


_REAL = "run without --offline, or point AWS_ENDPOINT_URL at a stand-in on this machine"
