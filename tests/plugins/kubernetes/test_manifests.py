"""What is sent, kept and said: no secret in the clear, no field taken from others."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gpuform.plugins.kubernetes import manifests
from gpuform.plugins.kubernetes.client import ApiError
from gpuform.plugins.kubernetes.ignoring import without_ignored
from gpuform.plugins.kubernetes.messages import refusal
from gpuform.plugins.properties import UNKNOWN, Secret

pytestmark = pytest.mark.unit


def test_a_secrets_text_is_encoded_and_always_secret() -> None:
    token = "kubernetes:core/v1:Secret"
    inputs = manifests.normal({"stringData": {"p": "canary"}, "data": {"q": "eA=="}}, token)
    encoded = base64.b64encode(b"canary").decode()
    assert inputs == {"apiVersion": "v1", "kind": "Secret", "data": Secret({"q": "eA==", "p": encoded})}
    unknown = manifests.normal({"stringData": Secret({"p": UNKNOWN})}, token)
    assert unknown["stringData"] == Secret({"p": UNKNOWN})
    live_secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": {manifests.LAST_APPLIED: '{"data": {"p": "canary"}}'}},
        "data": {"p": encoded},
    }
    state = manifests.outputs(live_secret, {}, "m")
    assert "canary" not in repr(state)
    assert encoded not in repr(state)


def test_what_is_sent_has_no_secrets_wrapped_and_nothing_null() -> None:
    assert manifests.payload({"a": Secret({"b": None, "c": 1}), "d": [None, {"e": None}]}) == {
        "a": {"c": 1},
        "d": [None, {}],
    }


def test_an_error_shows_no_secret_and_names_field_and_remedy() -> None:
    status = {
        "message": "x",
        "details": {"causes": [{"field": "data.p", "message": 'Invalid value: "canary": too long'}]},
    }
    manifest = {"kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}
    text = str(refusal(ApiError(422, status), manifest, {"data": Secret({"p": "canary"})}, "urn:x"))
    assert text == (
        'Secret n/s: the server does not change this in place: data.p: Invalid value: "[secret]": too long; '
        'undo the change, or replace the object: replace_on_changes=["data.p"] on the resource, or pulumi up '
        "--replace 'urn:x'"
    )


def test_the_dump_of_an_object_is_left_out_of_an_error() -> None:
    dump = "Invalid value: {" + "x" * 5000 + "}: field is immutable"
    status = {"message": "x", "details": {"causes": [{"field": "spec.template", "message": dump}]}}
    text = str(refusal(ApiError(422, status), {"kind": "Job", "metadata": {"name": "j"}}, {}))
    assert text == "Job j: spec.template: field is immutable"


def test_ignored_fields_are_left_to_others_and_kept_if_ours() -> None:
    def entry(fields: Any) -> dict[str, Any]:
        return {"manager": "us", "operation": "Apply", "fieldsV1": fields}

    body = {"spec": {"replicas": 1, "paused": True}}
    seen = {
        "metadata": {"managedFields": [entry({"f:spec": {"f:paused": {}}})]},
        "spec": {"replicas": 5, "paused": False},
    }
    paths = ["spec.replicas", "spec.paused", "spec.absent"]
    assert without_ignored(body, seen, "us", paths) == {"spec": {"paused": False}}
    assert body == {"spec": {"replicas": 1, "paused": True}}
