"""The platform for a GitOps controller: plain manifests, and one object of the controller per Helm release.

Argo CD applies one folder in the order of its sync waves. Flux has no waves: a Kustomization per stage waits
for those of the wave before. What creates nodes, or changes them one at a time, stays with the engine
(`remaining`); so do Karpenter and the EFA plugin of an EKS cluster, which belong to its IAM roles and nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.workload.workload import DeploymentWorkload
from infra.plan import sharing
from infra.plan.charts import ChartRelease
from infra.plan.manifest import Manifest, manifest
from infra.plan.parts import parts
from infra.plan.render import to_documents

Controller = Literal["argocd", "flux"]

WAVES = {
    "namespaces": 0,
    **dict.fromkeys(("sharing", "runtime-class", "monitoring"), 10),
    **dict.fromkeys(("monitoring-rules", "dashboards", "pool-keeper"), 20),
    **dict.fromkeys(("gpu-operator", "device-plugin"), 30),
    **dict.fromkeys(("dcgm-exporter", "readiness-gate", "network-operator", "dra-driver", "scheduler"), 40),
    **dict.fromkeys(("health", "queues", "scaling", "kserve"), 40),
    **dict.fromkeys(("room", "admission", "notebooks"), 50),
    "workloads": 60,
}
"""By part. Objects of a part with a release come 5 later: its CRDs must exist."""
_OF_NODES = ("nodes", "karpenter", "efa-device-plugin")
_RECREATED = ("Job", "Pod", "PriorityClass", "ResourceClaimTemplate", "RuntimeClass", "StorageClass")
"""Kinds with fields that the API server never changes; `up` replaces such an object."""
_OPTIONS = "argocd.argoproj.io/sync-options"
_WAVE = "argocd.argoproj.io/sync-wave"
_FLUX = "flux-system"
"""Namespace and GitRepository of `flux bootstrap`."""
_INTERVAL = "10m"


@dataclass(frozen=True)
class Stage:
    """What a controller applies in one step."""

    name: str
    wave: int
    releases: tuple[ChartRelease, ...] = ()
    manifests: tuple[Manifest, ...] = ()


def check(env: Environment) -> None:
    """Raise InputError if no controller can apply the stack's platform."""
    if env.is_simulated:
        fact = f"the platform of {env.name} is applied on this machine, with stand-ins of NVIDIA's programs"
        raise InputError("--gitops", fact, "name a stack with a cluster of its own")
    if not env.has_cluster:
        fact = f"the hosts of {env.name} have joined no cluster"
        raise InputError("--gitops", fact, "give cluster.kubeconfig once they have")


def stages(env: Environment) -> list[Stage]:
    """In the order of their waves. Raises InputError as `check`."""
    check(env)
    return sorted(_stages(env), key=lambda stage: stage.wave)


def _stages(env: Environment) -> Iterator[Stage]:
    for part in parts(env).values():
        if part.name in _OF_NODES:
            continue
        wave, objects = WAVES[part.name], tuple(map(_without_pulumi, part.manifests))
        if part.releases:
            yield Stage(part.name, wave, part.releases)
        if objects:
            later = Stage(f"{part.name}-objects", wave + 5) if part.releases else Stage(part.name, wave)
            yield replace(later, manifests=objects)


def _without_pulumi(item: Manifest) -> Manifest:
    """Without the annotations that only the engine's provider reads."""
    found = item["metadata"].get("annotations", {})
    kept = {key: value for key, value in found.items() if not key.startswith("pulumi.com/")}
    metadata = {key: value for key, value in item["metadata"].items() if key != "annotations"}
    return {**item, "metadata": {**metadata, "annotations": kept} if kept else metadata}


def files(env: Environment, controller: Controller, folder: str) -> dict[str, str]:
    """Text by file name; ``folder`` is their folder in its repository, which Flux needs."""
    return _argocd_files(env) if controller == "argocd" else _flux_files(env, folder)


def remaining(env: Environment) -> list[str]:
    """What `gpuform up --only nodes,layouts` does beside the controller."""
    karpenter = env.has_karpenter
    cut = [pool.name for pool in env.pools if sharing.live_layout(env, pool)]
    return [
        *(["the cluster itself, and its guards against losses"] if env.cluster.created else []),
        *(["drivers and container toolkits of the hosts"] if env.cluster.kind == "hosts" else []),
        *(["Karpenter, its NodePools and EC2NodeClasses"] if karpenter else []),
        f"labels and taints of the nodes of {', '.join(pool.name for pool in env.pools)}",
        *([f"MIG layouts of {', '.join(cut)}: drained, cut and checked node by node"] if cut else []),
    ]


def lost(env: Environment) -> Iterator[str]:
    """What only a whole `gpuform up` does."""
    coloured = [
        work.name for work in env.workloads if isinstance(work, DeploymentWorkload) and work.blue_green
    ]
    if coloured:
        yield f"blue/green updates of {', '.join(coloured)}: a controller makes plain rolling updates"


def _annotated(item: Manifest, *found: tuple[str, Any]) -> Manifest:
    """With the annotations that have a value."""
    metadata = item["metadata"]
    more = {key: str(value) for key, value in found if value not in (None, "")}
    return {**item, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **more}}}


def _argocd_files(env: Environment) -> dict[str, str]:
    return {
        f"{stage.name}.yaml": to_documents(
            [
                *(_annotated(_application(env, release), (_WAVE, stage.wave + index))
                  for index, release in enumerate(stage.releases)),
                *(_annotated(item, (_WAVE, stage.wave), (_OPTIONS, _sync_options(item)))
                  for item in stage.manifests),
            ]
        )
        for stage in stages(env)
    }  # fmt: skip


