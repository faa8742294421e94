"""The checks of one kind of cluster; a query that the cloud does not answer becomes SKIP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from gpuform.checkout.errors import Failure, InputError, ServiceError
from gpuform.checkout.paths import Paths
from gpuform.engine import backend, checkpoint
from gpuform.engine.files import EngineFiles
from infra.model.environment import Environment

Verdict = Literal["PASS", "SKIP", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """One check; SKIP: gpuform works without the subject, or could not check it.

    ``fix`` is a command, or text if no command fixes it; ``check`` is the command that makes the same check
    by hand. Both may be empty.
    """

    subject: str
    verdict: Verdict
    fact: str
    fix: str = ""
    check: str = ""


@dataclass(frozen=True)
class Result:
    """Result of a check; ``fix`` is a command, or text if no command fixes it."""

    verdict: Verdict
    fact: str
    fix: str = ""


@dataclass(frozen=True)
class Check:
    """The subject, the command that checks it by hand, and the function that judges it.

    ``judge`` is called with the client of the account, the project or the cluster.
    """

    subject: str
    command: str
    judge: Callable[[Any], Result]

    def run(self, account: Any) -> Finding:
        """SKIP if the query failed; the finding then names the missing permission."""
        try:
            result = self.judge(account)
        except ServiceError as error:
            if error.denied:
                result = Result("SKIP", f"not checked: the caller has no permission for {error.subject}")
            else:
                reason = error.fact.strip().splitlines()[0]  # a proxy may answer with a whole page
                result = Result("SKIP", f"not checked: {error.subject}: {reason}")
        except Failure as failure:
            result = Result("SKIP", f"not checked: {failure.subject}: {failure.fact}", failure.remedy)
        return Finding(self.subject, result.verdict, result.fact, result.fix, self.command)

    def skip(self, reason: str) -> Finding:
        return Finding(self.subject, "SKIP", f"not checked: {reason}", check=self.command)


def run_in_order(
    required: Iterable[Check], others: Iterable[Check], account: Any, stopped: str = ""
) -> Iterator[Finding]:
    """Run all; the others are SKIP if one of the first fails. ``stopped``: why nothing can be checked."""
    for check in required:
        finding = check.skip(stopped) if stopped else check.run(account)
        if finding.verdict == "FAIL":
            stopped = f"see {check.subject}"
        yield finding
    for check in others:
        yield check.skip(stopped) if stopped else check.run(account)


def local_state(paths: Paths, stack: str) -> Mapping[str, Any] | None:
    """The state beside the checkout, read without an engine; None if the stack's state is kept elsewhere."""
    if backend.declared_state(paths.root, stack) is not None:
        return None
    return checkpoint.read_deployment(EngineFiles(paths).checkpoint(backend.project_name(paths.root), stack))


def missing_client(module: str, package: str, extra: str) -> str:
    """Why nothing can be checked; stacks are created without these clients, so this is no failure."""
    return "" if find_spec(module) else f"{package} is not installed: pip install 'gpuform[{extra}]'"


def require_sdk(env: Environment) -> None:
    """Raise InputError if the program would lack the SDK of its cloud."""
    kind = env.cluster.kind
    if kind in ("aws", "openstack") and not find_spec(f"pulumi_{kind}"):
        raise InputError(f"pulumi-{kind}", "is not installed", f"pip install 'gpuform[{kind}]'")
