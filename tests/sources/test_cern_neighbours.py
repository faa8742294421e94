"""CERN's three neighbours on one A100 40GB (FACTS 1, row 8): which starves which, by a model of memory.

The model is ours (lab/simulator/memory.py); that a time-sliced GPU has one memory, and a MIG device its
own, is from NVIDIA.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.simulator.site import TOOLKIT, Site, opened

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

CHART = Path(__file__).parents[2] / "charts" / "gpu-operator-sim"
SHARED = """\
version: v1
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""
LAYOUT = "3g.20gb-2x2g.10gb"
MIG = f"""\
version: v1
mig-configs:
  {LAYOUT}: [{{devices: all, mig-enabled: true, mig-devices: {{2g.10gb: 2, 3g.20gb: 1}}}}]
"""
VALUES = {
    "mig": {"strategy": "mixed"},
    "toolkit": TOOLKIT,
    "devicePlugin": {"config": {"name": "plugin-config", "default": "whole"}},
    "migManager": {"config": {"name": "mig-config"}},
}
HELD = "simulator.gpuform.io/gpu-memory-held"
A100_MIB = 40960
GIB = 1024


@pytest.fixture(scope="module")
def cern(simulated_plane: Any) -> Iterator[Site]:
    with opened(simulated_plane) as site:
        site.config_map("plugin-config", {"whole": "version: v1\n", "slice-4": SHARED})
        site.config_map("mig-config", {"config.yaml": MIG})
        values = site.plane.paths.state / "neighbours.yaml"
        values.write_text(yaml.safe_dump(VALUES))
        site.helm("upgrade", "--install", "gpu-operator", str(CHART), "-n", "gpu-operator", "-f", str(values))
        yield site


def wants(site: Site, pod: str, mib: int) -> None:
    site.kubectl("annotate", "pod", pod, "--overwrite", f"simulator.gpuform.io/gpu-memory={mib}")


def state(site: Site, pod: str) -> str:
    found = site.get("pod", pod)
    for container in found["status"].get("containerStatuses") or ():
        if "waiting" in container["state"]:
            return str(container["state"]["waiting"]["reason"])
    return str(found["metadata"].get("annotations", {}).get(HELD, ""))


def become(site: Site, **expected: object) -> None:
    wanted = {pod: str(value) for pod, value in expected.items()}
    site.until(lambda: {pod: state(site, pod) for pod in wanted}, wanted.__eq__)


OUT = "CrashLoopBackOff"


def test_cern_under_time_slicing_the_notebook_starves_the_others(cern: Site) -> None:
    node = cern.node("a100-shared", "20b0", config="slice-4")
    cern.offers(node, {"gpu.shared": 4})
    share = {"gpu.shared": 1}
    cern.pod("simulation", share, node, memory=str(8 * GIB))
    cern.pod("inference", share, node, memory=str(2 * GIB))
    become(cern, simulation=8 * GIB, inference=2 * GIB)
    cern.pod("notebook", share, node, memory="all")
    become(cern, notebook=A100_MIB - 10 * GIB)

    wants(cern, "inference", 10 * GIB)  # a spike
    become(cern, inference=OUT, notebook=A100_MIB - 8 * GIB)
    cern.events("inference", "CUDA out of memory. Tried to allocate 10240 MiB")
    wants(cern, "simulation", 10 * GIB)  # its dynamic part
    become(cern, simulation=OUT, inference=OUT, notebook=A100_MIB)

    cern.kubectl("delete", "pod", "notebook")
    become(cern, simulation=10 * GIB, inference=10 * GIB)
    cern.kubectl("delete", "pod", "simulation", "inference")


def test_cern_under_mig_the_notebook_starves_itself_only(cern: Site) -> None:
    node = cern.node("a100-mig", "20b0")
    cern.label(node, "nvidia.com/mig.config", LAYOUT)
    cern.offers(node, {"gpu": 0, "mig-3g.20gb": 1, "mig-2g.10gb": 2})
    cern.pod("notebook", {"mig-2g.10gb": 1}, node, memory="all")
    become(cern, notebook=9856)
    cern.pod("simulation", {"mig-2g.10gb": 1}, node, memory=str(8 * GIB))
    cern.pod("inference", {"mig-3g.20gb": 1}, node, memory=str(2 * GIB))
    wants(cern, "inference", 10 * GIB)
    become(cern, simulation=8 * GIB, inference=10 * GIB, notebook=9856)

    wants(cern, "notebook", 12 * GIB)
    become(cern, notebook=OUT, simulation=8 * GIB, inference=10 * GIB)
    # A slice called 10gb has 9856 MiB: CERN's 10 GiB do not fit, and again the neighbours are unaffected.
    wants(cern, "simulation", 10 * GIB)
    become(cern, simulation=OUT, inference=10 * GIB)
    cern.events("simulation", "has a capacity of 9856 MiB, of which 9856 MiB are free")
