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
    judged = list(judging.resources(render(load(ROOT / f"Pulumi.{stack}.yaml"))))
    assert len(judged) > 3
    assert list(judging.lines(judging.findings(judged))) == []


def broken(file: str, change: Callable[[dict[str, Any]], Any], stack: str) -> list[str]:
    files = render(load(ROOT / f"Pulumi.{stack}.yaml"))
    documents = list(yaml.safe_load_all(files[file]))
    for document in documents:
        change(document)
    files[file] = yaml.safe_dump_all(documents)
    return sorted({one.rule.id for one in judging.findings(list(judging.resources(files)))})


def untaint(document: dict[str, Any]) -> None:
    if document.get("kind") == "NodePool":
        document["spec"]["template"]["spec"].pop("taints", None)


def allow_all(document: dict[str, Any]) -> None:
    if "document" in document:
        document["document"]["Statement"].append({"Effect": "Allow", "Action": "*", "Resource": "*"})


def let_in_all(document: dict[str, Any]) -> None:
    if document.get("policy") == "interruption queue":
        document["document"]["Statement"][0]["Principal"] = "*"


def administer(document: dict[str, Any]) -> None:
    if "role" in document:
        document["policies"].append("arn:aws:iam::aws:policy/AdministratorAccess")


def grow(document: dict[str, Any]) -> None:
    if "max_node_count" in document.get("node group", {}):
        document["node group"]["node_count"] = 9


def lose(document: dict[str, Any]) -> None:
    if "nodes" in document:
        document["nodes"] = {"a": "b"}


def double(document: dict[str, Any]) -> None:
    if "cluster" in document:
        document["cluster"]["master_count"] = 2


@pytest.mark.unit
@pytest.mark.parametrize(
    ("file", "change", "rules"),
    [
        ("karpenter.yaml", untaint, ["gpu-pool-tainted"]),
        ("karpenter.yaml", lambda one: one.pop("version", None), ["chart-pinned"]),
        ("node-groups.yaml", lambda one: one.pop("taints", None), ["gpu-pool-tainted"]),
        ("namespaces.yaml", lambda one: one["metadata"].pop("labels"), ["namespace-security"]),
        ("gpu-operator.yaml", lambda one: one.update(version="v25.3.0"), ["version-floors"]),
        ("gpu-operator.yaml", lambda one: one["values"].pop("driver"), ["driver-owner"]),
        ("iam.yaml", allow_all, ["iam-scoped"]),
        ("iam.yaml", administer, ["iam-scoped"]),
        ("iam.yaml", let_in_all, ["principals-named"]),
        ("magnum.yaml", lambda document: None, []),
        ("magnum.yaml", grow, ["magnum-group-bounds"]),
        ("magnum.yaml", lose, ["magnum-nodes-labelled"]),
        ("magnum.yaml", double, ["magnum-masters"]),
    ],
)  # fmt: skip
def test_a_broken_document_is_named(file: str, change: Callable[[Any], Any], rules: list[str]) -> None:
    stack = "openstack-dev" if file == "magnum.yaml" else "aws-prod"
    assert broken(file, change, stack) == rules


@pytest.mark.unit
def test_a_template_of_our_own_is_judged() -> None:
    files = {
        "magnum.yaml": yaml.safe_dump({"template": {"name": "a", "coe": "kubernetes", "tls_disabled": True}})
    }
    (found,) = judging.findings(list(judging.resources(files)))
    assert (found.rule.id, found.resource.name) == ("openstack-tls", "a")


def without_queue(document: dict[str, Any]) -> None:
    if document.get("kind") == "Job":
        del document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("change", "rules"), [(lambda document: None, []), (without_queue, ["gpu-workload-queued"])]
)
def test_a_job_past_its_queue_is_named(change: Callable[[Any], Any], rules: list[str]) -> None:
    files = render(everything.environments()["queues"])
    documents = list(yaml.safe_load_all(files["workloads.yaml"]))
    for document in documents:
        change(document)
    files["workloads.yaml"] = yaml.safe_dump_all(documents)
    found = judging.findings(list(judging.resources(files)))
    assert sorted({one.rule.id for one in found}) == rules


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
    releases = list(judging.releases(files))
    assert {release["name"] for release in releases} == {"gpu-operator", "monitoring"}
    helm = toolchain.path("helm")
    texts = [judging.templated(helm, ROOT, release) for release in releases]
    objects = [one for text in texts for one in judging.objects(text)]
    assert {one.type for one in objects} >= {"kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:DaemonSet"}
    assert judging.findings(objects) == ()
    moved = [one for one in objects if one.type.endswith(":DaemonSet")]
    for one in moved:
        one.props["metadata"]["namespace"] = "tenants"  # type: ignore[index]
        one.props["spec"]["template"]["spec"]["hostPID"] = True
    assert {one.rule.id for one in judging.findings(moved)} == {"tenant-not-privileged"}


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
        judging.templated(toolchain.path("helm"), ROOT, release)
