"""Where a host is queried: over ssh on the host itself, or with kubectl in its driver and toolkit pods.

ssh is called as Ansible calls it (same address, port, user, key and arguments, the user's own ssh settings
apply, the host's key must be known), so hosts that playbooks reach are reached here.
Nothing is written on a host.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import testinfra
from testinfra.host import Host

from gpuform.hosts.checks.expected import Expected

NAMESPACE = "gpu-operator"
DRIVER = ("nvidia-driver-daemonset", "nvidia-driver-ctr")
TOOLKIT = ("nvidia-container-toolkit-daemonset", "nvidia-container-toolkit-ctr")
TIMEOUT_S = 60
"""nvidia-smi on a GPU that has fallen off the bus may not return; a healthy 8-GPU host without persistence
mode needs under 30 s for its first answer.
"""


@dataclass(frozen=True)
class Connection:
    """How one host is queried; ``problem`` says why that is impossible, else it is empty."""

    machine: Host | None
    driver: Host | None
    toolkit: Host | None
    problem: str = ""
    by_ssh: bool = True


def connect(expected: Expected, backend: str, control_path: str) -> Connection:
    """Where that host is queried; runs one command, so that an unreachable host is known at once."""
    if backend == "kubectl":
        return _pods(expected)
    host = _machine(expected.connection, expected.host, control_path)
    try:
        answer = host.run("true")
    except (RuntimeError, OSError) as error:
        return Connection(None, None, None, _reason(error))
    if answer.rc:
        return Connection(None, None, None, _last_line(answer.stderr) or f"`true` ends with {answer.rc}")
    return Connection(host, host, host)


def run_with_timeout(host: Host, command: str, *args: str) -> Any:
    """Run a command that may hang on faulty hardware; ended after ``TIMEOUT_S`` it exits with 124."""
    return host.run(f"timeout {TIMEOUT_S} {command}", *args)


def _machine(connection: Mapping[str, Any], name: str, control_path: str) -> Host:
    become = bool(connection.get("ansible_become"))
    if connection.get("ansible_connection") == "local":
        return testinfra.get_host("local://", sudo=become)
    address = str(connection.get("ansible_host") or name)
    port = connection.get("ansible_port") or 22
    user = connection.get("ansible_user")
    key = connection.get("ansible_ssh_private_key_file")
    host_part = f"[{address}]" if ":" in address else address
    options = [
        # For the shell that testinfra starts; Ansible, too, splits them into words.
        shlex.join(shlex.split(str(connection.get("ansible_ssh_common_args") or ""))),
        # A warning on stderr would be taken for the remote command's own.
        "-o LogLevel=ERROR -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3",
        f"-o ControlPath={shlex.quote(control_path)}",
    ]
    return testinfra.get_host(
        f"ssh://{f'{user}@' if user else ''}{host_part}:{port}",
        ssh_extra_args=" ".join(filter(None, options)),
        ssh_identity_file=str(Path(key).expanduser()) if key else None,
        controlpersist=60,
        sudo=become,
    )


def _pods(expected: Expected) -> Connection:
    if shlex.quote(expected.context) not in (expected.context, "''"):
        problem = f"context {expected.context!r} has characters that testinfra's shell would read"
        return Connection(None, None, None, problem, by_ssh=False)
    try:
        driver = _pod(expected, *DRIVER)
        toolkit = _pod(expected, *TOOLKIT)
    except LookupError as error:
        return Connection(None, None, None, str(error), by_ssh=False)
    if driver is None and toolkit is None:
        problem = f"neither {DRIVER[0]} nor {TOOLKIT[0]} has a running pod on {expected.host}"
        return Connection(None, None, None, problem, by_ssh=False)
    return Connection(None, driver, toolkit, by_ssh=False)


def _pod(expected: Expected, app: str, container: str) -> Host | None:
    pods = pods_of(expected.kubeconfig, expected.context, app)
    if expected.host not in pods:
        return None
    options: dict[str, Any] = {"namespace": NAMESPACE, "container": container}
    if (
        expected.kubeconfig
    ):  # an environment variable: testinfra quotes a path twice, which breaks one with spaces
        os.environ["KUBECONFIG"] = expected.kubeconfig
    if expected.context:
        options["context"] = expected.context
    return testinfra.get_host(f"kubectl://{pods[expected.host]}", **options)


@cache
def pods_of(kubeconfig: str, context: str, app: str) -> dict[str, str]:
    """Running pods of that daemonset, by node; LookupError with kubectl's message."""
    answer = kubectl(kubeconfig, context, "get", "pods", "-n", NAMESPACE, "-l", f"app={app}", "-o", "json")
    return {
        pod["spec"]["nodeName"]: pod["metadata"]["name"]
        for pod in answer["items"]
        if pod.get("status", {}).get("phase") == "Running"
    }


@cache
def node(kubeconfig: str, context: str, name: str) -> dict[str, Any] | None:
    """The Node with this name or ``kubernetes.io/hostname``; None for a host that has not joined."""
    for item in kubectl(kubeconfig, context, "get", "nodes", "-o", "json")["items"]:
        metadata = item["metadata"]
        if name in (metadata["name"], metadata.get("labels", {}).get("kubernetes.io/hostname")):
            return dict(item)
    return None


@cache
def kubectl(kubeconfig: str, context: str, *args: str) -> Any:
    """JSON output of kubectl, cached; LookupError with its message."""
    options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    options += [f"--context={context}"] if context else []
    try:
        result = subprocess.run(
            ["kubectl", *options, *args], capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LookupError(f"kubectl: {error}") from None
    if result.returncode:
        raise LookupError(f"kubectl: {_last_line(result.stderr)}")
    return json.loads(result.stdout)


def _reason(error: Exception) -> str:
    """ssh's message; testinfra raises it with the whole result as its argument."""
    result = error.args[0] if error.args else error
    return _last_line(getattr(result, "stderr", str(error)))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
