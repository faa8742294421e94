"""Types of a Pulumi package schema from JSON Schema, so that other languages get typed arguments.

Pulumi's schema has neither ranges nor patterns, lengths or a closed set of keys: `infra.config.parse` checks
those. Choices of text become strings, because an enumeration needs a name. Names are those of the stack file.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

ANY = {"$ref": "pulumi.json#/Any"}
_SCALARS = ("string", "integer", "number", "boolean")


def object_types(definitions: Schema, prefix: str) -> Schema:
    """Every definition with properties as a type whose token starts with ``prefix``."""
    return {
        prefix + name: _object(definition, definitions, prefix)
        for name, definition in definitions.items()
        if "properties" in definition
    }


def _object(definition: Schema, definitions: Schema, prefix: str) -> Schema:
    properties = {
        name: _type(schema, definitions, prefix) | _description(schema) | {"plain": True}
        for name, schema in definition["properties"].items()
    }
    required = definition.get("required", [])
    return {"type": "object", "properties": properties, "required": required} | _description(definition)


def _description(schema: Schema) -> Schema:
    return {"description": schema["description"]} if "description" in schema else {}


def _type(schema: Schema, definitions: Schema, prefix: str) -> Schema:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if "properties" in definitions[name]:
            return {"$ref": f"#/types/{prefix}{name}"}
        return _type(definitions[name], definitions, prefix)
    kind = schema.get("type", "string" if "enum" in schema else None)
    if kind == "array":
        return {"type": kind, "items": _type(schema["items"], definitions, prefix)}
    if kind == "object":
        return {"type": kind, "additionalProperties": _values(schema, definitions, prefix)}
    if kind in _SCALARS:
        return {"type": kind}
    return _union(schema, definitions, prefix)


def _values(schema: Schema, definitions: Schema, prefix: str) -> Schema:
    values = schema.get("additionalProperties")
    return _type(values, definitions, prefix) if isinstance(values, dict) else ANY


def _union(schema: Schema, definitions: Schema, prefix: str) -> Schema:
    """Objects are told apart by a discriminator; without one, a mapping beside another type is any value."""
    alternatives = [
        each for each in schema.get("anyOf", schema.get("oneOf", ())) if each.get("type") != "null"
    ]
    types: list[Schema] = []
    for each in alternatives:
        if (one := _type(each, definitions, prefix)) not in types:
            types.append(one)
    if len(types) == 1:
        return types[0]
    if told := schema.get("discriminator"):
        names = {kind: ref.rpartition("/")[2] for kind, ref in told["mapping"].items()}
        mapping = {kind: f"#/types/{prefix}{name}" for kind, name in names.items()}
        return {"oneOf": types, "discriminator": {**told, "mapping": mapping}}
    if types and all(one.get("type") in _SCALARS for one in types):
        return {"oneOf": types}
    return ANY
