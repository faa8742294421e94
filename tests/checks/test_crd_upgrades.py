"""CRDs of third parties are upgraded under live objects, on the real API server and by the real Helm.

The earlier version of a CRD is the pinned one without a field. Each has a group of its own here: other tests
have objects of the real ones on the same plane.
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
from tests.checks.test_api_server import as_list, crds_of, prometheus_operators_crds
from tests.conftest import Kubectl, Plane
from tests.external import reference
from tests.waiting import until

pytestmark = pytest.mark.cluster

Document = dict[str, Any]
GROUP = "upgrade.example.com"


def karpenters(plane: Plane) -> list[Document]:
    return crds_of("karpenter-crd", versions.KARPENTER, plane)


def nvidias(plane: Plane) -> list[Document]:
    return [
        yaml.safe_load(file.read_text()) for file in reference("crds/gpu-operator").glob("nvidia.com_*.yaml")
    ]


def of_prometheus(plane: Plane) -> list[Document]:
    return prometheus_operators_crds()


DRIVER = {"default": False, "driverType": "gpu", "image": "driver"}
CASES: tuple[tuple[Callable[[Plane], list[Document]], str, Document, str, Any], ...] = (
    (karpenters, "NodeOverlay", {"requirements": [], "capacity": {"example.com/gpu": "4"}}, "weight", 7),
    (nvidias, "NVIDIADriver", DRIVER, "priorityClassName", "system-node-critical"),
    (of_prometheus, "ServiceMonitor", {"selector": {}, "endpoints": []}, "sampleLimit", 1000),
)
"""Source of the CRDs, kind, spec of a live object, and a field that only the newer version has."""


def renamed(crd: Document) -> Document:
    found = copy.deepcopy(crd)
    plural = found["spec"]["names"]["plural"]
    found["spec"]["group"], found["metadata"]["name"] = GROUP, f"{plural}.{GROUP}"
    found["metadata"].pop("creationTimestamp", None)
    return found


def earlier(crd: Document, field: str) -> Document:
    found = copy.deepcopy(crd)
    for version in found["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert properties.pop(field, None), f"{field} is not in the pinned CRD"
    return found


def packed(folder: Path, crd: Document, version: str) -> Path:
    """A chart with the CRD among its templates, as karpenter-crd has them."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    about = {"apiVersion": "v2", "name": "crds", "version": version}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    text = yaml.safe_dump(crd).replace("{{", '{{ "{{" }}')
    (folder / "templates/crd.yaml").write_text(text)
    return folder


@pytest.fixture(
    params=[
        pytest.param(case, id=case[1], marks=[pytest.mark.nightly] if number else ())
        for number, case in enumerate(CASES)
    ]
)
def upgrade(
    request: pytest.FixtureRequest, control_plane: Plane, tmp_path: Path
) -> Iterator[tuple[Callable[[str], None], Document, str, Any]]:
    """Installs a version, "0.1.0" without the field or "0.2.0" with it; the object, the field and a value."""
    source, kind, spec, field, value = request.param
    newer = next(renamed(one) for one in source(control_plane) if one["spec"]["names"]["kind"] == kind)
    by_version = {"0.1.0": earlier(newer, field), "0.2.0": newer}
    release = f"upgrade-{kind.lower()}"
    helm = [str(control_plane.toolchain.path("helm")), "--kubeconfig", str(control_plane.kubeconfig)]

    def install(version: str) -> None:
        chart = packed(tmp_path / version, by_version[version], version)
        command = [*helm, "upgrade", "--install", release, str(chart), "--wait"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        control_plane.kubectl(
            "wait", "--for=condition=Established", "--timeout=60s", "crd", newer["metadata"]["name"]
        )

    served = newer["spec"]["versions"][-1]["name"]
    made = {"apiVersion": f"{GROUP}/{served}", "kind": kind, "metadata": {"name": "live"}, "spec": spec}
    yield install, made, field, value
    subprocess.run([*helm, "uninstall", release, "--wait"], capture_output=True, timeout=120, check=True)


def test_a_newer_crd_comes_under_live_objects_and_an_older_one_prunes_them(
    kubectl: Kubectl, upgrade: tuple[Callable[[str], None], Document, str, Any]
) -> None:
    """The last part is why gpuform.stack.preflight.charts refuses an older chart: the API server does not."""
    install, made, field, value = upgrade
    plural = f"{made['kind'].lower()}s.{GROUP}"
    more = {**made, "spec": {**made["spec"], field: value}}

    def live() -> Document:
        found: Document = json.loads(kubectl("get", plural, "live", "-o", "json"))
        return found

    def apply(one: Document) -> None:
        kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=as_list([one]))

    install("0.1.0")
    apply(made)
    before = live()
    with pytest.raises(AssertionError, match=f'field "?.*{field}|{field}: field not declared'):
        apply(more)

    install("0.2.0")
    assert live()["metadata"]["uid"] == before["metadata"]["uid"]
    assert live()["spec"] == before["spec"]
    until(lambda: _accepted(apply, more), what="the API server serves the newer version")
    assert live()["spec"][field] == value

    install("0.1.0")

    def pruned() -> bool:
        kubectl("label", plural, "live", f"touched={live()['metadata']['resourceVersion']}", "--overwrite")
        return field not in live()["spec"]

    until(pruned, what="the field is gone")
    assert live()["metadata"]["uid"] == before["metadata"]["uid"]


def _accepted(apply: Callable[[Document], None], one: Document) -> bool:
    try:
        apply(one)
    except AssertionError:
        return False
    return True
