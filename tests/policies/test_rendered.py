"""Rendered output goes through the same rules: manifests, releases, node groups, IAM and charts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import Failure
from gpuform.cli import plan
from gpuform.stack import policy_check as judging
from infra.config import load
from infra.plan.render import render
from lab.toolchain import Toolchain
from tests.checks import everything

ROOT = Path(__file__).parents[2]
STACKS = sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml"))


@pytest.mark.unit
@pytest.mark.parametrize("stack", STACKS)
def test_every_example_holds(stack: str) -> None:
    resources = list(judging.rendered_resources(render(load(ROOT / f"Pulumi.{stack}.yaml"))))
    assert len(resources) > 3
    assert list(judging.format_findings(judging.check_resources(resources))) == []


ALLOW_ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"
CHANGES: list[tuple[str, str, Callable[[Any], Any], list[str]]] = [
    ("karpenter.yaml", "NodePool", lambda doc: doc["spec"]["template"]["spec"].pop("taints", None),
     ["gpu-pool-tainted"]),
    ("karpenter.yaml", "version", lambda doc: doc.pop("version"), ["chart-pinned"]),
    ("node-groups.yaml", "taints", lambda doc: doc.pop("taints"), ["gpu-pool-tainted"]),
    ("namespaces.yaml", "metadata", lambda doc: doc["metadata"].pop("labels"), ["namespace-security"]),
    ("gpu-operator.yaml", "version", lambda doc: doc.update(version="v25.3.0"), ["version-floors"]),
    ("gpu-operator.yaml", "values", lambda doc: doc["values"].pop("driver"), ["driver-owner"]),
    ("iam.yaml", "document", lambda doc: doc["document"]["Statement"].append(ALLOW_ALL), ["iam-scoped"]),
    ("iam.yaml", "role", lambda doc: doc["policies"].append(ADMINISTRATOR), ["iam-scoped"]),
    ("iam.yaml", "interruption queue", lambda doc: doc["document"]["Statement"][0].update(Principal="*"),
     ["principals-named"]),
    ("magnum.yaml", "cluster", lambda doc: None, []),
    ("magnum.yaml", "node group", lambda doc: doc["node group"].update(node_count=9, max_node_count=8),
     ["magnum-group-bounds"]),
    ("magnum.yaml", "nodes", lambda doc: doc.update(nodes={"a": "b"}), ["magnum-nodes-labelled"]),
    ("magnum.yaml", "cluster", lambda doc: doc["cluster"].update(master_count=2), ["magnum-masters"]),
    ("workloads.yaml", "Job", lambda doc: None, []),
    ("workloads.yaml", "Job", lambda doc: doc["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name"),
     ["gpu-workload-queued"]),
]  # fmt: skip
"""File; key, kind or policy of the changed documents; the change; the rules that it breaks."""


@pytest.mark.unit
@pytest.mark.parametrize(("file", "chosen", "change", "rules"), CHANGES)
def test_a_broken_document_is_named(
    file: str, chosen: str, change: Callable[[Any], Any], rules: list[str]
) -> None:
    stack = "openstack-dev" if file == "magnum.yaml" else "aws-prod"
    queued = file == "workloads.yaml"
    files = render(everything.environments()["queues"] if queued else load(ROOT / f"Pulumi.{stack}.yaml"))
    documents = list(yaml.safe_load_all(files[file]))
    matching = [doc for doc in documents if chosen in doc or chosen in (doc.get("kind"), doc.get("policy"))]
    assert matching
    for document in matching:
        change(document)
    files[file] = yaml.safe_dump_all(documents)
    findings = judging.check_resources(list(judging.rendered_resources(files)))
    assert sorted({finding.rule.id for finding in findings}) == rules


@pytest.mark.unit
def test_render_ends_with_1_where_a_rule_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "infra.plan.render.render", lambda *given: {"a.yaml": "{chart: a, name: a, version: '1'}"}
    )
    with pytest.raises(Failure, match="policies: 1 broken"):
        plan.render("local", tmp_path)
    assert "chart-pinned: kubernetes:helm.sh/v3:Release a: chart a has version 1" in capsys.readouterr().out
    assert (tmp_path / "a.yaml").exists()


@pytest.mark.engine
def test_a_charts_objects_are_judged(toolchain: Toolchain) -> None:
    files = render(load(ROOT / "Pulumi.local.yaml"))
    releases = list(judging.rendered_releases(files))
    assert {release["name"] for release in releases} == {"gpu-operator", "monitoring"}
    helm = toolchain.path("helm")
    texts = [judging.template_chart(helm, ROOT, release) for release in releases]
    objects = [item for text in texts for item in judging.parse_manifests(text)]
    assert {item.type for item in objects} >= {
        "kubernetes:apps/v1:Deployment",
        "kubernetes:apps/v1:DaemonSet",
    }
    assert judging.check_resources(objects) == ()
    daemon_sets = [item for item in objects if item.type.endswith(":DaemonSet")]
    for item in daemon_sets:
        item.props["metadata"]["namespace"] = "tenants"  # type: ignore[index]
        item.props["spec"]["template"]["spec"]["hostPID"] = True
    assert {item.rule.id for item in judging.check_resources(daemon_sets)} == {"tenant-not-privileged"}


@pytest.mark.engine
def test_a_chart_that_cannot_be_had_is_an_error_to_say(toolchain: Toolchain) -> None:
    release = {
        "name": "a",
        "chart": "a",
        "namespace": "b",
        "values": {},
        "repository": "https://127.0.0.1:1/charts",
    }
    with pytest.raises(subprocess.CalledProcessError):
        judging.template_chart(toolchain.path("helm"), ROOT, release)
