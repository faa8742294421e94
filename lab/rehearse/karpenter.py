"""Karpenter's AWS controller, unmodified, as a process beside the embedded control plane, not in a pod.

Real: the program and its decisions. Simulated: AWS, at the endpoint that the controller is given. It has
administrator permissions, not those of its chart, since the chart's stand-in holds only the values. It is one
process, where the chart may run several, of which one leads.
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

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine.places import Tools
from infra.model.amounts import cpu_millis, memory_bytes
from lab.rehearse.children import Children
from lab.rehearse.following import Following
from lab.simulator.api import Api

CONFIG_MAP = "karpenter-values"
"""ConfigMap that stands in for the chart: the release's values, as JSON under the key ``values``."""
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
"""The chart's ``settings`` -> environment variables of its Deployment; without feature gates."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Release:
    """One release in the cluster: its values, and the namespace it is in."""

    namespace: str
    values: str


class Karpenter:
    """The current state of the controller; may be read from any thread."""

    def __init__(self, following: Following[Release], children: Children) -> None:
        self._following, self._children = following, children

    @property
    def running(self) -> bool:
        """Whether it runs now; it runs while its release exists."""
        return self._following.running

    @property
    def rss_bytes(self) -> int:
        """Resident bytes now; 0 while it does not run."""
        return sum(process.rss_bytes for process in self._children.running())

    @property
    def ended(self) -> int:
        """How often it has exited by itself since the release last changed; the log says why."""
        return self._following.ended

    @property
    def trouble(self) -> str:
        """Why it does not run, in one line; empty while it runs or has no release."""
        return self._following.trouble

    @property
    def log(self) -> Path:
        """Its log, in JSON lines."""
        return self._following.log


@contextmanager
def karpenter(paths: Paths, tools: Tools, aws: Mapping[str, str], log: Path) -> Iterator[Karpenter]:
    """Run Karpenter while its release and its kinds are in the cluster; restart it when the release changes.

    ``aws`` are the variables with AWS's endpoint and the credentials; nothing else of this process's
    environment is passed on. Processes left by an earlier rehearsal of the same ``paths`` are ended first.
    Raises what ``tools`` raises if the controller cannot be had.
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
        # Any free ports, which stay closed: see lab/rehearse/born.py.
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


async def installed(api: Api) -> Release | None:
    """The release in the cluster; None until Karpenter's kinds are served."""
    query = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}
    async for items, _ in api.pages("/api/v1/configmaps", query):
        if items:
            for path in ("karpenter.sh/v1/nodepools", "karpenter.k8s.aws/v1/ec2nodeclasses"):
                if not await served(api, f"/apis/{path}"):
                    return None
            return Release(items[0]["metadata"]["namespace"], items[0]["data"]["values"])
    return None


async def served(api: Api, path: str) -> bool:
    try:
        async for _ in api.pages(path, {}):
            pass
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.NOT_FOUND:
            return False
        raise
    return True


def linked(link: Path, binary: Path) -> Path:
    """Create or replace the link, which gives the process a recognisable name; returns it."""
    link.unlink(missing_ok=True)
    link.symlink_to(binary)
    return link
