from __future__ import annotations

from pathlib import Path

import pytest

from gpuform.engine.result import why_it_failed

pytestmark = pytest.mark.unit

TOKEN = "openstack:containerinfra/getClusterTemplate:getClusterTemplate"
INVOKED = f"Exception: invoke of {TOKEN} failed: invocation of {TOKEN} returned an error:"
TRACEBACK = """Program failed with an unhandled exception:
Traceback (most recent call last):
  File "stack.py", line 270, in run_in_stack
    await run_pulumi_func(run)
"""


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([f"{TRACEBACK}{INVOKED} no cloud"], "failed: no cloud"),
        ([f"{TRACEBACK}ValueError: odd"], "failed: ValueError: odd"),
        (["update failed", "another"], "failed: update failed (and 1 more)"),
        (["2 errors occurred:\n  * the first\n  * the second"], "failed: 2 errors occurred: * the first"),
        ([""], "failed: no reason given"),
        ([], "failed with exit code 255"),
    ],
)
def test_the_line_that_says_what_is_wrong(errors: list[str], said: str) -> None:
    assert why_it_failed(errors, 255, None) == said


def test_without_reported_errors_the_log_is_asked_and_a_signal_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Updating\nerror: the stack is locked\nerror: again\n")
    assert why_it_failed([], 255, log) == "failed: the stack is locked (and 1 more)"
    assert why_it_failed([], -9, None) == "failed: the engine was killed by signal 9"
