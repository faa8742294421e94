"""The state of each host, from a run of the playbook status.yml, beside what is declared for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.hosts.declared import Declared
from gpuform.hosts.events import HostResult, Outcome


def rows(found: Declared, outcome: Outcome, nodes: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row per requested host, as ``gpuform hosts status --json`` documents it.

    ``nodes`` is, by host, ``ready``, ``not ready`` or ``not joined``, ``-`` without a kubeconfig, ``unknown``
    if the cluster does not answer.
    """
    hostvars = found.inventory["_meta"]["hostvars"]
    return [_row(name, result, hostvars[name], nodes[name]) for name, result in outcome.hosts.items()]


def _row(name: str, result: HostResult, variables: Mapping[str, Any], node: str) -> dict[str, Any]:
    facts = result.facts
    answers = [line.rpartition(", ") for line in facts.get("gpus") or []]
    versions = sorted({version for _, _, version in answers})
    return {
        "host": name,
        "pool": variables.get("gpuform_pool") or "",
        "reached": result.ok,
        "message": result.message or _driver_message(facts, variables),
        "system": facts.get("system") or "",
        "kernel": facts.get("kernel") or "",
        "driver": ", ".join(versions),
        "gpus": [product for product, _, _ in answers],
        "toolkit": facts.get("toolkit") or "",
        "declared": {
            "driver": variables.get("nvidia_driver_version") or "",
            "toolkit": variables.get("nvidia_container_toolkit_version") or "",
        },
        "node": node,
    }


def _driver_message(facts: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    if facts.get("gpus") or not variables.get("nvidia_driver_version"):
        return ""
    return str(facts.get("driver_says") or "nvidia-smi is not installed")
