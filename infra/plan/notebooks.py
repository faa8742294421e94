"""Notebooks: a StatefulSet of one pod and a Service each, and the culler, which scales idle ones to 0.

Not Kubeflow's Notebook: its controller is no program of its own that could be pinned and tested here. The
StatefulSet has no ``replicas``: the culler and users scale it, and no update changes that.

An editor itself decides that it is idle, and ends with exit code 0; it ends in the same way if its user shuts
it down. Sources: jupyter_server, serverapp.py (``shutdown_no_activity``), services/kernels/kernelmanager.py
(``cull_kernel_if_idle``: a busy kernel is never idle); jupyterlab, issue 9379 (a visible page polls, which is
use); jupyter_server_terminals, issue 112 (terminals are no use); code-server, src/node/main.ts and heart.ts
(an open connection is use). The kubelet then starts it again, so the culler, a small pod, reads the last exit
code of each notebook's pod. It may read these pods and scale these StatefulSets, by name, and write events in
their namespaces; it needs no password and no connection to the editors.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.model.base import labels
from infra.model.base.namespaces import CULLER
from infra.model.environment import Environment
from infra.model.workload.base import IDLE_SECONDS, SETTINGS
from infra.model.workload.workload import NotebookWorkload
from infra.plan.manifest import Manifest, cluster_ip_service, manifest, rbac_rule, volume_claim
from infra.plan.program import Program

NAME = "notebook-culler"
FILES = ("culler.py", "cluster.py")
CULLED = "notebooks.json"
_PORT = "editor"
_GROUP = 1000  # owns the files of a new volume, which only root could write to
_COMMANDS = {
    # Not its entrypoint, which runs a setuid program (fixuid); without new privileges that fails.
    "vscode": ["dumb-init", "/usr/bin/code-server", "--bind-addr", "0.0.0.0:8080", "."]
}


def notebooks(env: Environment) -> list[NotebookWorkload]:
    """The environment's notebooks, in the order declared."""
    return [work for work in env.workloads if isinstance(work, NotebookWorkload)]


def culled_notebooks(env: Environment) -> list[NotebookWorkload]:
    """Notebooks that are stopped when idle."""
    return [work for work in notebooks(env) if work.cull]


def service(work: NotebookWorkload, metadata: Manifest) -> Manifest:
    """The Service for `kubectl port-forward`; an update does not wait for its endpoints."""
    port = {"name": _PORT, "port": 80, "targetPort": _PORT}
    return cluster_ip_service(metadata, work.name, port, awaited=False)


def stateful_set(work: NotebookWorkload, metadata: Manifest, template: Manifest, pod: Manifest) -> Manifest:
    """``template`` and ``pod``: metadata and spec of a workload's pod, which gets the editor's settings."""
    set_labels = {**metadata["labels"], labels.USER: work.user}
    pod_labels = {key: value for key, value in set_labels.items() if key != labels.QUEUE}
    spec: Manifest = {
        "serviceName": work.name,
        "selector": {"matchLabels": {labels.APP_NAME: work.name}},
        "template": {"metadata": {**template, "labels": pod_labels}, "spec": _pod(work, pod)},
    }
    if work.home:
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        claim = volume_claim(work.home.size, work.home.storage_class)
        spec["volumeClaimTemplates"] = [
            {"metadata": {"name": volume(work), "labels": pod_labels}, "spec": claim}
        ]
    annotations = {labels.WAIT_FOR: "jsonpath={.metadata.uid}"}  # it may be stopped, or wait in a queue
    return manifest(
        "StatefulSet", {**metadata, "labels": set_labels, "annotations": annotations}, "apps/v1", spec=spec
    )


def _pod(work: NotebookWorkload, pod: Manifest) -> Manifest:
    (container,) = pod["containers"]
    port = {"name": _PORT, "containerPort": work.editor_facts.port, "protocol": "TCP"}
    container = {**container, "ports": [port]}
    if work.editor in _COMMANDS:
        container["command"] = _COMMANDS[work.editor]
    if variables := [*container.get("env", ()), *_settings(work)]:
        container["env"] = sorted(variables, key=lambda variable: str(variable["name"]))
    if not work.home:
        return {**pod, "containers": [container]}
    mount = {"name": volume(work), "mountPath": work.editor_facts.home}
    container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    group = {"fsGroup": _GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    return {**pod, "containers": [container], "securityContext": {**pod["securityContext"], **group}}


def volume(work: NotebookWorkload) -> str:
    """First part of its claim's name; with the user, so that no user gets the home of another."""
    return f"home-{work.user}"


def _settings(work: NotebookWorkload) -> Iterable[Manifest]:
    if work.secret:
        key = {"secretKeyRef": {"name": work.secret, "key": "password"}}
        yield {"name": work.editor_facts.password, "valueFrom": key}
    if not work.cull:
        return
    idle = work.cull.idle_minutes * 60
    if work.editor == "vscode":
        yield {"name": IDLE_SECONDS, "value": str(idle)}
        return
    # A kernel keeps the server alive, so idle ones end, also if a hidden page of a browser is left open.
    idle_options = {
        "ServerApp.shutdown_no_activity_timeout": idle,
        "MappingKernelManager.cull_idle_timeout": idle,
        "MappingKernelManager.cull_interval": 60,
        "MappingKernelManager.cull_connected": True,
        "TerminalManager.cull_inactive_timeout": idle,
        "TerminalManager.cull_interval": 60,
    }
    yield {"name": SETTINGS, "value": " ".join(f"--{key}={value}" for key, value in idle_options.items())}


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """The storage class of the embedded cluster and the culler, if notebooks need them."""
    classes = storage_classes(home_storage_classes(env)) if env.cluster.kind == "embedded" else ()
    return (*classes, *culler(env))


def home_storage_classes(env: Environment) -> set[str | None]:
    """Storage classes of the homes; None is the cluster's default."""
    return {work.home.storage_class for work in notebooks(env) if work.home}


def storage_classes(names: Iterable[str | None]) -> tuple[Manifest, ...]:
    """Classes of simulated volumes (lab/simulator/volumes.py); None is the default class."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return tuple(
        manifest(
            "StorageClass",
            {"name": name or "standard", **({} if name else {"annotations": default})},
            "storage.k8s.io/v1",
            provisioner="simulator.gpuform.io/volumes",
            volumeBindingMode="WaitForFirstConsumer",
        )
        for name in sorted(names, key=str)
    )


def culler(env: Environment) -> tuple[Manifest, ...]:
    """The culler's objects, in creation order; empty if no notebook is culled."""
    culled = culled_notebooks(env)
    if not culled:
        return ()
    program = Program(env, NAME, CULLER)
    files, pod = program.script_pod(
        FILES, (CULLED, [[work.namespace, work.name] for work in culled]), "/culler"
    )
    roles: list[Manifest] = []
    for space in sorted({work.namespace for work in culled}):
        names = sorted(work.name for work in culled if work.namespace == space)
        rules = [
            rbac_rule("", "pods", "get", resourceNames=[f"{name}-0" for name in names]),
            rbac_rule("apps", "statefulsets/scale", "patch", resourceNames=names),
            rbac_rule("", "events", "create"),
        ]
        roles += program.role_and_binding(f"gpuform-{NAME}", rules, space)
    return (program.account(), *roles, files, program.deployment(1, pod))
