"""Environment of the container toolkit that the operator installs.

Variables and values: nvidia-container-toolkit, cmd/nvidia-ctk-installer/container/runtime/runtime.go; what
the operator does with them: gpu-operator, object_controls.go (transformRuntimeConfigAndSocketMounts).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, model_validator

from infra.model.base import Model, Strict, matching, option
from infra.model.errors import InputError

_PATH = r"(?:/(?!\.\.?(?:/|$))[\w.+-]+)+"
_SOURCE = re.compile(rf"(?:command|file(?:={_PATH})?)", re.ASCII)
_DERIVED = ("decides which containers get GPUs, and follows from gpu_operator.cdi", "leave it out")

DROP_IN_VARIABLES = ("RUNTIME_CONFIG_SOURCE", "RUNTIME_DROP_IN_CONFIG")
"""Variables that a toolkit before 1.18, and an operator before 25.10, does not read [their tags]."""


def _sources(value: str) -> str:
    sources = value.split(",")
    if not all(_SOURCE.fullmatch(source) for source in sources) or len(set(sources)) < len(sources):
        remedy = "write file, file=/PATH or command, or two of them separated by a comma"
        raise InputError("", f"{value!r} names no sources", remedy)
    return value


NodePath = Annotated[
    Strict, matching(_PATH, "the path of a file on a node", "write it as /etc/containerd/config.toml")
]


class ToolkitEnv(Model):
    """Variables of the operator's container toolkit, for nodes with another containerd or other paths."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = dict.fromkeys(
        (
            "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS",
            "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
            "CDI_ENABLED",
            "NVIDIA_CONTAINER_RUNTIME_MODE",
            "NVIDIA_RUNTIME_SET_AS_DEFAULT",
            "RUNTIME_ENABLE_CDI",
        ),
        _DERIVED,
    )

    CONTAINERD_CONFIG: NodePath | None = option(
        "containerd's own file; /etc/containerd/config.toml if left out."
    )
    CONTAINERD_SOCKET: NodePath | None = option(
        "containerd's socket; /run/containerd/containerd.sock if left out."
    )
    RUNTIME_CONFIG_SOURCE: Annotated[Strict, AfterValidator(_sources)] = option(
        "Where the toolkit reads the present configuration, and with it the version of its drop-in: file, "
        "containerd's own file; file=/PATH, another; command, `containerd config dump`.",
        "file",
    )
    RUNTIME_DROP_IN_CONFIG: NodePath | None = option(
        "The drop-in; /etc/containerd/conf.d/99-nvidia.toml if left out."
    )
    RUNTIME_EXECUTABLE_PATH: NodePath | None = option(
        "The program that source command runs; containerd if left out."
    )
    RUNTIME_RESTART_MODE: Literal["signal", "systemd", "none"] | None = option(
        "How containerd takes the new configuration; signal if left out."
    )

    @model_validator(mode="after")
    def _check_files(self) -> ToolkitEnv:
        config = self.CONTAINERD_CONFIG or "/etc/containerd/config.toml"
        socket = self.CONTAINERD_SOCKET or "/run/containerd/containerd.sock"
        if socket in (config, self.RUNTIME_DROP_IN_CONFIG):
            raise InputError("CONTAINERD_SOCKET", f"{socket} is also a configuration", "name two files")
        if config == self.RUNTIME_DROP_IN_CONFIG:
            fact = "is containerd's own file, which the drop-in would replace"
            raise InputError("RUNTIME_DROP_IN_CONFIG", fact, "name a file of its own")
        if self.RUNTIME_DROP_IN_CONFIG and not self.RUNTIME_DROP_IN_CONFIG.endswith(".toml"):
            # nvidia-container-toolkit, pkg/config/engine/containerd/config_drop_in.go
            fact = "containerd imports only *.toml of the drop-in's folder"
            raise InputError("RUNTIME_DROP_IN_CONFIG", fact, "end its name with .toml")
        if self.RUNTIME_EXECUTABLE_PATH and "command" not in self.RUNTIME_CONFIG_SOURCE.split(","):
            fact = f"source {self.RUNTIME_CONFIG_SOURCE} runs no program"
            remedy = "use RUNTIME_CONFIG_SOURCE: command, or leave it out"
            raise InputError("RUNTIME_EXECUTABLE_PATH", fact, remedy)
        return self
