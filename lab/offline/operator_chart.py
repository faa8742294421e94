"""NVIDIA's chart of the GPU operator, with that chart of node feature discovery of which the program runs.

The operands, which the simulator plays, wait for their turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.scratch import read_files
from infra import versions
from lab.sidecars.controllers.release import START
from lab.toolchain.catalogue import GPU_OPERATOR

_NFD = "charts/node-feature-discovery/"
_UNRELEASED = "v1.0.0-devel"  # version of the chart in the operator's repository


def files(program: Path, version: str) -> Mapping[str, bytes]:
    """The chart's files, as of the ``version`` of the stack; empty for the pinned one.

    ``program`` is the operator's, or a link to it, next to NFD's. Each has its chart in the folder ``chart``
    next to it; NFD's official image has none: it is that of the operator's chart. A chart of another version
    is another release to the operator: it starts a driver upgrade [NVIDIA/gpu-operator 25.3.4, helm.sh/chart
    in all pod templates].
    """
    programs = (program, program.with_name("nfd-master"))
    chart, nfd = (read_files(item.resolve().parent / "chart") for item in programs)
    metadata, values = yaml.safe_load(chart["Chart.yaml"]), yaml.safe_load(chart["values.yaml"])
    if metadata["version"] == _UNRELEASED:
        metadata["appVersion"] = f"v{GPU_OPERATOR.tool_version}"
    metadata["version"] = version or versions.GPU_OPERATOR
    values["daemonsets"]["annotations"] = {START: "waits"}
    if nfd:
        chart = {path: content for path, content in chart.items() if not path.startswith(_NFD)}
        chart |= {f"{_NFD}{path}": content for path, content in nfd.items()}
        for dependency in metadata["dependencies"]:
            dependency["version"] = yaml.safe_load(nfd["Chart.yaml"])["version"]
    return {**chart, "Chart.yaml": _dump(metadata), "values.yaml": _dump(values)}


def _dump(document: Any) -> bytes:
    return yaml.safe_dump(document, sort_keys=False).encode()
