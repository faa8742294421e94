"""Argo CD and Flux, played: they apply a rendered folder in its order, with the real helm and kubectl.

Argo CD templates charts, so there is no Helm release (its documentation, faq). Both refuse an object of a
kind that the API server does not know yet. Flux reads only the folders that its Kustomizations name. Unlike
the real ones, neither waits for a step to become healthy, nor tries a refused object again.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Objects = list[dict[str, Any]]
WAVE = "argocd.argoproj.io/sync-wave"


def read(*files: Path) -> Objects:
    return [item for file in sorted(files) for item in yaml.safe_load_all(file.read_text()) if item]


def waves(folder: Path) -> list[Objects]:
    """The folder's objects as Argo CD applies them: by wave, of every file in it."""
    found: dict[int, Objects] = {}
    for item in read(*folder.glob("*.yaml")):
        found.setdefault(int(item["metadata"]["annotations"][WAVE]), []).append(item)
    return [found[wave] for wave in sorted(found)]


def stages(repository: Path, folder: str) -> list[Objects]:
    """As Flux applies them: each Kustomization of the folder's flux.yaml once those before it are there."""
    listed = read(repository / folder / "kustomization.yaml")[0]["resources"]
    declared = read(*(repository / folder / name for name in listed))
    waiting = {item["metadata"]["name"]: item["spec"] for item in declared if item["kind"] == "Kustomization"}
    sources = {item["metadata"]["name"]: item for item in declared if item["kind"] == "HelmRepository"}
    done: list[str] = []
    applied = []
    while waiting:
        ready = [
            name
            for name, spec in waiting.items()
            if {one["name"] for one in spec.get("dependsOn", ())} <= set(done)
        ]
        assert ready, f"{sorted(waiting)} wait for each other, or for what is not there"
        name = ready[0]
        objects = read(*(repository / waiting.pop(name)["path"]).glob("*.yaml"))
        for item in (one for one in objects if one["kind"] == "HelmRelease"):
            chart = item["spec"]["chart"]["spec"]
            chart["url"] = sources[chart["sourceRef"]["name"]]["spec"]["url"]
        applied.append(objects)
        done.append(name)
    return applied


@dataclass
class Controller:
    """Applies to the cluster of a kubeconfig; ``applied`` are the objects, charts' too, in their order."""

    kubeconfig: Path
    kubectl: Path
    helm: Path
    applied: Objects = field(default_factory=list)

    def sync(self, steps: list[Objects]) -> None:
        for step in steps:
            for item in step:
                if item["kind"] == "Application":
                    self._template(item["spec"])
                elif item["kind"] == "HelmRelease":
                    self._install(item["spec"])
                else:
                    self._apply([item])

    def prune(self) -> None:
        """Delete all, the last ones first."""
        for item in reversed(self.applied):
            self._run("delete", "--ignore-not-found", "--wait=false", "-f", "-", objects=[item])

    def _template(self, spec: dict[str, Any]) -> None:
        source, namespace = spec["source"], spec["destination"]["namespace"]
        address = source["repoURL"]
        named = (
            [source["chart"], "--repo", address]
            if "://" in address
            else [f"oci://{address}/{source['chart']}"]
        )
        helm = source["helm"]
        options = [] if helm.get("skipCrds") else ["--include-crds"]
        command = ["template", helm["releaseName"], *named, "--version", source["targetRevision"], *options]
        text = self._helm(*command, "-n", namespace, values=helm["valuesObject"])
        objects = [item for item in yaml.safe_load_all(text) if item]
        hooks = "helm.sh/hook"
        self._apply(
            [item for item in objects if hooks not in (item["metadata"].get("annotations") or {})], namespace
        )

    def _install(self, spec: dict[str, Any]) -> None:
        chart, namespace = spec["chart"]["spec"], spec["targetNamespace"]
        named = [chart["chart"], "--repo", chart["url"], "--version", chart["version"]]
        options = ["--skip-crds"] if spec["install"]["crds"] == "Skip" else []
        self._helm(
            "upgrade",
            "--install",
            spec["releaseName"],
            *named,
            "-n",
            namespace,
            *options,
            values=spec["values"],
        )
        text = self._helm("get", "manifest", spec["releaseName"], "-n", namespace)
        self.applied += [item for item in yaml.safe_load_all(text) if item]

    def _apply(self, objects: Objects, namespace: str = "") -> None:
        """``namespace`` is that of objects that name none; kubectl takes it for no others."""
        for item in objects:
            place = [] if item["metadata"].get("namespace") or not namespace else ["-n", namespace]
            self._run("apply", "--server-side", "--force-conflicts", *place, "-f", "-", objects=[item])
            self.applied.append({**item, "metadata": {"namespace": namespace, **item["metadata"]}})

    def _run(self, *arguments: str, objects: Objects) -> None:
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        command = [str(self.kubectl), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=content, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def _helm(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        given = ["-f", "-"] if values is not None else []
        command = [str(self.helm), "--kubeconfig", str(self.kubeconfig), *arguments, *given]
        done = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout
