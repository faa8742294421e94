"""The Pulumi program: read the stack's environment, register its parts in order, export the outputs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pulumi

from infra.config import parse
from infra.inventory import ROOT
from infra.model.base.errors import InputError
from infra.model.base.guard_names import ONLY
from infra.model.environment import Environment
from infra.model.pool.allocatable import claimable, summary
from infra.program import guards, target
from infra.program.platform import platform
from infra.program.target import Target


def cluster(env: Environment) -> Target | None:
    """Register the cluster; None if own hosts have not joined one."""
    if env.cluster.kind in ("aws", "openstack", "hosts"):
        # Imported here, so that no target loads the SDK of another.
        try:
            module = import_module(f"infra.program.{env.cluster.kind}")
        except ModuleNotFoundError as error:
            sdk = str(error.name).replace("_", "-")
            if not sdk.startswith("pulumi-"):
                raise
            raise InputError(sdk, "is not installed", f"pip install 'gpuform[{env.cluster.kind}]'") from None
        created: Target | None = module.cluster(env)
        return created
    if env.cluster.kind == "existing":
        guarded = pulumi.ResourceOptions(depends_on=[guards.cluster_guard(env)])
        existing = target.existing(env.name, env.cluster, guarded)
        return replace(existing, ready=(guards.contents_guard(env, existing.kubeconfig),))
    return target.embedded(env.name, os.environ.get("GPUFORM_KUBECONFIG") or _embedded_kubeconfig())


def _embedded_kubeconfig() -> str:
    """Where `gpuform up` writes it (gpuform.checkout.paths), for runs of plain Pulumi."""
    state = Path(os.environ.get("GPUFORM_STATE") or Path(pulumi.get_root_directory() or ROOT, ".gpuform"))
    stack = pulumi.get_stack()
    return str((state if stack == "local" else state / "planes" / stack) / "kubeconfig")


def _declared() -> Any:
    """The environment as declared: in the configuration, or in a file where `gpuform` put a long one."""
    config = pulumi.Config("gpuform")
    file = config.get("environment-file")
    return (
        json.loads(Path(file).read_text(encoding="utf-8")) if file else config.require_object("environment")
    )


def main() -> None:
    """Run as the stack's program; an InputError ends it with the message alone, without a traceback."""
    try:
        env = parse(_declared())
        created = cluster(env)
    except InputError as error:
        raise pulumi.RunError(str(error)) from None
    only = [name for name in os.environ.get(ONLY, "").split(",") if name]
    if created:
        platform(env, created, only=only)
        pulumi.export("kubeconfig", pulumi.Output.secret(created.kubeconfig))
    if only:
        pulumi.export("only", only)
    pulumi.export("environment", env.resolved())
    pulumi.export("pools", {pool.name: summary(pool) | claimable(pool) for pool in env.pools})


if __name__ == "__main__":
    main()
