"""A release's values: what the program says, its value files merged in, against what helm has stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpuform.plugins.handler import PluginError
from gpuform.plugins.properties import SIGNATURE, Secret, has_secret, reveal

_ASSET = "c44067f5952c0a294b673a41bacd8c17"  # pulumi's sdk/python/lib/pulumi/runtime/rpc.py


def merged(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The values that helm is given, secrets revealed: the files in order, then ``values``; the later wins.

    Null leaves a key out, unless ``allowNullValues`` passes it on (helm then drops the chart's default).
    Raises `PluginError` for a file that is not there or not a YAML map.
    """
    plain = reveal(inputs)
    result: dict[str, Any] = {}
    for item in plain.get("valueYamlFiles") or []:
        result = _over(result, _file(item))
    result = _over(result, plain.get("values") or {})
    pruned: dict[str, Any] = result if plain.get("allowNullValues") else without_nulls(result)
    return pruned


def is_asset(value: Any) -> bool:
    """Whether ``value`` is an asset as it comes over the wire."""
    return isinstance(value, Mapping) and value.get(SIGNATURE) == _ASSET


def live_inputs(inputs: Mapping[str, Any], stored: Mapping[str, Any]) -> Any:
    """The input ``values`` that say what helm has stored: the old ones where they say just that.

    Otherwise what is stored (with the value files' keys in it), as a whole secret if the old ones held one.
    """
    old = inputs.get("values")
    if merged(inputs) == stored:
        return old
    return (
        Secret(dict(stored)) if has_secret(old) or has_secret(inputs.get("valueYamlFiles")) else dict(stored)
    )


def _file(asset: Any) -> dict[str, Any]:
    if not is_asset(asset):
        raise PluginError("valueYamlFiles: an item is no asset; use pulumi.FileAsset or pulumi.StringAsset")
    name = str(asset.get("path") or "an asset's text")
    if asset.get("uri"):
        raise PluginError(f"valueYamlFiles: {asset['uri']} is remote; download it, or use pulumi.FileAsset")
    try:
        text = Path(str(asset["path"])).read_text() if asset.get("path") else str(asset.get("text") or "")
        content = yaml.safe_load(text) or {}
    except (OSError, yaml.YAMLError) as error:
        raise PluginError(
            f"valueYamlFiles: {name}: {type(error).__name__}; give a readable YAML file"
        ) from error
    if not isinstance(content, dict):
        raise PluginError(f"valueYamlFiles: {name} holds no map; values are a map of keys")
    return content


def _over(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    result = dict(below)
    for key, value in above.items():
        result[key] = _over(below[key], value) if key in below else value
    return result


def without_nulls(value: Any) -> Any:
    """``value`` without its null keys and items; a `Secret` stays one."""
    if isinstance(value, Secret):
        return Secret(without_nulls(value.value))
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value
