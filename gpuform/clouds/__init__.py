"""The kinds of clusters, by name. Adding one: docs/explanation/add-a-cloud.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuform.checkout.paths import Paths
from gpuform.clouds.aws import AWS
from gpuform.clouds.cloud import Cloud
from gpuform.clouds.embedded import EMBEDDED
from gpuform.clouds.existing import EXISTING
from gpuform.clouds.hosts import HOSTS
from gpuform.clouds.openstack import OPENSTACK
from gpuform.engine import Engine
from gpuform.stack.destroy import Options, StackTeardown
from infra.model.environment import Environment

__all__ = ["CLOUDS", "RECOVERIES", "Cloud", "cloud_of", "stack_teardown"]

CLOUDS: Mapping[str, Cloud] = {
    "aws": AWS,
    "embedded": EMBEDDED,
    "existing": EXISTING,
    "hosts": HOSTS,
    "openstack": OPENSTACK,
}

RECOVERIES = tuple(cloud.recovery for cloud in CLOUDS.values() if cloud.recovery)
"""The type of its resource tells to which cloud an interrupted operation belongs."""


def cloud_of(env: Environment) -> Cloud:
    return CLOUDS[env.cluster.kind]


def stack_teardown(
    env: Environment,
    paths: Paths,
    engine: Engine,
    stack: str,
    options: Options,
    say: Callable[[str], None] = print,
) -> StackTeardown:
    """The stack to destroy, with what its kind of cluster needs."""
    return StackTeardown(cloud_of(env).teardown(env, stack, options), paths, engine, RECOVERIES, say)
