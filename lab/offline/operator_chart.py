"""NVIDIA's chart of the GPU operator, with that chart of node feature discovery of which the program runs.

The operator's own release has an older one. Its operands, which the simulator plays, wait for their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra import versions
from lab.offline.controller_charts import chart, pin_folder
from lab.sidecars.controllers.release import START
from lab.toolchain.catalogue import GPU_OPERATOR

NAME, NFD = "gpu-operator", "node-feature-discovery"
_NFD_FOLDER = f"charts/{NFD}/"


def files(checkout_folder: Callable[[str], Path], cache: Path, version: str) -> Mapping[str, bytes]:
    """The chart's files, as of the ``version`` of the stack; empty for the pinned one.

    ``checkout_folder`` finds a folder of the repository. A chart of another version is another release to
    the operator: it starts a driver upgrade [NVIDIA/gpu-operator 25.3.4, helm.sh/chart in all pod templates].

    Errors as ``controller_charts.chart``.
    """
    folders = [chart(name, checkout_folder(pin_folder(name)), cache) for name in (NAME, NFD)]
    operator, nfd = map(_read, folders)
    metadata, values = yaml.safe_load(operator["Chart.yaml"]), yaml.safe_load(operator["values.yaml"])
    metadata |= {"version": version or versions.GPU_OPERATOR, "appVersion": f"v{GPU_OPERATOR.tool_version}"}
    for dependency in metadata["dependencies"]:
        dependency["version"] = yaml.safe_load(nfd["Chart.yaml"])["version"]
    values["daemonsets"]["annotations"] = {START: "waits"}
    return {
        **{path: content for path, content in operator.items() if not path.startswith(_NFD_FOLDER)},
        **{f"{_NFD_FOLDER}{path}": content for path, content in nfd.items()},
        "Chart.yaml": _dump(metadata),
        "values.yaml": _dump(values),
    }


def _read(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _dump(document: Any) -> bytes:
    return yaml.safe_dump(document, sort_keys=False).encode()
