"""Karpenter's AWS controller, unmodified, as a process beside the embedded control plane, not in a pod.

Real: the program and its decisions. Simulated: AWS, at the endpoint that the controller is given. It has
administrator permissions, not those of its chart, since the chart's stand-in holds only the values. It is one
process, where the chart may run several, of which one leads.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine.files import Tools
from infra.model.base.quantities import cpu_millis, memory_bytes
from lab.rehearse.cluster import NODE_POOLS, Cluster
from lab.rehearse.supervisor import Children, Supervisor

CONFIG_MAP = "karpenter-values"
"""ConfigMap that stands in for the chart: the release's values, as JSON under the key ``values``."""
TOOL = "karpenter"
NODE_CLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"

_SETTINGS = (
    *("amiRefreshInterval", "batchIdleDuration", "batchMaxDuration", "clusterCABundle", "clusterEndpoint"),
    *("clusterName", "disableClusterStateObservability", "disableDryRun", "eksControlPlane"),
    *("enableZonalShift", "ignoreDRARequests", "interruptionQueue", "isolatedVPC", "minValuesPolicy"),
    *("preferencePolicy", "reservedENIs", "subnetRefreshInterval", "vmMemoryOverheadPercent"),
)
"""The chart's ``settings``, without feature gates. Its Deployment has a variable for each: RESERVED_ENIS."""
_WORDS = re.compile(r"[A-Z]+s$|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

Json = dict[str, Any]


@dataclass(frozen=True)
class Release:
    """One release in the cluster: its values, and the namespace it is in."""

    namespace: str
    values: str


def karpenter_supervisor(
    paths: Paths, tools: Tools, aws: Mapping[str, str], log: Path
) -> Supervisor[Release]:
    """Runs Karpenter while its release and its kinds are in the cluster; ``log`` has JSON lines.

    ``aws`` are the variables with AWS's endpoint and the credentials; nothing else of this process's
    environment is passed on. Raises what ``tools`` raises if the controller cannot be had.
    """
    children = Children(paths.state / "controllers" / TOOL)
    program = children.folder / TOOL  # a link, which gives the process a recognisable name
    program.unlink(missing_ok=True)
    program.symlink_to(tools.path(TOOL))

    def start(release: Release) -> subprocess.Popen[bytes]:
        env = {**environment(release), **aws, "KUBECONFIG": str(paths.kubeconfig)}
        return children.start([str(program)], env, log)

    return Supervisor(paths.kubeconfig, find_release, start, children, log)


def environment(release: Release) -> dict[str, str]:
    """The environment variables that the chart's Deployment would make of these values.

    Raises Failure for an unknown setting, which would otherwise be dropped silently.
    """
    values = json.loads(release.values)
    settings = dict(values.get("settings") or {})
    gates = settings.pop("featureGates", None) or {}
    unknown = sorted(set(settings) - set(_SETTINGS))
    if unknown:
        raise Failure(
            f"release karpenter: settings.{unknown[0]}",
            "is not supported in a rehearsal",
            "leave it out, or add it to lab/rehearse/karpenter.py",
        )
    variables = {
        "_".join(_WORDS.findall(name)).upper(): _text(value)
        for name, value in settings.items()
        if value not in ("", None)
    }
    if gates:
        # The chart's names begin with a small letter, the controller's with a capital.
        variables["FEATURE_GATES"] = ",".join(
            f"{name[0].upper()}{name[1:]}={_text(on)}" for name, on in sorted(gates.items())
        )
    return {
        **variables,
        **_resources((values.get("controller") or {}).get("resources") or {}),
        "LOG_LEVEL": values.get("logLevel") or "info",
        "SYSTEM_NAMESPACE": release.namespace,
        "AWS_CONFIG_FILE": os.devnull,  # the user's own would be found even without HOME
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "DISABLE_LEADER_ELECTION": "true",
        # Any free ports, which stay closed: see lab/rehearse/no_open_ports.py.
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": "0",
    }


def _resources(resources: Json) -> dict[str, str]:
    """From these the controller derives its concurrency, and when it frees memory."""
    cpu, memory = (resources.get("requests") or {}).get("cpu"), (resources.get("limits") or {}).get("memory")
    return {
        **({"CPU_REQUESTS": str(cpu_millis(str(cpu)))} if cpu else {}),
        **({"MEMORY_LIMIT": str(memory_bytes(str(memory)))} if memory else {}),
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def find_release(cluster: Cluster) -> Release | None:
    """The release in the cluster; None until Karpenter's kinds are served."""
    for config_map in cluster.items("/api/v1/configmaps", CONFIG_MAP):
        if cluster.serves(NODE_POOLS) and cluster.serves(NODE_CLASSES):
            return Release(config_map["metadata"]["namespace"], config_map["data"]["values"])
    return None
