"""The keeper of the real controllers, one more member; it runs once a stack has declared one.

From then on, it starts with the control plane, and runs a controller while its chart is installed. The API
server reaches the controllers' webhooks through it, which takes arguments that it gets only then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import yaml

from gpuform.engine.places import Tools
from infra.model.environment import Environment
from infra.model.monitoring import ADDRESS
from lab.plane import beside
from lab.plane.layout import Layout, rotate
from lab.plane.processes import CONTROLS
from lab.sidecars.controllers.egress import socket_name
from lab.sidecars.controllers.keeper import SAID
from lab.sidecars.controllers.rows import CONTROLLERS
from lab.sidecars.shared.files import link, write_private

MODULE = "sidecars.controllers"


def declared(env: Environment) -> tuple[str, ...]:
    """The controllers that the environment needs."""
    return tuple(name for name, row in CONTROLLERS.items() if getattr(env, row.declared, None))


def prepare(layout: Layout, tools: Tools, names: tuple[str, ...], progress: Callable[[str], None]) -> None:
    """Get the programs and link them for the keeper; the next start of the control plane starts it."""
    tools.ensure(*names, progress=progress)
    folder = layout.controllers / "bin"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in names:
        link(folder / name, tools.path(name))
    uds = {"udsName": socket_name(layout.controllers)}
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": uds}}
    document = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    write_private(layout.egress, yaml.safe_dump(document))


def ensure(layout: Layout, served: Mapping[str, int]) -> None:
    """Start the keeper unless exactly one runs, from the current code; nothing if no stack declared one."""
    if not layout.egress.is_file():
        return
    arguments = [
        "--pki",
        str(layout.pki),
        "--home",
        str(layout.controllers),
        "--logs",
        str(layout.paths.logs),
        "--named",
        f"{ADDRESS.removeprefix('http://')}={served['prometheus']}",
    ]
    if beside.current(layout, CONTROLS, beside.newest_source(MODULE, beside.KEPT), *arguments):
        return
    stop(layout)
    for name in CONTROLLERS:
        rotate(layout.log(name))
    beside.start(layout, CONTROLS, MODULE, *arguments)


def stop(layout: Layout) -> None:
    """End the keeper, which ends the controllers; each gets two seconds."""
    beside.stop(layout, CONTROLS, grace=3)
    for name in CONTROLLERS:
        beside.stop(layout, name, grace=0)


def said(layout: Layout) -> tuple[str, ...]:
    """What does not run as declared, as stored by the keeper."""
    try:
        return tuple(json.loads((layout.controllers / SAID).read_text()))
    except (OSError, ValueError):
        return ()
