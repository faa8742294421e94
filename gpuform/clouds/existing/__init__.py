"""Existing clusters: a cluster is not removed with its stack, and others use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpuform.clouds.cloud import Cloud
from gpuform.clouds.existing.preflight import checks, checks_of_nodes
from gpuform.stack.destroy import Teardown
from gpuform.stack.preflight import Preflight


@dataclass
class ExistingTeardown(Teardown):
    """The engine deletes the stack's objects; a namespace with objects of others stays."""

    keeps_namespaces: ClassVar[bool] = True


EXISTING = Cloud(preflight=Preflight(checks, of_nodes=checks_of_nodes), teardown=ExistingTeardown)
