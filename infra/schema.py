"""JSON Schema of the environment and of a stack file, for editors.

It covers keys, types and ranges. ``infra.config.parse`` also finds errors across fields (a layout that does
not fit, an unknown pool).
"""

from __future__ import annotations

import json
from typing import Any

from infra.config import KEY
from infra.model.environment import Environment

Schema = dict[str, Any]


def stack_schema() -> Schema:
    """JSON Schema (2020-12) of a whole stack file; its keys beside ``config`` belong to the engine."""
    environment = Environment.model_json_schema(mode="validation")
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
