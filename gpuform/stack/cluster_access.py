"""Kubeconfig and context of a stack's own cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuform.checkout import scratch
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.kubernetes.kubeconfig import resolve
from gpuform.kubernetes.kubeconfig_errors import FOLDER
from infra.model.environment import Environment

if TYPE_CHECKING:
    from gpuform.engine import Engine
    from gpuform.engine.files import Tools


@dataclass(frozen=True)
class ClusterAccess:
    """How clusters of one kind are reached.

    ``is_output``: the stack creates the cluster, so the kubeconfig is a stack output. ``created_here``:
    whether the state beside the checkout has a real cluster; without one, and without a declared state, such
    a stack is simulated on the embedded cluster.
    """

    is_output: bool = False
    created_here: Callable[[Paths, str], bool] = lambda paths, stack: False


def declared_kubeconfig(env: Environment, paths: Paths) -> tuple[Path, str | None]:
    """Kubeconfig and context that the environment declares, or those of the embedded cluster.

    InputError for own hosts without a cluster, and for a field of a kubeconfig that cannot be honoured.
    """
    if not env.has_cluster:
        raise InputError(
            "cluster.kubeconfig", "missing, so there is no cluster", "see `gpuform hosts status`"
        )
    if env.kubeconfig is None:
        return paths.kubeconfig, None
    path = Path(env.kubeconfig).expanduser()
    refusal = resolve({"kubeconfig": str(path), "context": env.context}, {}).input_error
    if refusal:
        raise refusal
    return path, env.context


def read_only_kubeconfig(
    env: Environment, rules: ClusterAccess, paths: Paths, stack: str, tools: Tools
) -> AbstractContextManager[tuple[Path, str | None]]:
    """Kubeconfig and context for read-only commands; of a cloud cluster, from the state."""
    if env.state is None and not rules.created_here(paths, stack):
        return nullcontext(declared_kubeconfig(env, paths))
    from gpuform.engine import Engine

    return stack_kubeconfig(env, rules, paths, Engine(paths, tools, say=lambda line: None), stack)


@contextmanager
def stack_kubeconfig(
    env: Environment, rules: ClusterAccess, paths: Paths, engine: Engine, stack: str
) -> Iterator[tuple[Path, str | None]]:
    """Kubeconfig and context of the stack's cluster.

    A kubeconfig that is a stack output lies in a file of mode 0600 until the context manager exits.
    """
    if not rules.is_output:
        yield declared_kubeconfig(env, paths)
        return
    text = engine.outputs(stack, show_secrets=True).get("kubeconfig")
    if not isinstance(text, str) or not text:
        raise Failure(f"stack {stack}", "has no cluster yet", "run `up` first")
    with scratch.folder(paths.state / FOLDER) as folder:
        file = folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        yield file, None
