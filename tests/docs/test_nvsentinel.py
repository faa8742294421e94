"""The values of docs/howto/nvsentinel.md fit the stack and, where its registry is reachable, the chart."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from gpuform.checkout.paths import Paths
from infra.model.base.labels import POOL
from infra.model.hosts.cluster import NVIDIA_RUNTIME
from infra.model.platform.monitoring import RELEASE
from lab.toolchain import Toolchain
from tests.build.environments import on
from tests.docs.pages import ROOT
from tests.external import ABSENT

PAGE = (ROOT / "docs/howto/nvsentinel.md").read_text(encoding="utf-8")
STACK, VALUES = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CHART = ("oci://ghcr.io/nvidia/nvsentinel", "--version", "v1.31.0")
VERSION_LABEL = {"nvsentinel.dgxc.nvidia.com/dcgm.version": "4.x"}
UNREACHABLE = ("dial tcp", "denied", "Forbidden", "no such host", "timeout")
_, OWN_NODES = VALUES["fault-quarantine"]["ruleSets"][0]["match"]["all"]


@pytest.mark.unit
def test_the_values_name_what_the_stack_has() -> None:
    assert on("existing", STACK["pools"][0]).pools[0].labels == VERSION_LABEL
    assert VALUES["podMonitor"]["labels"] == {"release": RELEASE}
    assert VALUES["gpu-health-monitor"]["runtimeClassName"] == NVIDIA_RUNTIME
    assert OWN_NODES["expression"] == f"'{POOL}' in node.metadata.labels"
    assert " ".join(CHART) in PAGE


@pytest.mark.tools
@pytest.mark.nightly
def test_the_chart_renders_the_values() -> None:
    helm = Toolchain(Paths.here()).path("helm")
    command = [helm, "template", "n", *CHART, "--values", "-", "--api-versions", "monitoring.coreos.com/v1"]
    done = subprocess.run(command, input=yaml.safe_dump(VALUES), capture_output=True, text=True, timeout=120)
    if any(word in done.stderr for word in UNREACHABLE):
        pytest.skip(f"{ABSENT}{CHART[0]}: {done.stderr.strip()[-150:]}")
    assert done.returncode == 0, done.stderr
    documents = [item for item in yaml.safe_load_all(done.stdout) if item]
    by_name = {f"{item['kind']} {item['metadata']['name']}": item for item in documents}
    monitor = by_name["DaemonSet gpu-health-monitor-dcgm-4.x"]["spec"]["template"]["spec"]
    assert (monitor["runtimeClassName"], monitor["nodeSelector"]) == (NVIDIA_RUNTIME, VERSION_LABEL)
    assert by_name["PodMonitor nvsentinel"]["metadata"]["labels"]["release"] == RELEASE
    assert OWN_NODES["expression"] in by_name["ConfigMap fault-quarantine"]["data"]["config.toml"]
    assert not [name for name in by_name if "node-drainer" in name or "remediation" in name]
