"""Stand-ins for published charts, made on this machine.

NVIDIA's operators, device plugin, exporter and DRA driver, AWS's EFA device plugin and kube-prometheus-stack
are the simulated ones of this repository, Karpenter's CRDs and controllers' charts are the real ones, and
every other chart is a ConfigMap that contains its values.

``python -m lab.offline.charts ROOT CACHE MADE NAME VERSION`` prints the folder of one, see `Charts`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.scratch import folder as private
from gpuform.checkout.scratch import read_files
from lab.offline.language.runner import running_operator
from lab.sidecars.controllers.rows import CHARTS

_SIMULATED: Mapping[str, str] = {
    "gpu-operator": "gpu-operator-sim",
    "nvidia-device-plugin": "device-plugin-sim",
    "dcgm-exporter": "dcgm-exporter-sim",
    "dra-driver-nvidia-gpu": "dra-driver-sim",
    "network-operator": "network-operator-sim",
    "aws-efa-k8s-device-plugin": "efa-device-plugin-sim",
    "kube-prometheus-stack": "kube-prometheus-stack-sim",
}
"""Published charts that have a simulated one in this repository."""
CRDS = "karpenter-crd"
_HERE = Path(__file__).resolve().parents[2]
_VALUES = b"""\
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-values"}
data: {values: {{ .Values | toJson | quote }}}
"""

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Charts:
    """Stand-ins for the program in ``root``, written below ``made``; ``cache`` is Paths.cache."""

    root: Path
    cache: Path
    made: Path
    operator: Path | None = None
    """NVIDIA's own operator, if it runs here: the program, which has its chart next to it."""

    def folder(self, name: str, version: str) -> Path:
        """The folder ``made/NAME``, with a chart of that name and version.

        The path contains no version, so that a preview shows a changed version and not another chart. Raises
        Failure or InputError if Karpenter's CRDs cannot be fetched.
        """
        files, target = self._files(name, version), self.made / name
        if read_files(target) != files:
            _write(target, files)
        return target

    def _files(self, name: str, version: str) -> Files:
        if name == "gpu-operator" and self.operator:
            from lab.offline import pinned_charts

            return pinned_charts.operator_files(self.operator, version)
        version = version or "0.0.0"
        if name in _SIMULATED:
            return _with_metadata(self._checkout_folder(f"charts/{_SIMULATED[name]}"), name, version)
        if name == CRDS:
            from lab.offline import pinned_charts  # imports the toolchain, which few charts need

            pinned = self._checkout_folder(pinned_charts.FOLDER)
            return _with_metadata(pinned_charts.crds_chart(pinned, self.cache), name, version)
        if name == "keda":
            from lab.offline import pinned_charts

            return pinned_charts.keda_files(self._checkout_folder("toolchain/keda"), self.cache, version)
        if name in CHARTS:
            from lab.offline import pinned_charts

            pinned = self._checkout_folder(pinned_charts.pin_folder(name))
            return _with_metadata(pinned_charts.controller_chart(name, pinned, self.cache), name, version)
        metadata = {"apiVersion": "v2", "name": name, "version": version}
        return {"Chart.yaml": json.dumps(metadata).encode(), "templates/values.yaml": _VALUES}

    def _checkout_folder(self, folder: str) -> Path:
        """The folder of the program's checkout, or of this one: an older commit may not have it."""
        program_folder = self.root / folder
        return program_folder if program_folder.is_dir() else _HERE / folder


def _with_metadata(source: Path, name: str, version: str) -> Files:
    files = read_files(source)
    text = files["Chart.yaml"].decode()
    # The source of cert-manager's chart has 0.0.0 for both versions, which a release fills in.
    for key, value in (("name", name), ("version", version), (r"appVersion(?=: v0\.0\.0$)", version)):
        text = re.sub(rf"(?m)^({key}):.*$", rf"\1: {json.dumps(value)}", text)
    return {**files, "Chart.yaml": text.encode()}


def _write(target: Path, files: Files) -> None:
    """Write atomically; a folder that another run has written in the meantime stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with private(target.parent / ".making") as folder:
        ready = folder / "chart"
        for file, content in files.items():
            path = ready / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            if target.is_dir():
                target.rename(folder / "old")
            ready.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def main(arguments: Sequence[str]) -> None:
    """Print the folder, or end with exit code 1 and the reason on stderr."""
    root, cache, made, name, version = arguments
    try:
        charts = Charts(Path(root), Path(cache), Path(made), running_operator())
        print(charts.folder(name, version))
    except (Failure, InputError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
