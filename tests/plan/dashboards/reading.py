"""Reads a dashboard's JSON: its panels and queries, with variables filled in as Grafana does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.config import load

ROOT = Path(__file__).parents[3]
STACKS = ("local", "aws-dev", "aws-prod", "onprem-dev", "openstack-dev")


def environment(stack: str) -> Any:
    return load(ROOT / f"Pulumi.{stack}.yaml")


def panels(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in model["panels"] if panel["type"] != "row"]


@dataclass(frozen=True)
class Query:
    board: str
    panel: str
    ref: str
    expr: str
    legend: str
    drawn: Mapping[str, Any] = field(repr=False)
    """The whole panel."""

    @property
    def name(self) -> str:
        return f"{self.board}/{self.panel}/{self.ref}"


def queries(models: Mapping[str, Mapping[str, Any]]) -> Iterator[Query]:
    for name, model in models.items():
        for panel in panels(model):
            for target in panel.get("targets", ()):
                about = target["refId"], target["expr"], target.get("legendFormat", "")
                yield Query(name, panel["title"], *about, panel)


def filled(expr: str) -> str:
    return re.sub(r"\$(pool|node|namespace)\b", ".*", expr)


_KEYWORDS = {"and", "or", "unless", "by", "on", "ignoring", "without", "group_left", "group_right", "bool"}
_AGGREGATIONS = {"avg", "count", "max", "min", "sum", "topk"}


def metrics(expr: str) -> set[str]:
    """Series names that an expression reads: neither labels, functions nor numbers."""
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    bare = re.sub(r"\[[^]]*\]", "", bare)
    bare = re.sub(r"\b(by|on|ignoring|without|group_left|group_right)\s*\([^)]*\)", r"\1 ", bare)
    names = re.finditer(r"(?<![\w.])([a-zA-Z_:][\w:]*)(?!\w)(\s*\()?", bare)
    return {match[1] for match in names if match[1] not in _KEYWORDS | _AGGREGATIONS and not match[2]}
