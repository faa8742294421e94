"""What the real controllers need before their sidecar runs them: programs, and the server's way to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import yaml

from gpuform.engine.files import Tools
from infra.model.environment import Environment
from lab.plane.layout import Layout
from lab.sidecars.controllers.egress import socket_name
from lab.sidecars.controllers.rows import CONTROLLERS
from lab.sidecars.shared.files import link, write_private
from lab.toolchain.catalogue import GPU_OPERATOR


def operator_title(program: Path) -> str:
    """NVIDIA's operator with its version; ``program`` is the program, or a link to it."""
    official = re.search("-([^-]+)-official-", program.resolve().parent.name)
    return f"NVIDIA's GPU operator {official[1] if official else GPU_OPERATOR.tool_version}"


def declared_controllers(env: Environment, real_operator: bool = False) -> tuple[str, ...]:
    """Those that the environment needs; with ``real_operator``, NVIDIA's operator and NFD, too."""
    return tuple(
        name
        for name, row in CONTROLLERS.items()
        if (getattr(env, row.declared) if row.declared else real_operator)
    )


def prepare(layout: Layout, tools: Tools, names: tuple[str, ...], progress: Callable[[str], None]) -> None:
    """Get the programs and link them for the keeper; the next start of the control plane starts it."""
    tools.ensure(*names, progress=progress)
    folder = layout.controllers / "bin"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in names:
        link(folder / name, tools.path(name))
    uds = {"udsName": socket_name(layout.controllers)}
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": uds}}
    kind = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
    document = {**kind, "egressSelections": [{"name": "cluster", "connection": connection}]}
    write_private(layout.egress, yaml.safe_dump(document))
