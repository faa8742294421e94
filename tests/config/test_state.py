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


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "state.backend: missing; add it"),
        (BACKEND, f"state: holds the text '{BACKEND}'; give a mapping, key: value"),
        (
            {"backend": 1},
            "state.backend: holds the number 1; give text (in quotes if it looks like a number)",
        ),
        (
            {"backend": "https://app.example"},
            "state.backend: unknown scheme 'https'; known: s3, gs, azblob, file",
        ),
        (
            {"backend": "s4://team-state"},
            "state.backend: unknown scheme 's4'; known: s3, gs, azblob, file",
        ),
        (
            {"backend": "team-state"},
            "state.backend: 'team-state' has no scheme; write it as s3://BUCKET/PREFIX?region=REGION",
        ),
        (
            {"backend": "s3:///gpu"},
            "state.backend: 's3:///gpu' names no bucket; write it as s3://BUCKET/PREFIX?region=REGION",
        ),
        (
            {"backend": "file://state"},
            "state.backend: 'file://state' is not an absolute folder; write it as file:///FOLDER or file://~/FOLDER",
        ),
        (
            {"backend": "s3://me:hush@team-state"},
            (
                "state.backend: carries a user or a password; "
                "take it out: credentials come from the environment of the run"
            ),
        ),
        (
            {"secrets_provider": KEY},
            (
                "state.secrets_provider: has no effect without a backend: the state is local; "
                "add backend, or leave secrets_provider out"
            ),
        ),
        (
            {"backend": BACKEND, "secrets_provider": "passphrase"},
            (
                "state.secrets_provider: a passphrase protects secrets by default; "
                "leave secrets_provider out, and set PULUMI_CONFIG_PASSPHRASE"
            ),
        ),
        (
            {"backend": BACKEND, "secrets_provider": "kms://alias/x"},
            (
                "state.secrets_provider: unknown scheme 'kms'; did you mean gcpkms? "
                "known: awskms, gcpkms, azurekeyvault, hashivault"
            ),
        ),
        (
            {"backend": BACKEND, "secrets_provider": "awskms://?region=eu-central-1"},
            (
                "state.secrets_provider: 'awskms://?region=eu-central-1' names no key; "
                "write it as awskms://alias/NAME?region=REGION"
            ),
        ),
        (
            {"bucket": "x"},
            "state.bucket: unknown key; did you mean backend? known: backend, secrets_provider",
        ),
    ],
)
def test_bad_ones_say_where_what_and_how(state: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(declared(state))
    assert str(caught.value) == said


def test_the_embedded_cluster_has_none_and_says_why() -> None:
    with pytest.raises(InputError) as caught:
        parse(declared({"backend": BACKEND}, "embedded"))
    assert str(caught.value) == (
        "state: the embedded cluster exists on this machine only, so its state cannot be shared; "
        "leave state out, or declare a cluster that others can reach"
    )
