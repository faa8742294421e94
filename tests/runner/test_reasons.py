"""Messages for a failed host, from the output of ssh and modules; texts as recorded on booted hosts."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.hosts.reasons import failure_reason, unreachable_reason
from gpuform.hosts.runner import HIDDEN, SecretFilter, secrets_of, texts_of

pytestmark = pytest.mark.unit

VIA = "Failed to connect to the host via ssh: "
CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r
The fingerprint for the ED25519 key sent by the remote host is\nSHA256:0123abcd+/.\r
Host key verification failed."""


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        (CHANGED, "wrong host key: it shows SHA256:0123abcd+/, not the one in known_hosts"),
        (
            (
                "No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.\r\n"
                "Host key verification failed."
            ),
            "unknown host key: known_hosts has none for it",
        ),
        ("root@10.0.0.1: Permission denied (publickey).", "ssh login refused; check cluster.user"),
        (
            "ssh: connect to host 10.0.0.1 port 22: No route to host",
            "cannot be reached (No route to host); check its address, port and power",
        ),
        (
            "ssh: Could not resolve hostname gpu-9: Name or service not known",
            "cannot be reached (Could not resolve hostname gpu-9: Name or service not known)",
        ),
        ("Something else\nhappened", "Failed to connect to the host via ssh: Something else happened"),
    ],
)
def test_why_a_host_was_not_reached(message: str, meant: str) -> None:
    assert unreachable_reason({"unreachable": True, "msg": VIA + message}).startswith(meant)


def test_a_hidden_reason_stays_hidden() -> None:
    assert "log in by ssh to see it" in unreachable_reason({"censored": "hidden"})
    assert "check the host" in failure_reason({"censored": "hidden"})


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "No package matching 'x' is available"}, "No package matching 'x' is available"),
        ({"msg": "non-zero return code", "stderr": "a\nb", "stdout": "c"}, "non-zero return code; a b"),
        ({"msg": "MODULE FAILURE", "module_stderr": "sh: python3: not found"}, "MODULE FAILURE"),
        ({"msg": "", "stdout": "only this"}, "only this"),
        ({}, "failed without a message"),
        (
            {"msg": "One or more items failed", "results": [{"failed": True, "msg": "a"}, {"msg": "fine"}]},
            "a",
        ),
        ({"msg": "x" * 700}, "x" * 600 + "..."),
    ],
)
def test_why_a_task_failed(result: dict[str, Any], message: str) -> None:
    assert failure_reason(result) == message


def test_what_is_named_as_a_secret_is_hidden_everywhere() -> None:
    inventory = {
        "a": {"ansible_become_password": "hunter22", "token": "abc", "url": "http://me:pa55word@host/x"},
        "b": [{"api_token": "t0ken-1"}],
    }
    hide = SecretFilter(secrets_of(inventory))
    assert hide("hunter22 pa55word t0ken-1 abc") == f"{HIDDEN} {HIDDEN} {HIDDEN} abc"
    assert hide({"k": ["http://x:other@y/"]}) == {"k": [f"http://x:{HIDDEN}@y/"]}


def test_of_a_secret_inventory_every_longer_text_is_one() -> None:
    variables = {"one": {"ansible_host": "10.10.10.10", "some_word": "canary-1", "mode": "open"}}
    assert list(texts_of(variables)) == ["canary-1"]
