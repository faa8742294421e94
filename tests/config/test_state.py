"""The state's address: accepted ones, and the message for each wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.errors import InputError

pytestmark = pytest.mark.unit

BACKEND = "s3://team-state/gpu?region=eu-central-1"
KEY = "awskms://alias/gpuform?region=eu-central-1"


def declared(state: Any, kind: str = "existing") -> dict[str, Any]:
    cluster = {"kind": kind, "kubeconfig": "/k"} if kind == "existing" else {"kind": kind}
    pool = {"name": "t4", "machine": "g2.5xlarge"}
    pool |= {"selector": {"a": "b"}} if kind == "existing" else {"nodes": 1}  # type: ignore[dict-item]
    return {"name": "e", "cluster": cluster, "pools": [pool], "state": state}


@pytest.mark.parametrize(
    "state",
    [
        {"backend": BACKEND, "secrets_provider": KEY},
        {"backend": "s3://team-state"},
        {"backend": "gs://team-state/gpu", "secrets_provider": "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k"},
        {"backend": "azblob://team-state", "secrets_provider": "azurekeyvault://team.vault.azure.net/keys/k"},
        {"backend": "file:///srv/state", "secrets_provider": "hashivault://gpuform"},
        {"backend": "file://~/state", "secrets_provider": "awskms:///arn:aws:kms:eu-central-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"},
        None,
    ],
)  # fmt: skip
def test_good_ones_come_back_as_declared(state: Any) -> None:
    found = parse(declared(state))
    assert (found.state.model_dump(exclude_none=True) if found.state else None) == state
    assert parse(found.resolved()) == found


def test_the_embedded_cluster_has_none_and_says_why() -> None:
    with pytest.raises(InputError) as caught:
        parse(declared({"backend": BACKEND}, "embedded"))
    assert str(caught.value) == (
        "state: the embedded cluster exists on this machine only, so its state cannot be shared; "
        "leave state out, or declare a cluster that others can reach"
    )
