"""A CRD of Karpenter's is upgraded under a live object, on the real API server and by the real Helm.

The earlier version is the pinned one without a field. It has a group of its own here: other tests have
objects of the real one on the same plane.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from tests.checks.test_api_server import as_list, crds_of
from tests.conftest import Kubectl, Plane
from tests.waiting import until

pytestmark = pytest.mark.cluster

Document = dict[str, Any]
GROUP = "upgrade.example.com"
KIND, FIELD, VALUE = "NodeOverlay", "weight", 7
"""A kind of Karpenter's, and a field that only the newer version has."""
SPEC: Document = {"requirements": [], "capacity": {"example.com/gpu": "4"}}


def renamed(crd: Document) -> Document:
    found = copy.deepcopy(crd)
    plural = found["spec"]["names"]["plural"]
    found["spec"]["group"], found["metadata"]["name"] = GROUP, f"{plural}.{GROUP}"
    found["metadata"].pop("creationTimestamp", None)
    return found


def earlier(crd: Document) -> Document:
    found = copy.deepcopy(crd)
    for version in found["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert properties.pop(FIELD, None), f"{FIELD} is not in the pinned CRD"
    return found


def packed(folder: Path, crd: Document, version: str) -> Path:
    """A chart with the CRD among its templates, as karpenter-crd has them."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    about = {"apiVersion": "v2", "name": "crds", "version": version}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    text = yaml.safe_dump(crd).replace("{{", '{{ "{{" }}')
    (folder / "templates/crd.yaml").write_text(text)
    return folder


@pytest.fixture
def install(control_plane: Plane, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Installs a version, "0.1.0" without the field or "0.2.0" with it."""
    pinned = crds_of("karpenter-crd", versions.KARPENTER, control_plane)
    newer = next(renamed(item) for item in pinned if item["spec"]["names"]["kind"] == KIND)
    by_version = {"0.1.0": earlier(newer), "0.2.0": newer}
    release = f"upgrade-{KIND.lower()}"
    helm = [str(control_plane.toolchain.path("helm")), "--kubeconfig", str(control_plane.kubeconfig)]

    def install(version: str) -> None:
        chart = packed(tmp_path / version, by_version[version], version)
        command = [*helm, "upgrade", "--install", release, str(chart), "--wait"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        control_plane.kubectl(
            "wait", "--for=condition=Established", "--timeout=60s", "crd", newer["metadata"]["name"]
        )

    yield install
    subprocess.run([*helm, "uninstall", release, "--wait"], capture_output=True, timeout=120, check=True)


@pytest.mark.nightly
def test_a_newer_crd_comes_under_live_objects_and_an_older_one_prunes_them(
    kubectl: Kubectl, install: Callable[[str], None]
) -> None:
    """The last part is why gpuform.stack.preflight refuses an older chart: the API server does not."""
    plural = f"{KIND.lower()}s.{GROUP}"
    made = {"apiVersion": f"{GROUP}/v1alpha1", "kind": KIND, "metadata": {"name": "live"}, "spec": SPEC}
    more = {**made, "spec": {**SPEC, FIELD: VALUE}}

    def live() -> Document:
        found: Document = json.loads(kubectl("get", plural, "live", "-o", "json"))
        return found

    def apply(one: Document) -> None:
        kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=as_list([one]))

    install("0.1.0")
    apply(made)
    before = live()
    with pytest.raises(AssertionError, match=f'field "?.*{FIELD}|{FIELD}: field not declared'):
        apply(more)

    install("0.2.0")
    assert live()["metadata"]["uid"] == before["metadata"]["uid"]
    assert live()["spec"] == before["spec"]
    until(lambda: _accepted(apply, more), what="the API server serves the newer version")
    assert live()["spec"][FIELD] == VALUE

    install("0.1.0")

    def pruned() -> bool:
        kubectl("label", plural, "live", f"touched={live()['metadata']['resourceVersion']}", "--overwrite")
        return FIELD not in live()["spec"]

    until(pruned, what="the field is gone")
    assert live()["metadata"]["uid"] == before["metadata"]["uid"]


def _accepted(apply: Callable[[Document], None], one: Document) -> bool:
    try:
        apply(one)
    except AssertionError:
        return False
    return True
