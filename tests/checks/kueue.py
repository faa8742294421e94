"""Kueue's own chart, which has its CRDs."""

from __future__ import annotations

from typing import Any

from gpuform.toolchain import Toolchain
from tests.checks.charts import rendered
from tests.checks.everything import Document


def crds(toolchain: Toolchain) -> list[Document]:
    return [one for one in rendered(toolchain, "kueue", {}) if one["kind"] == "CustomResourceDefinition"]


def schemas(toolchain: Toolchain) -> dict[tuple[str, str], Any]:
    """Schema by version and kind."""
    return {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): version["schema"][
            "openAPIV3Schema"
        ]
        for crd in crds(toolchain)
        for version in crd["spec"]["versions"]
        if version["served"]
    }
