"""GPUs and machines that an environment can name: the built-in ones and those that it declares.

Models get it by the validation context, ``{"catalogue": Catalogue}``, so declarations change no global table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationInfo

from infra.model.errors import InputError
from infra.model.gpu import ALIASES, GPUS, Gpu
from infra.model.machines import MACHINES, Machine


@dataclass(frozen=True)
class Catalogue:
    """GPUs and machines by name, the built-in ones first."""

    gpus: Mapping[str, Gpu]
    machines: Mapping[str, Machine]

    def gpu(self, name: str) -> Gpu | None:
        """The GPU with exactly that name or alias; None if there is no such GPU."""
        return self.gpus.get(ALIASES.get(name, name))

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """Every name that ``gpu`` knows, aliases last."""
        return (*self.gpus, *ALIASES)

    @property
    def own_machines(self) -> dict[str, Machine]:
        return {name: machine for name, machine in self.machines.items() if machine.own}

    def joined(self, gpus: Mapping[str, Gpu], machines: Mapping[str, Machine]) -> Catalogue:
        """This catalogue with more entries; entries with a built-in name are ignored."""
        return Catalogue({**self.gpus, **gpus, **self.gpus}, {**self.machines, **machines, **self.machines})


BUILT_IN = Catalogue(GPUS, MACHINES)


def of(info: ValidationInfo) -> Catalogue:
    """The catalogue of this validation; the built-in one without one in the context."""
    return (info.context or {}).get("catalogue") or BUILT_IN


def check_gpus(count: int | None, cores: int) -> None:
    """Refuse a machine with more GPUs than cores: no server and no machine of a cloud is like that."""
    if (count or 0) > cores:
        raise InputError("count", f"{count} GPUs with {cores} vCPUs", "correct one of them")
