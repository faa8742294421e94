"""``gpuform whatif``: the table, the JSON, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gpuform.cli.main import app

pytestmark = pytest.mark.unit

TRACE = """arrival,duration,name,gpus,cpu,memory,models
0,3600,share,0.25,1,4,T4
0,3600,large,4,8,32,A100-PCIE-40GB
60,3600,late,4,8,32,A100-PCIE-40GB
90,60,cpu,0,1,2,
"""


def whatif(tmp_path: Path, text: str, *options: str) -> Result:
    file = tmp_path / "t.csv"
    file.write_text(text)
    return CliRunner().invoke(app, ["whatif", "local", "--trace", str(file), *options])


def test_a_row_for_each_policy_and_what_the_model_leaves_out(tmp_path: Path) -> None:
    done = whatif(tmp_path, TRACE)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].strip() == "4 jobs on 13 GPUs of stack local"
    names = ["random", "least-allocated", "most-allocated", "best-fit", "fgd", "lookahead"]
    assert [line.split()[0] for line in lines[2:8]] == names
    assert all(" 59 min " in line for line in lines[2:8])  # late waits for large
    assert lines[-1].startswith("a model: no pod was started;")


def test_json_of_one_policy(tmp_path: Path) -> None:
    found = json.loads(whatif(tmp_path, TRACE, "--policy", "fgd", "--json").stdout)
    (policy,) = found["policies"]
    assert (policy["policy"], policy["waited"], policy["wait_mean_s"]) == ("fgd", 1, 3540)
    assert policy["gpu_hours"] == pytest.approx(8.25, abs=0.1)  # T4s are shared by four and by three
    hours = 7140 / 3600 + 1 / 60
    assert policy["node_gpu_hours"] == pytest.approx(13 * hours, rel=0.02)
    assert [pool["name"] for pool in found["pools"]][:2] == ["t4-shared", "a100-mig"]


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        (TRACE + "1,-2,x,1,1,1,\n", [], "t.csv:6:1: duration: -2 is out of range; write a number of 0 or"),
        (TRACE + "1,2,x,8,1,1,\n", [], "t.csv:6:1: x: no node offers as many whole GPUs as 8; request less"),
        ("", [], "t.csv:1:1: header: is empty; begin the file with"),
        (TRACE, ["--policy", "best"], "--policy: unknown policy 'best'; known: random, least-allocated,"),
    ],
)
def test_bad_input_ends_with_2(tmp_path: Path, text: str, options: list[str], error: str) -> None:
    done = whatif(tmp_path, text, *options)
    assert done.exit_code == 2
    assert error in done.stderr
