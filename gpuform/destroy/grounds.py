"""What a destroy must know of the place that a cluster was made at.

A destroy's steps are the same code everywhere. What differs is in a subclass for each cloud: which steps
there are, how the cluster is reached, who says that it is gone, and what it leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from gpuform.destroy.leftovers import Leftover
from gpuform.destroy.state import Known
from gpuform.destroy.steps import OF_OTHERS, Step
from gpuform.destroy.waiting import Say
from gpuform.errors import Failure, InputError
from gpuform.paths import Paths
from infra.model.environment import Environment

_STAYS = (
    "hosts: what was installed on them (driver, toolkit, settings) stays; docs/roles.md says what that is"
)
_OF_A_CLOUD = "is for clusters that a stack makes at a cloud, and {stack} is none"


@dataclass(frozen=True)
class Options:
    """How; ``wait_s`` is in place of every step's own bound."""

    offline: bool = False
    force: bool = False
    cluster_gone: bool = False
    purge: bool = False
    wait_s: float | None = None


class Made(Protocol):
    """A cluster as the state has it."""

    @property
    def name(self) -> str:
        """Its name at the cloud."""

    @property
    def endpoint(self) -> str:
        """Address of its API server."""


class Sweeper(Protocol):
    """Who asks a cloud for what a cluster leaves there. Errors are those of the cloud's own client."""

    def find(self) -> tuple[Leftover, ...]:
        """What bears the cluster's name and is to go."""

    def foreign(self, unused: bool = False) -> tuple[Leftover, ...]:
        """What is in its network, and not its own."""

    def sweep(self, seconds: float, say: Say) -> tuple[Leftover, ...]:
        """Take all of it away and wait until it is gone; raises StillThere."""


@dataclass
class Ground:
    """Of every other stack: what it made are objects of a cluster, and the engine knows their order."""

    env: Environment
    stack: str
    options: Options

    steps: ClassVar[tuple[Step, ...]] = OF_OTHERS
    where: ClassVar[str] = "the cloud"
    nothing: ClassVar[str] = "none"
    reach: ClassVar[str] = "its network"
    prover: ClassVar[str] = "the cloud"
    refused: ClassVar[Mapping[str, str]] = {
        "--force": "is for clusters on AWS, and {stack} is none",
        "--cluster-gone": _OF_A_CLOUD,
        "--purge": _OF_A_CLOUD,
    }
    """Options that mean nothing here, and why."""

    @property
    def has_cluster(self) -> bool:
        """Whether the stack makes its cluster, so that what is in it ends before it does."""
        return self.steps is not OF_OTHERS

    def refuse_options(self) -> None:
        """InputError for an option that means nothing here, or must not be used now."""
        given = {
            "--force": self.options.force,
            "--cluster-gone": self.options.cluster_gone,
            "--purge": self.options.purge,
        }
        for name, why in self.refused.items():
            if given[name]:
                raise InputError(name, why.format(stack=self.stack), "leave it out")

    def notes(self) -> tuple[str, ...]:
        """What a reader must know besides."""
        return ()

    def require_place(self, known: Known, state: Mapping[str, Any]) -> None:
        """Refuse another place than the stack's: there, all of it would seem to be gone."""

    def made(self, known: Known) -> Made | None:
        """The cluster, None where the state has none, or none that was made."""
        return None

    def access(self, known: Known, paths: Paths, shown: Callable[[], Mapping[str, Any]]) -> Path | str:
        """A kubeconfig, as a file or its content; ``shown`` gives the state with its secrets."""
        raise NotImplementedError

    def require_gone(self, known: Known) -> str:
        """The cloud's own word that the cluster is gone, as a line. InputError where it is not."""
        raise NotImplementedError

    def leftovers(self, known: Known) -> Sweeper | None:
        """Who asks the cloud for what the cluster left; None where there is nothing to ask about."""
        return None

    def require_sweepable(self, known: Known) -> None:
        """Raise Failure where, by the state, nothing that bears the cluster's name may be taken away yet."""

    def refuse_living(self) -> None:
        """Raise Failure where the cloud says so, whatever the state says."""

    def spared(self, known: Known) -> tuple[str, ...]:
        """URNs that the engine does not delete in the step ``cluster``."""
        return ()

    def blamed(self, known: Known, failure: Failure) -> Failure:
        """The failure of an engine's run that should have ended the cluster, with what holds it."""
        return failure


@dataclass
class Hosts(Ground):
    """Own hosts: they stay."""

    def notes(self) -> tuple[str, ...]:
        """What stays on them."""
        return (_STAYS,)
