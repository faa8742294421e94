"""What a destroy needs from a kind of cluster.

The code of each step is the same for every kind. A subclass in `gpuform.clouds` defines what differs: the
order of the steps, access to the cluster, proof that it is gone, and what it leaves behind.
Each step can be repeated, so the same command continues a killed run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.kubernetes.cluster import Cluster
from gpuform.stack.destroy.state import State
from gpuform.stack.destroy.waiting import Remaining, Say, wait_until_deleted
from infra.model.environment import Environment

StepName = Literal[
    "workloads", "load balancers", "volumes", "pools", "classes", "cluster", "leftovers", "network", "stack"
]


@dataclass(frozen=True)
class Step:
    """What is done, and its time limit in seconds; None: the engine's own limits."""

    name: StepName
    description: str
    timeout_s: float | None = None


ENGINE_ONLY: tuple[Step, ...] = (Step("stack", "the engine deletes all that it created, in reverse order"),)
"""Steps of every other stack: it consists of objects of a cluster, and the engine knows their order."""
ENGINE_STEPS: tuple[StepName, ...] = ("cluster", "network", "stack")
"""Steps that the engine does, which locks the stack itself."""

_CLOUD_ONLY = "is for stacks that create a cluster at a cloud; {stack} does not"


@dataclass(frozen=True)
class Options:
    """Options of a destroy; ``wait_s`` replaces every step's own time limit."""

    offline: bool = False
    force: bool = False
    cluster_gone: bool = False
    purge: bool = False
    wait_s: float | None = None


@dataclass(frozen=True)
class Leftover:
    """One resource of a cloud; ``why`` it is the cluster's, or a description of a foreign one."""

    kind: str
    id: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id} ({self.why})"


@dataclass(frozen=True)
class CreatedCluster:
    """A cluster as the state has it: its name at the cloud, and the address of its API server."""

    name: str
    endpoint: str


class Sweeper(Protocol):
    """Finds and deletes what a cluster leaves at a cloud. Errors are those of the cloud's own client."""

    def find(self) -> tuple[Leftover, ...]:
        """Resources with the cluster's mark, to be deleted."""

    def delete(self, leftover: Leftover) -> str:
        """Request its deletion; returns what blocks it, if known."""

    def foreign(self, unused: bool = False) -> tuple[Leftover, ...]:
        """Resources in the cluster's network that are not its own; with ``unused`` only those."""
        return ()

    def prepare(self) -> None:
        """Called before each round of deletions."""
        return

    def sweep(self, seconds: float, say: Say) -> tuple[Leftover, ...]:
        """Delete all of them and wait until they are gone; returns what was deleted. Raises StillThere."""
        deleted: dict[Leftover, None] = {}

        def delete_and_list() -> list[Remaining]:
            leftovers = self.find()
            deleted.update(dict.fromkeys(leftovers))
            self.prepare()
            return [Remaining(leftover.kind, leftover.id, self.delete(leftover)) for leftover in leftovers]

        wait_until_deleted(delete_and_list, seconds, say)
        return tuple(deleted)


@dataclass
class Teardown:
    """A stack that creates no cluster: only objects of one, in an order that the engine knows."""

    env: Environment
    stack: str
    options: Options

    steps: ClassVar[tuple[Step, ...]] = ENGINE_ONLY
    cloud_name: ClassVar[str] = "the cloud"
    nothing_found: ClassVar[str] = "none"
    reach_hint: ClassVar[str] = "its network"
    prover: ClassVar[str] = "the cloud"
    refused_options: ClassVar[Mapping[str, str]] = {
        "--force": "is for clusters on AWS; {stack} has none",
        "--cluster-gone": _CLOUD_ONLY,
        "--purge": _CLOUD_ONLY,
    }
    """Options that do not apply here, and why."""

    keeps_namespaces: ClassVar[bool] = False
    """Whether others use the cluster as well, so that a namespace with what they made stays."""

    @property
    def has_cluster(self) -> bool:
        """Whether the stack creates its cluster, so that the cluster's contents must be deleted first."""
        return self.steps is not ENGINE_ONLY

    def refuse_options(self) -> None:
        """InputError for an option that does not apply here, or must not be used now."""
        for option, why in self.refused_options.items():
            if getattr(self.options, option.strip("-").replace("-", "_")):
                raise InputError(option, why.format(stack=self.stack), "leave it out")

    def notes(self) -> tuple[str, ...]:
        return ()

    def require_account(self, state: State, export: Mapping[str, Any]) -> None:
        """Refuse credentials or a region of another place: there, everything would seem to be gone."""

    def created_cluster(self, state: State) -> CreatedCluster | None:
        """The cluster; None if the state has none, or only one that was never created."""
        return None

    def access(self, state: State, paths: Paths, shown: Callable[[], Mapping[str, Any]]) -> Path | str:
        """A kubeconfig, as a file or its content; ``shown`` returns the state with its secrets."""
        raise NotImplementedError

    def require_gone(self, state: State) -> str:
        """The cloud's confirmation that the cluster is gone, as a line. InputError if it exists."""
        raise NotImplementedError

    def leftovers(self, state: State) -> Sweeper | None:
        """Sweeper of what the cluster left; None if there is nothing to look for."""
        return None

    def require_sweepable(self, state: State) -> None:
        """Raise Failure if, by the state, resources with the cluster's mark must not be deleted yet."""

    def refuse_force(self, cluster: Cluster) -> None:
        """InputError for ``--force`` while a controller runs that would work on the same nodes."""

    def terminate_nodes(self, state: State, say: Say) -> None:
        """For ``--force``: terminate the nodes that no controller terminates any more."""

    def require_network_unused(self, state: State) -> None:
        """Raise Failure if foreign resources block the network, once the cluster is gone."""

    def require_cluster_gone(self) -> None:
        """Raise Failure if the cloud still has the cluster, whatever the state says."""

    def excluded_urns(self, state: State) -> tuple[str, ...]:
        """URNs that the engine does not delete in the step ``cluster``."""
        return ()

    def explain_failure(self, state: State, failure: Failure) -> Failure:
        """Adds what blocks the cluster to the failure of the engine run that should have deleted it."""
        return failure
