"""Kueue's own chart, which has its CRDs, and other charts that have CRDs."""

from __future__ import annotations

from typing import Any

from lab.toolchain import Toolchain
from tests.checks.charts import rendered
from tests.checks.everything import Document


def crds(toolchain: Toolchain, chart: str = "kueue") -> list[Document]:
    return [one for one in rendered(toolchain, chart, {}) if one["kind"] == "CustomResourceDefinition"]


def schemas(toolchain: Toolchain, chart: str = "kueue") -> dict[tuple[str, str], Any]:
    """Schema by version and kind."""
    return {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): version["schema"][
            "openAPIV3Schema"
        ]
        for crd in crds(toolchain, chart)
        for version in crd["spec"]["versions"]
        if version["served"]
    }
