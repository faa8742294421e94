"""One row of the table: what a Pulumi type is at AWS, and what comes back when it is made.

Which inputs force a replacement is what the schemas of HashiCorp's provider (internal/service/*, ForceNew)
say, which pulumi_aws wraps; which parameters a call takes is botocore's service model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ACCOUNT = "123456789012"  # the account of AWS's own examples

TAG_SPECIFICATIONS = "TagSpecifications[0].Tags"


@dataclass(frozen=True)
class Row:
    """A Pulumi resource type.

    ``call`` is service and operation of botocore. ``inputs`` are all inputs that the SDK has. Each goes to
    the parameter of its own name (case aside, below ``under``), unless ``places`` says where: a path of the
    same call, ``Operation:path`` of another one, ``None`` for what only the provider uses; a key with a dot
    renames a member further down, and ``List*Member`` makes each item a structure. ``replaces`` are the
    inputs that AWS cannot change; ``x-`` means: only taken away.

    ``id`` and ``outputs`` are templates: {partition} {region} {account} {name} {hex} {id} {endpoint}
    {certificate}, and inputs as {inputs[clusterName]}. ``defaults`` become inputs, as with the real provider.
    ``named`` is the input that the provider makes up where it is missing; ``documents`` must hold JSON.
    ``counted`` is an output that grows by one with each change of an input outside of ``uncounted``;
    ``renewed`` maps an output to the inputs whose change makes it unknown in a preview. ``guard`` is the
    input that, when true, keeps the object from being deleted.
    """

    call: str
    inputs: tuple[str, ...]
    id: str
    replaces: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str | None] = field(default_factory=dict)
    under: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    named: str = ""
    documents: tuple[str, ...] = ()
    counted: str = ""
    uncounted: tuple[str, ...] = ()
    renewed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    guard: str = ""

    @property
    def service(self) -> str:
        """botocore's name of the service."""
        return self.call.split(".")[0]

    @property
    def operation(self) -> str:
        """botocore's name of the operation."""
        return self.call.split(".")[1]

    @property
    def regional(self) -> bool:
        """Whether the object lies in a region; those of IAM do not."""
        return "region" in self.inputs

    @property
    def tagged(self) -> bool:
        """Whether the provider's default tags go onto it."""
        return "tags" in self.inputs

    def sent(self, name: str) -> bool:
        """Whether an input is a parameter of a call; the region says where a call goes."""
        return name != "region" and self.places.get(name, "") is not None

    def forces(self, path: str, removed: bool) -> bool:
        """Whether a change at ``path`` (names and dots, no indices) needs a new object."""
        for entry in self.replaces:
            prefix = entry.removesuffix("-")
            inside = path == prefix or path.startswith(prefix + ".")
            if inside and (entry == prefix or (removed and path == prefix)):
                return True
        return path == "region"


def words(text: str) -> tuple[str, ...]:
    """Names from a text with spaces."""
    return tuple(text.split())


def arn(service: str, resource: str) -> str:
    """Template of a regional ARN."""
    return f"arn:{{partition}}:{service}:{{region}}:{{account}}:{resource}"
