"""The environment of a program that the stand-in language host runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.offline.language.interpreter import Interpreter

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("callers", ["", "/a:/b"])
def test_a_program_gets_the_callers_path_and_not_the_hosts(callers: str) -> None:
    started = {"PYTHONPATH": "/ours", "GPUFORM_PYTHONPATH": callers}
    found = Interpreter(Path("python"), None).process_environment(started)
    assert found == {"PYTHONPATH": callers}
