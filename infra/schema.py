"""Generates the environment's JSON Schema for editors, and the page on every key, from the model.

Both are committed; ``python -m infra.schema docs`` regenerates them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.config import KEY
from infra.model.environment import Environment

SCHEMA_FILE = "environment.schema.json"
PAGE_FILE = "environment.md"

Schema = dict[str, Any]


def environment_schema() -> Schema:
    """JSON Schema (2020-12) of the environment itself.

    It covers keys, types and ranges. ``infra.config.parse`` also finds errors across fields (a layout that
    does not fit, an unknown pool).
    """
    return Environment.model_json_schema(mode="validation")


def stack_schema() -> Schema:
    """JSON Schema of a whole stack file; its other keys belong to the engine."""
    environment = environment_schema()
    definitions = environment.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuform stack file",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "required": [KEY],
                "properties": {KEY: {"$ref": "#/$defs/Environment"}},
            }
        },
        "$defs": {**definitions, "Environment": environment},
    }


def schema_text() -> str:
    """The stack file's schema as JSON on one line, the same bytes every time."""
    return json.dumps(stack_schema(), ensure_ascii=False, separators=(",", ":")) + "\n"


def page_text() -> str:
    """The documentation of every key in Markdown, one table per block of the file."""
    schema = stack_schema()["$defs"]
    order = ["Environment", *(name for name in _PAGE_ORDER if name in schema)]
    order += [name for name in sorted(schema) if name not in order]
    parts = [_HEAD, *(_section(name, schema[name]) for name in order)]
    return "\n".join(parts)


def write(folder: Path) -> None:
    """Write both files into ``folder``."""
    (folder / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")
    (folder / PAGE_FILE).write_text(page_text(), encoding="utf-8")


_PAGE_ORDER = (
    "EmbeddedCluster",
    "ExistingCluster",
    "AwsCluster",
    "OpenstackCluster",
    "TemplateSpec",
    "ClusterNetwork",
    "Masters",
    "Workers",
    "Flavor",
    "HostsCluster",
    "Host",
    "Driver",
    "Runfile",
    "Toolkit",
    "Repository",
    "Network",
    "Endpoint",
    "SystemNodes",
    "GpuOperatorSpec",
    "Upgrade",
    "Drain",
    "Pool",
    "GpuChoice",
    "Elastic",
    "AwsPool",
    "OpenstackPool",
    "Disk",
    "Cost",
    "State",
    "Taint",
    "Exclusive",
    "TimeSlicing",
    "Mps",
    "Mig",
    "PodWorkload",
    "DeploymentWorkload",
    "JobWorkload",
    "GpuNeed",
    "Service",
    "Rolling",
    "Surge",
    "Recreate",
    "BlueGreen",
)

_HEAD = f"""<!-- Made by `python -m infra.schema docs` from infra/model; a test compares. -->

# The environment file

A stack file declares one environment under `config: {KEY}:`. Everything else follows from it: see
`Pulumi.local.yaml` for a commented one and `gpuform render STACK -o DIR` for the result. Put

    # yaml-language-server: $schema=docs/{SCHEMA_FILE}

into the first line of the file, and the editor completes keys and names. An error is reported with its path,
the fact and a remedy, and nothing is changed:

    pools[2].sharing.replicas: 1 shares nothing; use 2 or more, or kind: exclusive
"""


def _section(name: str, schema: Schema) -> str:
    lines = [f"## {name}", "", " ".join(schema.get("description", "").split()), ""]
    lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
    required = schema.get("required", [])
    for key, value in schema.get("properties", {}).items():
        default = "required" if key in required else _default(value)
        lines.append(f"| `{key}` | {_type(value)} | {default} | {value.get('description', '')} |")
    return "\n".join([*lines, ""])


def _default(value: Mapping[str, Any]) -> str:
    if "default" not in value or value["default"] is None:
        return ""
    return f"`{json.dumps(value['default'], ensure_ascii=False)}`"


def _type(value: Mapping[str, Any]) -> str:
    """A type in words; a long list of names becomes a reference."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        names = value["enum"]
        return (
            " \\| ".join(f"`{name}`" for name in names)
            if len(names) < 6
            else "a name that `gpuform gpus` lists"
        )
    for key in ("oneOf", "anyOf"):
        if key in value:
            found = dict.fromkeys(_type(item) for item in value[key] if item.get("type") != "null")
            return " or ".join(found)
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}"
    if value.get("type") == "object":
        return f"mapping of {_type(value.get('additionalProperties') or {'type': 'string'})}"
    return _WORDS.get(value.get("type", ""), "text")


_WORDS = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text"}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
