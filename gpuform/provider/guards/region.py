"""The region of a cluster: the declared one, else that of clouds.yaml or the OS_ variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure, InputError

PATH = "cluster.region"
RECORD = "region"
"""The guard's own input in which its check records the cluster's region."""

_OFFLINE = "RegionOne"
"""As in toolchain/pulumi-openstack/offline."""

Implied = Callable[[str], str]


def implied(cloud: str) -> str:
    """The region of an entry of clouds.yaml, or of the OS_ variables for ``""``; empty if unset.

    Reads files only, sends no request. In offline runs it is the region of their made-up cloud.
    """
    if os.environ.get("GPUFORM_OFFLINE"):
        return _OFFLINE
    from gpuform.clients.openstack.cloud import connect

    try:
        return connect(cloud or None).region
    except (Failure, InputError):
        return ""


@dataclass(frozen=True)
class Placed:
    """The region of the cluster (``was``), and the one it is to have (``now``); empty if unknown.

    ``wrong`` says why the region must be declared.
    """

    was: str
    now: str
    wrong: str = ""

    def among(self, fixed: Any, region: str) -> Any:
        """``fixed`` with ``region`` as the cluster's region."""
        return {**fixed, PATH: region} if region and isinstance(fixed, Mapping) else fixed


def placed(before: Mapping[str, Any], after: Mapping[str, Any], ask: Implied) -> Placed:
    """Compare the last run's region with this one's; ``ask`` is `implied`, called only if needed.

    Declaring the region that the credentials imply is not a change. Leaving it out is not one either: the
    provider keeps a cluster's region if its program names none.
    """
    cloud, declared = str(after.get("cloud") or ""), _declared(after)
    was = str(before.get(RECORD) or _declared(before))
    if declared:
        if before and not was:
            was = ask(str(before.get("cloud", cloud)))
        return Placed(was, declared)
    same_way = before.get("cloud", cloud) == cloud and not _declared(before)
    if was and same_way:
        return Placed(was, was)
    leads = ask(cloud)
    if was and leads and leads != was:
        fact = f'{PATH}: the cluster is in "{was}", and without it new node groups would go to "{leads}"'
        return Placed(was, was, f'{fact}, which the credentials imply; write region: "{was}"')
    return Placed(was or leads, was or leads)


def _declared(inputs: Mapping[str, Any]) -> str:
    fixed = inputs.get("fixed")
    found = fixed.get(PATH) if isinstance(fixed, Mapping) else None
    return found if isinstance(found, str) else ""
