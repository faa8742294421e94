"""Names out of the catalogues, as types of fields: GPUs and machines."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from infra.model import gpu as catalogue
from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.machines import LEFT_OUT, MACHINES


def _known_gpu(name: str) -> str:
    gpu = catalogue.find(name)
    if gpu is None:
        raise InputError("", f"unknown GPU {name!r}", listing(catalogue.names(), name))
    return gpu.name


def _known_machine(name: str) -> str:
    if name in LEFT_OUT:
        raise InputError("", f"{name} has {LEFT_OUT[name]}", "name another machine")
    if name not in MACHINES:
        raise InputError("", f"unknown machine {name!r}", listing(MACHINES, name))
    return name


GpuName = Annotated[
    str,
    Field(strict=True, json_schema_extra={"enum": list(catalogue.names())}),
    AfterValidator(_known_gpu),
]
MachineName = Annotated[
    str, Field(strict=True, json_schema_extra={"enum": list(MACHINES)}), AfterValidator(_known_machine)
]
