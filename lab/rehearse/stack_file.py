"""The stack file for a rehearsal's engine: the stack without its workloads, on the rehearsal's cluster.

Workloads are left out because the engine would wait for each of their pods, and report nothing about the
others meanwhile. Own hosts and existing clusters become an existing cluster with the rehearsal's kubeconfig;
their nodes are simulated (`lab.rehearse.nodes`), and scraped more often. What a cluster brings by itself,
an operator or node feature discovery, is simulated by the stack's own. Everything else is as declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.errors import InputError
from infra import strict_yaml
from infra.config import KEY, load
from infra.model.environment import Environment

INTERVAL = "5s"
"""Replaces ``monitoring.interval`` in a rehearsal, so that the newest node is scraped in time."""
SELECTED = "rehearsal.gpuform.io/pool"
"""Label that selects the simulated nodes of own hosts, instead of the hosts' names."""
PLAIN = "m6i.4xlarge"
"""Machine for pools of hosts without a GPU: an existing cluster requires one. It is not created."""
_OF_HOSTS = ("hosts", "driver")

Declared = dict[str, Any]


def read(file: Path) -> Declared:
    """The environment from the stack file; checked, except for its workloads, which may be replaced.

    Raises InputError for bad content.
    """
    try:
        load(file)
    except InputError as error:
        if not error.path.startswith("workloads"):
            raise
    environment: Declared = strict_yaml.read(file)["config"][KEY]
    return environment


def derive(declared: Mapping[str, Any], env: Environment, kubeconfig: Path) -> Declared:
    """The environment for the rehearsal's engine; ``env`` is the declared one, parsed."""
    environment = deepcopy(dict(declared))
    for key in ("workloads", "state", "existing"):
        environment.pop(key, None)
    if env.monitoring:
        environment["monitoring"] = {**(environment.get("monitoring") or {}), "interval": INTERVAL}
        environment["monitoring"].pop("prometheus", None)
    operator = {key: value for key, value in (environment.get("gpu_operator") or {}).items() if key != "nfd"}
    if env.gpu_operator.mode == "existing":
        operator |= {"mode": "operator", "driver": "host", "toolkit": "host"}
        operator.pop("mig_strategy", None)
    if operator or "gpu_operator" in environment:
        environment["gpu_operator"] = operator
    if env.cluster.created:
        return environment
    environment["cluster"] = {"kind": "existing", "kubeconfig": str(kubeconfig)}
    if any(pool.hosts for pool in env.pools):
        # As on own hosts: Ansible has installed both, so the operator brings neither.
        if env.gpu_operator.mode == "operator":
            operator |= {"driver": "host", "toolkit": "host"}
        operator |= {"cdi": env.cdi} | ({"runtime_class": env.runtime_class} if env.runtime_class else {})
        environment["gpu_operator"] = operator
        environment["pools"] = [_pool_of_hosts(pool) for pool in environment["pools"]]
    return environment


def _pool_of_hosts(pool: Declared) -> Declared:
    values = {key: value for key, value in pool.items() if key not in _OF_HOSTS}
    if not values.get("gpu"):
        values["machine"] = PLAIN
    return {**values, "selector": {SELECTED: pool["name"]}}


def write(root: Path, folder: Path, stack: str, environment: Mapping[str, Any]) -> Path:
    """A checkout in ``folder``: links to everything in ``root``, and one stack file of its own.

    The engine copies the stack file from the root that it is given, and finds the program there.
    """
    folder.mkdir(parents=True)
    for entry in root.iterdir():
        if not entry.name.startswith((".git", ".gpuform")) and entry.name != f"Pulumi.{stack}.yaml":
            (folder / entry.name).symlink_to(entry.resolve())
    content = {"config": {KEY: dict(environment)}}
    file = folder / f"Pulumi.{stack}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return folder
