"""Adoption of a running cluster: with get and list alone, with fewer rights, and what needs no stack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuform.adopt import declare, objects
from gpuform.cli.main import app
from tests import packing
from tests.build.clusters import CLUSTER, dump_of, kubernetes
from tests.conftest import Plane

pytestmark = pytest.mark.cluster

READS = {
    "": ["nodes", "pods", "namespaces", "resourcequotas", "configmaps"],
    "apps": ["daemonsets"],
    "nvidia.com": ["clusterpolicies"],
    "karpenter.sh": ["nodepools"],
    "kueue.x-k8s.io": ["clusterqueues"],
    "resource.k8s.io": ["resourceslices"],
    "monitoring.coreos.com": ["prometheuses"],
}
CASE = Path(__file__).parent / "clusters/k3s-home.yaml"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {
        "nodeName": "desk",
        "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
}


@pytest.fixture(scope="module")
def items(control_plane: Plane) -> Iterator[list[dict[str, Any]]]:
    """The cluster of one machine, with a pod, on the API server."""
    entries = yaml.safe_load(CASE.read_text())["objects"]
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nvidia-device-plugin"}}, POD]
    for entry in entries:
        item = kubernetes(entry)
        if item["kind"] == "DaemonSet":
            template = item["spec"]["template"]
            template["metadata"] = {"labels": {"app": "plugin"}}
            item["spec"]["selector"] = {"matchLabels": {"app": "plugin"}}
        made.append(item)
    made.sort(key=lambda item: ["Namespace", "Node", "ConfigMap", "DaemonSet", "Pod"].index(item["kind"]))
    try:
        for item in made:
            control_plane.kubectl("apply", "-f", "-", input=json.dumps(item))
            if item["kind"] == "Node":
                status = json.dumps({"status": item["status"]})
                name = item["metadata"]["name"]
                control_plane.kubectl(
                    "patch", "node", name, "--subresource=status", "--type=merge", "-p", status
                )
        yield entries
    finally:
        control_plane.kubectl("delete", "daemonset", "--all", "-n", "nvidia-device-plugin", "--wait=false")
        for space in ("default", "nvidia-device-plugin"):  # no kubelet ends a pod here
            control_plane.kubectl("delete", "pod", "--all", "-n", space, "--force", "--grace-period=0")
        packing.delete(control_plane, made)


@pytest.fixture
def account(control_plane: Plane, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes a kubeconfig of an account with get and list on all kinds but those named."""
    made: list[dict[str, Any]] = []

    def make(*without: str) -> Path:
        rules = [
            {
                "apiGroups": [group],
                "verbs": ["get", "list"],
                "resources": [n for n in names if n not in without],
            }
            for group, names in READS.items()
        ]
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
        rbac = "rbac.authorization.k8s.io"
        made.extend(
            [
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": "reader", "namespace": "default"},
                },
                {
                    "apiVersion": f"{rbac}/v1",
                    "kind": "ClusterRole",
                    "metadata": {"name": "reader"},
                    "rules": [rule for rule in rules if rule["resources"]],
                },
                {
                    "apiVersion": f"{rbac}/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": "reader"},
                    "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "reader"},
                    "subjects": [subject],
                },
            ]
        )
        for item in made:
            control_plane.kubectl("apply", "-f", "-", input=json.dumps(item))
        content = yaml.safe_load(control_plane.kubeconfig.read_text())
        token = control_plane.kubectl("create", "token", "reader", "-n", "default").strip()
        content["users"][0]["user"] = {"token": token}
        file = tmp_path / "reader"
        file.write_text(yaml.safe_dump(content))
        return file

    yield make
    packing.delete(control_plane, made)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.chdir(folder)
    return CliRunner().invoke(app, arguments)


def test_cluster_and_its_dump_are_adopted_alike(
    items: list[dict[str, Any]], account: Callable[..., Path], tmp_path: Path
) -> None:
    live = declare.adopt(objects.read_cluster(account()), CLUSTER)
    dumped = declare.adopt(objects.read_dump(dump_of(items, tmp_path)), CLUSTER)
    assert live.document == dumped.document == yaml.safe_load(CASE.read_text())["environment"]
    assert [str(error) for error in live.left_out] == []


def test_missing_rights_are_named(
    items: list[dict[str, Any]], account: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = account("resourcequotas", "configmaps")
    result = declare.adopt(objects.read_cluster(file), CLUSTER)
    assert [error.path for error in result.left_out] == ["ResourceQuotas", "ConfigMaps"]
    assert "the right to get and list resourcequotas is missing" in str(result.left_out[0])
    answer = run(tmp_path, monkeypatch, "adopt", "--kubeconfig", str(account("nodes")))
    assert answer.exit_code == 1
    assert "grant get and list on nodes and pods" in answer.stderr


def test_commands_work_without_a_stack(
    items: list[dict[str, Any]], account: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--kubeconfig", str(account()))
    document = json.loads(run(tmp_path, monkeypatch, "status", *given, "--json").stdout)
    (pool,) = document["pools"]
    assert pool["name"] == "geforce-rtx-4090"
    assert pool["nodes"][0]["used"] == {"nvidia.com/gpu": 1}
    shown = run(tmp_path, monkeypatch, "top", *given)
    assert "0.25 of 1" in shown.stdout
    assert run(tmp_path, monkeypatch, "report", *given).exit_code == 0
    assert "geforce-rtx-4090" in (tmp_path / "gpuform-report.html").read_text()


def test_file_is_written_once(
    items: list[dict[str, Any]], account: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("adopt", "--kubeconfig", str(account()), "-o", "Pulumi.there.yaml")
    answer = run(tmp_path, monkeypatch, *given)
    assert "wrote Pulumi.there.yaml; next: gpuform preview there" in answer.stdout
    written = yaml.safe_load((tmp_path / "Pulumi.there.yaml").read_text())
    assert written["config"]["gpuform:environment"]["name"] == "there"
    again = run(tmp_path, monkeypatch, *given)
    assert (again.exit_code, "already exists" in again.stderr) == (2, True)
