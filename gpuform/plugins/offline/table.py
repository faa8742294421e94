"""Every type that offline runs know."""

from __future__ import annotations

from collections.abc import Mapping

from gpuform.plugins.handler import PluginError
from gpuform.plugins.offline import eks, instances, network, services
from gpuform.plugins.offline.row import Row

ROWS: Mapping[str, Row] = {**network.ROWS, **instances.ROWS, **eks.ROWS, **services.IAM, **services.OTHERS}


def row(token: str) -> Row:
    """The row of a type; `PluginError` names the types that there are."""
    if token not in ROWS:
        known = ", ".join(sorted(name.rsplit(":", 1)[-1] for name in ROWS))
        raise PluginError(
            f"{token}: the offline stand-in of the aws provider does not know this type (it knows {known}); "
            "add a row to gpuform/plugins/offline, or run with an account and the official plugin"
        )
    return ROWS[token]