def _sync_options(item: Manifest) -> str:
    """Argo CD's options for one object [argo-cd.readthedocs.io, user-guide/sync-options].

    ``Force`` deletes and creates anew only what the API server refuses to change, as kubectl does
    [k8s.io/kubectl, pkg/cmd/apply/patcher.go], and not together with server-side apply.
    """
    group = item["apiVersion"].rpartition("/")[0]
    if item["kind"] == "Namespace":
        return "Prune=confirm,Delete=confirm"
    if item["kind"] in _RECREATED:
        return "Force=true,ServerSideApply=false"
    return "SkipDryRunOnMissingResource=true" if "." in group and not group.endswith(".k8s.io") else ""


def _application(env: Environment, release: ChartRelease) -> Manifest:
    """An Application of the chart. An address without a scheme is an OCI registry to Argo CD."""
    repository, chart = _source(release)
    helm: Manifest = {"releaseName": release.name, "valuesObject": release.values}
    if release.skip_crds:
        helm["skipCrds"] = True
    source = {
        "repoURL": repository.removeprefix("oci://"),
        "chart": chart,
        "targetRevision": release.version,
        "helm": helm,
    }
    spec = {
        "project": "default",
        "source": source,
        "destination": {"server": "https://kubernetes.default.svc", "namespace": release.namespace},
        # The CRDs of Prometheus and KServe are too large for the annotation of a client-side apply.
        "syncPolicy": {
            "automated": {"prune": True, "selfHeal": True},
            "retry": {"limit": 5},
            "syncOptions": ["ServerSideApply=true"],
        },
    }
    metadata = {"name": f"{env.name}-{release.name}", "namespace": "argocd"}
    return manifest("Application", metadata, "argoproj.io/v1alpha1", spec=spec)


def _source(release: ChartRelease) -> tuple[str, str]:
    """The address of the chart's repository, and the chart's name in it."""
    if release.repository:
        return release.repository, release.chart
    repository, _, chart = release.chart.rpartition("/")
    return repository, chart


def _flux_files(env: Environment, folder: str) -> dict[str, str]:
    planned = stages(env)
    waves = [list(group) for _, group in groupby(planned, lambda stage: stage.wave)]
    sources = {_source(release)[0] for stage in planned for release in stage.releases}
    before: Sequence[Stage] = ()
    kustomizations = []
    for wave in waves:
        kustomizations += [_kustomization(env, stage, before, folder) for stage in wave]
        before = wave
    result = {f"{stage.name}/{stage.name}.yaml": to_documents(_flux_objects(env, stage)) for stage in planned}
    # Without it, a Kustomization of the folder above would apply the stages' folders as well, all at once.
    kustomize = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["flux.yaml"],
    }
    return {
        **result,
        "flux.yaml": to_documents(
            [*(_repository(env, source) for source in sorted(sources)), *kustomizations]
        ),
        "kustomization.yaml": to_documents([kustomize]),
    }


def _flux_objects(env: Environment, stage: Stage) -> Iterator[Manifest]:
    previous = ""
    for release in stage.releases:
        yield _helm_release(env, release, previous)
        previous = f"{env.name}-{release.name}"
    for item in stage.manifests:
        is_namespace, is_recreated = item["kind"] == "Namespace", item["kind"] in _RECREATED
        yield _annotated(
            item,
            ("kustomize.toolkit.fluxcd.io/prune", "disabled" if is_namespace else ""),
            ("kustomize.toolkit.fluxcd.io/force", "enabled" if is_recreated else ""),
        )


def _repository(env: Environment, source: str) -> Manifest:
    more = {"type": "oci"} if source.startswith("oci://") else {}
    return _of_flux("HelmRepository", "source", "v1", _repository_name(env, source), url=source, **more)


def _repository_name(env: Environment, source: str) -> str:
    """The environment's name, and the address without its scheme, as a name of an object."""
    return f"{env.name}-{re.sub('[^a-z0-9]+', '-', source.partition('://')[2].lower()).strip('-')}"


def _kustomization(env: Environment, stage: Stage, before: Sequence[Stage], folder: str) -> Manifest:
    spec: Manifest = {
        "path": f"./{folder}/{stage.name}" if folder else f"./{stage.name}",
        "prune": True,
        # No stage comes after the workloads, so a pod without a free GPU delays nothing.
        "wait": stage.name != "workloads",
        "timeout": "30m",
        "sourceRef": {"kind": "GitRepository", "name": _FLUX},
    }
    if before:
        spec["dependsOn"] = [{"name": f"{env.name}-{earlier.name}"} for earlier in before]
    return _of_flux("Kustomization", "kustomize", "v1", f"{env.name}-{stage.name}", **spec)


def _helm_release(env: Environment, release: ChartRelease, previous: str) -> Manifest:
    """A HelmRelease in Flux's namespace, of a release in its own."""
    repository, chart = _source(release)
    source = {"kind": "HelmRepository", "name": _repository_name(env, repository)}
    step = {"crds": "Skip" if release.skip_crds else "CreateReplace", "remediation": {"retries": 3}}
    more = {"dependsOn": [{"name": previous}]} if previous else {}
    return _of_flux(
        "HelmRelease",
        "helm",
        "v2",
        f"{env.name}-{release.name}",
        releaseName=release.name,
        targetNamespace=release.namespace,
        storageNamespace=release.namespace,
        timeout="20m",
        chart={"spec": {"chart": chart, "version": release.version, "sourceRef": source}},
        install=step,
        upgrade=step,
        values=release.values,
        **more,
    )


def _of_flux(kind: str, group: str, version: str, name: str, **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": _FLUX}
    api = f"{group}.toolkit.fluxcd.io/{version}"
    return manifest(kind, metadata, api, spec={"interval": _INTERVAL, **spec})
