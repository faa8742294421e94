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


def check_resources(resources: Sequence[Resource]) -> tuple[Finding, ...]:
    return tuple(judge(RULES, resources))


def rendered_resources(files: Mapping[str, str]) -> Iterator[Resource]:
    """Documents that are not resources (the environment, the bill) are left out."""
    for name, text in files.items():
        if name.endswith(".yaml"):
            for document in strict_yaml.load_all(text):
                yield from _parse_resource(document)


def rendered_releases(files: Mapping[str, str]) -> Iterator[Document]:
    for text in files.values():
        yield from (
            document
            for document in strict_yaml.load_all(text)
            if isinstance(document, dict) and "chart" in document
        )


def parse_manifests(manifests: str) -> Iterator[Resource]:
    """The objects that ``helm template`` prints."""
    for document in strict_yaml.load_all(manifests):
        yield from _parse_resource(document or {})


def template_chart(helm: Path, root: Path, release: Document) -> str:
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
        result = subprocess.run(
            command, input=values, cwd=root, env=env, check=True, capture_output=True, text=True, timeout=60
        )
    return result.stdout


def _parse_resource(document: Any) -> Iterator[Resource]:
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
        yield from _magnum_resources(document)
    elif "node group" in document:
        image = document.get("image") or {}
        repair = {"enabled": "repair" not in document}
        yield Resource("aws:eks/nodeGroup:NodeGroup", str(document["node group"]),
                       {**document, "amiType": image.get("type"), "nodeRepairConfig": repair})  # fmt: skip
    elif "versions" in document and "settings" in document:
        for name in document["versions"]:
            yield Resource("aws:eks/addon:Addon", str(name), {"addonName": name})
    elif "policy" in document and "document" in document:
        has_principal = any("Principal" in statement for statement in document["document"]["Statement"])
        kind = "aws:sqs/queuePolicy:QueuePolicy" if has_principal else "aws:iam/policy:Policy"
        yield Resource(kind, str(document["policy"]), {"policy": json.dumps(document["document"])})
    elif "role" in document and "policies" in document:
        arns = {"managedPolicyArns": document["policies"]}
        yield Resource("aws:iam/role:Role", str(document["role"]), arns)


def _magnum_resources(document: Document) -> Iterator[Resource]:
    """A cluster or a node group, its replacement guard, and the selector of a group's nodes.

    Rendered documents do not say which changes are ignored: previews check the program for that.
    """
    group = document.get("node group")
    inputs = _camel_case(group or document["cluster"])
    name = str(inputs["name"])
    guarded = {"what": f"node group {name}"} if group else {"fixed": {"name": name}}
    kind = "nodeGroup:NodeGroup" if group else "cluster:Cluster"
    yield Resource(f"openstack:containerinfra/{kind}", name, inputs, ("nodeCount",))
    yield Resource("gpuform:openstack:ReplacementGuard", name, guarded)
    if group:
        selector = ",".join(f"{key}={value}" for key, value in document["nodes"].items())
        yield Resource("gpuform:nodes:PoolNodes", name, {"selector": selector})


def _camel_case(arguments: Document) -> Document:
    """The provider's arguments in the engine's camelCase."""
    return {re.sub("_(.)", lambda match: match[1].upper(), key): value for key, value in arguments.items()}


def format_findings(findings: Iterable[Finding]) -> Iterator[str]:
    """``gpu-pool-tainted: kubernetes:...:NodePool burst: fact; remedy`` for each finding."""
    for item in findings:
        yield f"{item.rule.id}: {item.resource.type} {item.resource.name}: {item.fact}; {item.rule.remedy}"
