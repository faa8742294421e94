"""Traces of jobs: two csv formats, their units, and bad input with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.model.base.errors import InputError
from infra.planner.trace import Job, Shape, read_jobs, read_nodes

pytestmark = pytest.mark.unit

OPENB = Path(__file__).parents[3] / "shared" / "traces" / "openb"
OURS = "arrival,duration,name,gpus,cpu,memory,models\n"
THEIRS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"


def read(tmp_path: Path, text: str) -> list[Job]:
    file = tmp_path / "t.csv"
    file.write_text(text)
    return read_jobs(file)


@pytest.mark.parametrize(
    ("row", "job"),
    [
        ("5,60,a,0.25,1.5,4,", Job("a", Shape(1, 250, 1500, 4096), 2, 5, 60)),
        ("0,1.5,a,2,1,0.5,T4| A100", Job("a", Shape(2, 1000, 1000, 512, ("A100", "T4")), 2, 0, 1.5)),
        ("0,0,a,1,0,0,", Job("a", Shape(1, 1000, 0, 0), 2, 0, 0)),
        ("0,0,a,0,2,1,", Job("a", Shape(0, 0, 2000, 1024), 2, 0, 0)),
    ],
)
def test_our_format_is_in_seconds_gpus_cores_and_gib(tmp_path: Path, row: str, job: Job) -> None:
    assert read(tmp_path, OURS + row + "\n") == [job]


def test_openbs_format_has_the_times_of_creation_and_deletion(tmp_path: Path) -> None:
    rows = "a,6000,12288,1,460,V100M16|V100M32,100,250\nb,1,1,8,1000,,0,0\n"
    shape = Shape(1, 460, 6000, 12288, ("V100M16", "V100M32"))
    assert read(tmp_path, THEIRS + rows) == [
        Job("a", shape, 2, 100, 150),
        Job("b", Shape(8, 1000, 1, 1), 3, 0, 0),
    ]


def test_a_list_without_times_has_jobs_without_an_end(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\n"
    assert read(tmp_path, text) == [Job("a", Shape(0, 0, 1, 1), 2, 0, None)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "t.csv:1:1: header: is empty; begin the file with arrival,duration,name,gpus,cpu,memory or"),
        ("a,b\n1,2\n", "t.csv:1:1: header: has the columns a,b;"),
        (OURS, "t.csv:1:1: rows: the file has none;"),
        (OURS + "0,-5,a,1,1,1,\n", "t.csv:2:1: duration: -5 is out of range; write a number of 0 or more"),
        (OURS + "0,nan,a,1,1,1,\n", "t.csv:2:1: duration: nan is out of range;"),
        (OURS + "x,5,a,1,1,1,\n", "t.csv:2:1: arrival: 'x' is not a number;"),
        (OURS + "0,5,a,1.5,1,1,\n", "t.csv:2:1: gpus: 1.5 is neither a share nor a whole number;"),
        (OURS + "0,5,a,0.0001,1,1,\n", "t.csv:2:1: gpus: 0.0001 is less than a thousandth of a GPU;"),
        (OURS + "0,5,,1,1,1,\n", "t.csv:2:1: name: is empty;"),
        (OURS + "0,5,a,1\n", "t.csv:2:1: cpu: is empty;"),
        (OURS + "0,5,a,1,1,1,T4,A100\n", "t.csv:2:1: row: has more cells than the header;"),
        (THEIRS + "a,1,1,2,500,,0,1\n", "t.csv:2:1: gpu_milli: 500 of 2 GPUs;"),
        (THEIRS + "a,1,1,1,0,,0,1\n", "t.csv:2:1: gpu_milli: 0 of 1 GPUs;"),
        (THEIRS + "a,1,1,0.5,500,,0,1\n", "t.csv:2:1: num_gpu: 0.5 is not a whole number;"),
        (THEIRS + "a,1,1,1,500,,9,1\n", "t.csv:2:1: deletion_time: 1 is before creation_time;"),
    ],
)
def test_bad_input_names_file_line_fact_and_remedy(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, text)
    assert str(raised.value).removeprefix(f"{tmp_path}/").startswith(error)


def test_all_bad_rows_are_named_and_a_missing_file_too(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, OURS + "0,-5,a,1,1,1,\n" + "0,5,b,1,1,1,\n" + "0,5,c,-1,1,1,\n")
    assert [error.place.line for error in raised.value.errors] == [2, 4]
    with pytest.raises(InputError, match="No such file"):
        read_jobs(tmp_path / "none.csv")


@pytest.mark.skipif(not OPENB.is_dir(), reason="openb's lists are not on this machine")
def test_openbs_lists_are_read_whole() -> None:
    nodes = read_nodes(OPENB / "openb_node_list_gpu_node.csv")
    assert (len(nodes), sum(len(node.devices) for node in nodes)) == (1213, 6212)
    jobs = read_jobs(OPENB / "openb_pod_list_default.csv")
    fractional = [job for job in jobs if job.shape.gpus == 1 and job.shape.milli < 1000]
    assert (len(jobs), len(fractional)) == (8152, 3078)
