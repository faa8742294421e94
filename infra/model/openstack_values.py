"""Types of the values of an OpenStack environment (names, labels, versions), each validated on its own.

Ranges are those of Magnum's API (its source of 2026-07, api/controllers/v1).
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from infra.model.errors import InputError

MASTER_ROLE = "master"

_VERSION = re.compile(r"1\.[0-9]{1,2}")
_LABEL = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]*")
_ROLE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def _version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise InputError("", f"{value!r} is not a minor version of Kubernetes", 'write it as "1.30"')
    return value


def _named(value: str) -> str:
    if not value.strip() or len(value) > 255 or any(ord(one) < 32 for one in value):
        raise InputError(
            "", f"{value!r} is not a name in OpenStack", "give a name or an id, 255 characters at most"
        )
    return value


def _image(value: str) -> str:
    if "/" in value or "@" in value:
        raise InputError(
            "", f"{value!r} is a container image", "name an image of Glance, which the nodes boot from"
        )
    return _named(value)


def _label_key(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise InputError("", f"{value!r} is not a label of Magnum's", "write it as boot_volume_size")
    return value


def _as_text(value: Any) -> Any:
    """Magnum's labels are strings; YAML reads true and 20 as other types, and 1.30 as 1.3 (refused)."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _role(value: str) -> str:
    if value == MASTER_ROLE:
        raise InputError("", "Magnum keeps the role master for the control plane", "use another role")
    if not _ROLE.fullmatch(value) or len(value) > 63:
        fact = f"{value!r} is not a valid value of a node's role label"
        raise InputError("", fact, "use at most 63 of a-z, 0-9 and -")
    return value


OpenstackName = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_named)]
"""Name or id of an OpenStack object; preflight checks that it exists."""
ImageName = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_image)]
MagnumLabels = dict[
    Annotated[str, Field(strict=True), AfterValidator(_label_key)],
    Annotated[str, Field(strict=True), BeforeValidator(_as_text, json_schema_input_type=str | int | bool)],
]
MinorVersion = Annotated[str, Field(strict=True), AfterValidator(_version)]
Role = Annotated[str, Field(strict=True), AfterValidator(_role)]
