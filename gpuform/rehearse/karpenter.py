"""Karpenter's own controller for AWS, unmodified, beside the embedded control plane and not in a pod of it.

Real: the program and what it decides. Played: AWS, which it reaches where it is told to. It has the
administrator's rights, not those that its chart gives it, for the chart's stand-in holds values alone; and it
is one process, where the chart may have several of which one works.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gpuform.embedded.kwokctl import Tools
from gpuform.errors import Failure
from gpuform.paths import Paths
from gpuform.rehearse.children import Children
from gpuform.rehearse.following import Following
from gpuform.simulator.api import Api
from infra.model.workload import cpu_millis, memory_bytes

CONFIG_MAP = "karpenter-values"
"""What the chart's stand-in leaves in the cluster: the release's values, as JSON under the key ``values``."""
TOOL = "karpenter"

_SETTINGS: Mapping[str, str] = {
    "amiRefreshInterval": "AMI_REFRESH_INTERVAL",
    "batchIdleDuration": "BATCH_IDLE_DURATION",
    "batchMaxDuration": "BATCH_MAX_DURATION",
    "clusterCABundle": "CLUSTER_CA_BUNDLE",
    "clusterEndpoint": "CLUSTER_ENDPOINT",
    "clusterName": "CLUSTER_NAME",
    "disableClusterStateObservability": "DISABLE_CLUSTER_STATE_OBSERVABILITY",
    "disableDryRun": "DISABLE_DRY_RUN",
    "eksControlPlane": "EKS_CONTROL_PLANE",
    "enableZonalShift": "ENABLE_ZONAL_SHIFT",
    "ignoreDRARequests": "IGNORE_DRA_REQUESTS",
    "interruptionQueue": "INTERRUPTION_QUEUE",
    "isolatedVPC": "ISOLATED_VPC",
    "minValuesPolicy": "MIN_VALUES_POLICY",
    "preferencePolicy": "PREFERENCE_POLICY",
    "reservedENIs": "RESERVED_ENIS",
    "subnetRefreshInterval": "SUBNET_REFRESH_INTERVAL",
    "vmMemoryOverheadPercent": "VM_MEMORY_OVERHEAD_PERCENT",
}
"""The chart's ``settings`` and the variables that its Deployment makes of them; feature gates apart."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Release:
    """One release in the cluster: its values, and the namespace it is in."""

    namespace: str
    values: str


class Karpenter:
    """The controller as it is now; asked from any thread."""

    def __init__(self, following: Following[Release], children: Children) -> None:
        """Of one context of :func:`karpenter`."""
        self._following, self._children = following, children

    @property
    def running(self) -> bool:
        """Whether it runs now: after its release has been read, and before that is gone."""
        return self._following.running

    @property
    def rss_bytes(self) -> int:
        """Resident bytes now; 0 while it does not run."""
        return sum(process.rss_bytes for process in self._children.running())

    @property
    def ended(self) -> int:
        """How often it has ended by itself since the release changed last; the log says why."""
        return self._following.ended

    @property
    def trouble(self) -> str:
        """What keeps it from running, in a line; empty while it runs, or is not wanted."""
        return self._following.trouble

    @property
    def log(self) -> Path:
        """What it says; JSON, a line each."""
        return self._following.log


@contextmanager
def karpenter(paths: Paths, tools: Tools, aws: Mapping[str, str], log: Path) -> Iterator[Karpenter]:
    """Karpenter while its release is in the cluster and its kinds are known there; anew when that changes.

    ``aws`` are the variables that say where AWS is and who asks; nothing else of this process's environment
    is passed on. What an earlier rehearsal of the same ``paths`` has left running is ended first. Raises what
    ``tools`` raises where the controller cannot be had.
    """
    binary = tools.path(TOOL)
    children = Children(paths.state / "controllers" / TOOL)
    children.end_left()
    program = linked(children.folder / TOOL, binary)

    def start(release: Release) -> subprocess.Popen[bytes]:
        env = {**environment(release), **aws, "KUBECONFIG": str(paths.kubeconfig)}
        return children.start([str(program)], env, log)

    following = Following(paths.kubeconfig, installed, start, log)
    try:
        with following:
            yield Karpenter(following, children)
    finally:
        children.end_left()


def environment(release: Release) -> dict[str, str]:
    """The variables that the chart's Deployment would give its pod, of these values.

    Raises Failure for a setting that this does not know, for it would be left out in silence.
    """
    values = json.loads(release.values)
    settings = dict(values.get("settings") or {})
    gates = settings.pop("featureGates", None) or {}
    unknown = sorted(set(settings) - set(_SETTINGS))
    if unknown:
        raise Failure(
            f"release karpenter: settings.{unknown[0]}",
            "is none that a rehearsal can pass on",
            "leave it out, or teach it to gpuform/rehearse/karpenter.py",
        )
    found = {_SETTINGS[name]: _text(value) for name, value in settings.items() if value not in ("", None)}
    if gates:
        # The chart's names begin with a small letter, the controller's with a capital.
        found["FEATURE_GATES"] = ",".join(
            f"{name[0].upper()}{name[1:]}={_text(on)}" for name, on in sorted(gates.items())
        )
    return {
        **found,
        **_resources((values.get("controller") or {}).get("resources") or {}),
        "LOG_LEVEL": values.get("logLevel") or "info",
        "SYSTEM_NAMESPACE": release.namespace,
        "AWS_CONFIG_FILE": os.devnull,  # the user's own would be found even without HOME
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "DISABLE_LEADER_ELECTION": "true",
        # Any free ones, and closed: see gpuform/rehearse/born.py.
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": "0",
    }


def _resources(resources: Json) -> dict[str, str]:
    """By these the controller decides how much it does at a time, and when it frees memory."""
    cpu, memory = (resources.get("requests") or {}).get("cpu"), (resources.get("limits") or {}).get("memory")
    return {
        **({"CPU_REQUESTS": str(cpu_millis(str(cpu)))} if cpu else {}),
        **({"MEMORY_LIMIT": str(memory_bytes(str(memory)))} if memory else {}),
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def installed(api: Api) -> Release | None:
    """The release in the cluster, once Karpenter's kinds are there."""
    query = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}
    async for items, _ in api.pages("/api/v1/configmaps", query):
        if items:
            for path in ("karpenter.sh/v1/nodepools", "karpenter.k8s.aws/v1/ec2nodeclasses"):
                if not await served(api, f"/apis/{path}"):
                    return None
            return Release(items[0]["metadata"]["namespace"], items[0]["data"]["values"])
    return None


async def served(api: Api, path: str) -> bool:
    """Whether the API server knows the kind that is listed at this path."""
    try:
        async for _ in api.pages(path, {}):
            pass
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.NOT_FOUND:
            return False
        raise
    return True


def linked(link: Path, binary: Path) -> Path:
    """The link, which shows what it is in the list of processes; made or turned."""
    link.unlink(missing_ok=True)
    link.symlink_to(binary)
    return link
