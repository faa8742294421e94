"""A gpuform program in Python: files of ``infra/incluster`` in a ConfigMap, on a public Python image.

The ConfigMap is named by its content, so that a change of the program or its settings makes a new pod.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import versions
from infra.plan import sharing
from infra.plan.program import CONFINED, Manifest, Program

SOURCE = Path(__file__).resolve().parent.parent / "incluster"
_GRACE_S = 5


@dataclass(frozen=True)
class Script:
    """``files`` are mounted in ``folder``, and the first one runs; ``told`` is its settings file."""

    program: Program
    files: tuple[str, ...]
    told: str
    folder: str

    def config_map(self, told: Any) -> Manifest:
        """The files, and ``told`` as JSON, in the program's namespace."""
        files = {name: (SOURCE / name).read_text(encoding="utf-8") for name in self.files}
        asked = json.dumps(told, indent=1, sort_keys=True) + "\n"
        data, program = {**files, self.told: asked}, self.program
        return sharing.config_map(program.env, program.name, data, program.namespace)

    def pod(
        self, config_map: Manifest, memory: str, mounts: tuple[tuple[Manifest, str], ...] = (), **more: Any
    ) -> Manifest:
        """The pod, with ``memory`` as its limit.

        ``mounts`` are further volumes, each with its path; ``more`` are further fields of the container.
        """
        files = {"name": "program", "configMap": {"name": config_map["metadata"]["name"]}}
        mounts = ((files, self.folder), *mounts)
        runs, reads = (f"{self.folder}/{name}" for name in (self.files[0], self.told))
        container = {
            "name": self.program.name,
            "image": self.program.env.image(versions.READINESS_GATE_IMAGE),
            # -I keeps the environment out of the interpreter, -B its bytecode off a read-only file system.
            "command": ["python3", "-I", "-B", runs, reads],
            **more,
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": memory}},
            "securityContext": CONFINED,
            "volumeMounts": [
                {"name": volume["name"], "mountPath": path, "readOnly": True} for volume, path in mounts
            ],
        }
        volumes = (volume for volume, _ in mounts)
        return self.program.pod(container, *volumes, terminationGracePeriodSeconds=_GRACE_S)
