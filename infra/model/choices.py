"""Field types for names from the catalogues: GPUs and machines."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from infra.model import catalogue
from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.machines import LEFT_OUT, MACHINES, flavors


def _known_gpu(name: str, info: ValidationInfo) -> str:
    known = catalogue.of(info)
    gpu = known.gpu(name)
    if gpu is None:
        raise InputError("", f"unknown GPU {name!r}", listing(known.gpu_names, name))
    return gpu.name


def _known_machine(name: str) -> str:
    if name in LEFT_OUT:
        raise InputError("", f"{name} has {LEFT_OUT[name]}", "name another machine")
    if name not in MACHINES:
        raise InputError("", f"unknown machine {name!r}", listing(MACHINES, name))
    return name


def _known_flavor(name: str, info: ValidationInfo) -> str:
    """On OpenStack the error for an unknown name lists flavors only."""
    context = info.context or {}
    own = context.get("flavors") or {}
    if name in own or name in catalogue.of(info).own_machines:
        return name
    if context.get("cluster") == "openstack" and name not in MACHINES:
        known = listing((one.name for one in flavors(own)), name)
        remedy = f"declare it under cluster.flavors, or use another; {known}"
        raise InputError("", f"unknown flavor {name!r}", remedy)
    return _known_machine(name)


GpuName = Annotated[
    str,
    Field(
        strict=True,
        json_schema_extra={"anyOf": [{"enum": list(catalogue.BUILT_IN.gpu_names)}, {"type": "string"}]},
    ),
    AfterValidator(_known_gpu),
]
MachineName = Annotated[
    str, Field(strict=True, json_schema_extra={"enum": list(MACHINES)}), AfterValidator(_known_machine)
]
FlavorName = Annotated[
    str,
    Field(
        strict=True,
        json_schema_extra={"anyOf": [{"enum": list(MACHINES)}, {"type": "string"}]},
    ),
    AfterValidator(_known_flavor),
]
"""A machine of the catalogue, or one that the environment declares."""
