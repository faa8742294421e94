"""Values of the examples that stand for the user's own; runs at a real cloud refuse them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpuform.checkout.errors import InputError
from infra.model.environment import Environment

_ANYWHERE = re.compile(
    r"arn:aws[a-z-]*:iam::(111122223333|123456789012|444455556666):.*"  # accounts of AWS's documentation
    r"|[a-z]+-0123456789abcdef\d"
    r"|(192\.0\.2|198\.51\.100|203\.0\.113)\.\d+(/\d+)?|2001:db8:.*"  # RFC 5737, RFC 3849
)
_HOST = re.compile(r"([a-z]+://)?([\w.-]+\.)?example\.(com|net|org)([:/].*)?")  # RFC 2606
_OF_A_HOST = re.compile(r"(^|\.)(image|driver_repository|url|address|backend)$|^registries\.")
"""Fields that name a host; elsewhere example.com may be the prefix of a label."""


def require_own_values(env: Environment) -> None:
    """Raise InputError if the environment still has placeholders of the examples, unless it is simulated."""
    declared = {} if env.is_simulated else env.model_dump(mode="json", exclude_unset=True)
    found = {
        path: text
        for path, text in _texts(declared, "")
        if _ANYWHERE.fullmatch(text) or (_OF_A_HOST.search(path) and _HOST.fullmatch(text))
    }
    if found:
        path, *others = found
        fact = f"{found[path]} is a placeholder of the examples"
        fact += f", as in {', '.join(others)}" if others else ""
        raise InputError(path, fact, "replace it by your own (offline runs accept it)")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(
                item, f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}".strip(".")
            )
    elif isinstance(value, str):
        yield path, value
