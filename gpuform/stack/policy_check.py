"""Checks rendered documents against the policy pack's rules: manifests, releases, templated charts."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from infra import strict_yaml
from policies.pack import RULES
from policies.rule import Finding, Resource, judge

Document = Mapping[str, Any]


def findings(resources: Sequence[Resource]) -> tuple[Finding, ...]:
    return tuple(judge(RULES, resources))


def resources(files: Mapping[str, str]) -> Iterator[Resource]:
    """Documents that are not resources (the environment, the bill) are left out."""
    for name, text in files.items():
        if name.endswith(".yaml"):
            for document in strict_yaml.load_all(text):
                yield from _resource(document)


def releases(files: Mapping[str, str]) -> Iterator[Document]:
    for text in files.values():
        yield from (one for one in strict_yaml.load_all(text) if isinstance(one, dict) and "chart" in one)


def objects(manifests: str) -> Iterator[Resource]:
    """The objects that ``helm template`` prints."""
    for document in strict_yaml.load_all(manifests):
        yield from _resource(document or {})


def templated(helm: Path, root: Path, release: Document) -> str:
    """The manifests of a release's chart; OSError or CalledProcessError if it cannot be rendered."""
    command = [str(helm), "template", str(release["name"]), str(release["chart"])]
    command += ["--namespace", str(release["namespace"]), "--include-crds=false", "--values", "-"]
    for option, key in (("--repo", "repository"), ("--version", "version")):
        if release.get(key):
            command += [option, str(release[key])]
    # A HOME of its own: without the user's repositories and their credentials.
    with tempfile.TemporaryDirectory(prefix="gpuform-helm-") as home:
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "HELM_CACHE_HOME": home}
        values = yaml.safe_dump(dict(release["values"]))
        done = subprocess.run(
            command, input=values, cwd=root, env=env, check=True, capture_output=True, text=True, timeout=60
        )
    return done.stdout


def _resource(document: Any) -> Iterator[Resource]:
    if not isinstance(document, dict):
        return
    if "apiVersion" in document and "kind" in document:
        version = str(document["apiVersion"])
        token = f"kubernetes:{version if '/' in version else f'core/{version}'}:{document['kind']}"
        metadata = document.get("metadata") or {}
        name = "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata)
        yield Resource(token, name, document)
    elif "chart" in document:
        yield Resource("kubernetes:helm.sh/v3:Release", str(document["name"]), document)
    elif "replaced for" in document:
        yield from _magnum(document)
    elif isinstance(document.get("template"), dict):
        yield Resource(
            "openstack:containerinfra/clusterTemplate:ClusterTemplate",
            str(document["template"]["name"]),
            _inputs(document["template"]),
        )
    elif "node group" in document:
        image = document.get("image") or {}
        repaired = {"enabled": "repair" not in document}
        yield Resource("aws:eks/nodeGroup:NodeGroup", str(document["node group"]),
                       {**document, "amiType": image.get("type"), "nodeRepairConfig": repaired})  # fmt: skip
    elif "versions" in document and "settings" in document:
        for name in document["versions"]:
            yield Resource("aws:eks/addon:Addon", str(name), {"addonName": name})
    elif "policy" in document and "document" in document:
        lets_in = any("Principal" in one for one in document["document"]["Statement"])
        kind = "aws:sqs/queuePolicy:QueuePolicy" if lets_in else "aws:iam/policy:Policy"
        yield Resource(kind, str(document["policy"]), {"policy": json.dumps(document["document"])})
    elif "role" in document and "policies" in document:
        arns = {"managedPolicyArns": document["policies"]}
        yield Resource("aws:iam/role:Role", str(document["role"]), arns)


def _magnum(document: Document) -> Iterator[Resource]:
    """A cluster or a node group, its replacement guard, and the selector of a group's nodes.

    Rendered documents do not say which changes are ignored: previews check the program for that.
    """
    group = document.get("node group")
    inputs = _inputs(group or document["cluster"])
    name = str(inputs["name"])
    what = {"what": f"node group {name}"} if group else {"fixed": {"name": name}}
    kind = "nodeGroup:NodeGroup" if group else "cluster:Cluster"
    yield Resource(f"openstack:containerinfra/{kind}", name, inputs, ("nodeCount",))
    yield Resource("gpuform:openstack:ReplacementGuard", name, what)
    if group:
        selector = ",".join(f"{key}={value}" for key, value in document["nodes"].items())
        yield Resource("gpuform:nodes:PoolNodes", name, {"selector": selector})


def _inputs(arguments: Document) -> Document:
    """The provider's arguments in the engine's camelCase."""
    return {re.sub("_(.)", lambda found: found[1].upper(), key): value for key, value in arguments.items()}


def lines(found: Iterable[Finding]) -> Iterator[str]:
    """``gpu-pool-tainted: kubernetes:...:NodePool burst: fact; remedy`` for each finding."""
    for one in found:
        yield f"{one.rule.id}: {one.resource.type} {one.resource.name}: {one.fact}; {one.rule.remedy}"
