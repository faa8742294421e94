"""Creates a stack file from the example that fits the stack's name best."""

from __future__ import annotations

import re

from gpuform.checkout.errors import InputError
from gpuform.stack.scaffold.bucket import Place
from infra import strict_yaml
from infra.config import KEY, parse

_REGION = re.compile(r"^[a-z]{2}(-[a-z]+)+-\d\Z")
_STATE = """
    # Where the engine keeps the state of this stack: a bucket, encrypted with a key. Every person and every
    # pipeline that changes the stack needs access. `gpuform init` prints the commands that create both.
    state:
      backend: {backend}
      secrets_provider: {key} # protects the secrets in it
"""


def example(stack: str) -> str:
    """Name of the example for a stack of this name: for production the one that survives a zone failure."""
    return "aws-prod" if re.search(r"prod|live", stack) else "aws-dev"


def stack_file(stack: str, text: str, place: Place) -> str:
    """The example's ``text`` as ``stack``'s own file, with the region and the state of ``place``.

    Raises InputError for an invalid name or address.
    """
    if not _REGION.match(place.region):
        raise InputError("--region", f"{place.region!r} is not an AWS region", "write it as eu-central-1")
    had = region_of(text)
    text = re.sub(r"^(    name: )\S+", rf"\g<1>{stack}", text, count=1, flags=re.MULTILINE)
    if place.region != had:
        text = re.sub(rf"^(      region: ){had}.*$", rf"\g<1>{place.region}", text, flags=re.MULTILINE)
        text = re.sub(rf"\b{had}([a-z])\b", rf"{place.region}\1", text)
    written = text.rstrip("\n") + "\n" + _STATE.format(backend=place.backend, key=place.secrets_provider)
    parse(strict_yaml.parse(written, f"Pulumi.{stack}.yaml")["config"][KEY], f"Pulumi.{stack}.yaml")
    return written


def region_of(text: str) -> str:
    return str(strict_yaml.parse(text, "example")["config"][KEY]["cluster"]["region"])
