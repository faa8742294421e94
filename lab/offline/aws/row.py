"""One row of the table: the API call of a Pulumi type at AWS, and the outputs of its create.

Which inputs force a replacement is from the schemas of HashiCorp's provider (internal/service/*, ForceNew),
which pulumi_aws wraps; which parameters a call takes is from botocore's service model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ACCOUNT = "123456789012"  # the account of AWS's own examples

TAG_SPECIFICATIONS = "TagSpecifications[0].Tags"


@dataclass(frozen=True)
class ResourceRow:
    """A Pulumi resource type.

    ``call`` is service and operation of botocore. Each input of the SDK is sent as the parameter of its own
    name (ignoring case, below ``parent``), unless ``parameters`` names a path of the same call,
    ``Operation:path`` of another call, or ``None`` for an input that only the provider uses; a key with a dot
    renames a nested member. Inputs that no component sets need no place. ``replaces`` are the inputs that
    force a replacement; ``x-`` means: only if it is removed.

    ``id`` and ``outputs`` are templates: {partition} {region} {account} {name} {hex} {id} {endpoint}
    {certificate}, and inputs as {inputs[clusterName]}. ``defaults`` become inputs, as with the real provider.
    ``name_input`` is the input that the provider generates if it is missing; ``documents`` must contain JSON.
    ``version_output`` is an output that grows by one with each change of an input outside of
    ``version_exempt``; ``renewed_outputs`` maps an output to the inputs that make it unknown in a preview
    when they change. ``deletion_guard`` is the input that, when true, prevents the deletion of the object.
    """

    call: str
    id: str
    replaces: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    parent: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    name_input: str = ""
    documents: tuple[str, ...] = ()
    version_output: str = ""
    version_exempt: tuple[str, ...] = ()
    renewed_outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deletion_guard: str = ""
    tagged: bool = True

    @property
    def service(self) -> str:
        return self.call.split(".")[0]

    @property
    def operation(self) -> str:
        return self.call.split(".")[1]

    @property
    def regional(self) -> bool:
        """Whether the object belongs to a region; IAM objects do not."""
        return self.service != "iam"

    def is_sent(self, name: str) -> bool:
        """Whether an input is a parameter of a call; ``region`` selects the endpoint instead."""
        return name != "region" and self.parameters.get(name, "") is not None

    def forces_replacement(self, path: str, removed: bool) -> bool:
        """Whether a change at ``path`` (names and dots, no indices) forces a replacement."""
        for entry in self.replaces:
            prefix = entry.removesuffix("-")
            inside = path == prefix or path.startswith(prefix + ".")
            if inside and (entry == prefix or (removed and path == prefix)):
                return True
        return path == "region"


def split_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def arn_template(service: str, resource: str) -> str:
    return f"arn:{{partition}}:{service}:{{region}}:{{account}}:{resource}"
