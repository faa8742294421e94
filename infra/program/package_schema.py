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
    """A type for each definition that has properties; ``prefix`` begins its token."""
    return {
        prefix + name: _object(definition, definitions, prefix)
        for name, definition in definitions.items()
        if "properties" in definition
    }


def _object(definition: Schema, definitions: Schema, prefix: str) -> Schema:
    properties = {
        name: _type(schema, definitions, prefix) | _kept(schema) | {"plain": True}
        for name, schema in definition["properties"].items()
    }
    required = definition.get("required", [])
    return {"type": "object", "properties": properties, "required": required} | _kept(definition)


def _kept(schema: Schema) -> Schema:
    return {key: schema[key] for key in ("description", "const") if key in schema}


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
        values = schema.get("additionalProperties")
        value = _type(values, definitions, prefix) if isinstance(values, dict) else ANY
        return {"type": kind, "additionalProperties": value}
    return {"type": kind} if kind in _SCALARS else _union(schema, definitions, prefix)


def _union(schema: Schema, definitions: Schema, prefix: str) -> Schema:
    """Pulumi's unions are of scalars, or of objects with a discriminator; a value of another is not typed."""
    types: list[Schema] = []
    for each in schema.get("anyOf") or schema.get("oneOf") or ():
        if each.get("type") != "null" and (one := _type(each, definitions, prefix)) not in types:
            types.append(one)
    if len(types) == 1:
        return types[0]
    if told := schema.get("discriminator"):
        mapping = {kind: f"#/types/{prefix}{ref.rpartition('/')[2]}" for kind, ref in told["mapping"].items()}
        return {"oneOf": types, "discriminator": {**told, "mapping": mapping}}
    is_typed = types and all(one.get("type") in _SCALARS for one in types)
    return {"oneOf": types} if is_typed else ANY
