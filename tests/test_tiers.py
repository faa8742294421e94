"""Both tiers together contain every test, and a run reports how many of each ran."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from tests.tiers import nightly_but

ROOT = Paths.here().root
FAILS_AND_SKIPS = """
import pytest

def test_passes(): pass

@pytest.fixture
def breaks():
    yield
    assert False

def test_fails_twice(breaks): assert False

@pytest.mark.nightly
def test_at_night(): pass

@pytest.mark.nightly
def test_skipped(): pytest.skip("no host")
"""
_SKIP = "pytest.skip('external check: no file')"


@pytest.mark.unit
def test_every_module_has_a_test_in_make_test_all() -> None:
    empty = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if not any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            for node in ast.walk(ast.parse(file.read_text()))
        )
    ]
    assert empty == []
    recipe = re.search(r"^test-all:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert recipe[1].endswith("python -m tests.run --hypothesis-profile random\n")


@pytest.mark.unit
def test_all_cases_but_one_are_nightly() -> None:
    chosen = nightly_but("b", {"a": 1, "b": (2, 3), "c": 4})
    assert [(case.id, case.values, [mark.name for mark in case.marks]) for case in chosen] == [
        ("a", (1,), ["nightly"]),
        ("b", (2, 3), []),
        ("c", (4,), ["nightly"]),
    ]
    with pytest.raises(KeyError, match="d"):
        nightly_but("d", {"a": 1})


def _configure(folder: Path) -> None:
    (folder / "conftest.py").write_text(
        "from tests.tiers import Tiers\n\n"
        "ROWS = {1: ('test_some.py::test_passes',), 2: ('test_some.py::test_skipped',), 3: ()}\n\n"
        "def pytest_configure(config): config.pluginmanager.register(Tiers(ROWS, {3: 'later'}))\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = .\nmarkers =\n  nightly\n  engine\n  unit\n")


def _run(folder: Path, *module: str) -> subprocess.CompletedProcess[str]:
    env = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "GITHUB"))}
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=folder,
        env=env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.tools
@pytest.mark.parametrize("workers", nightly_but("0", {"0": "0", "2": "2"}))
@pytest.mark.parametrize(
    ("selection", "nightly"),
    [
        ([], "1 ran, 1 skipped, 0 not selected\n  1 skipped: no host"),
        (["-m", "not nightly"], "0 ran, 0 skipped, 2 not selected"),
    ],
    ids=["all", "gate"],
)
def test_a_run_counts_its_tiers(tmp_path: Path, workers: str, selection: list[str], nightly: str) -> None:
    (tmp_path / "test_some.py").write_text(FAILS_AND_SKIPS)
    _configure(tmp_path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        workers,
        *("-p", "no:cacheprovider"),
        "--rootdir",
        str(tmp_path),
        *selection,
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "-c", str(tmp_path / "pytest.ini")], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert " tiers =" in done.stdout
    assert f"gate: 2 ran, 0 skipped, 0 not selected\nnightly: {nightly}\n" in done.stdout, done.stdout
    assert done.returncode == 1


@pytest.mark.tools
@pytest.mark.parametrize(
    ("workers", "selection", "second", "code", "rows"),
    nightly_but(
        "gate",
        {
            "all": ("2", "", "pass", 0, "passed: 1, 2; open: 3 (later)"),
            "gate": ("0", "not nightly", "pass", 0, "nightly: 2; passed: 1; open: 3 (later)"),
            "skipped": ("2", "", _SKIP, 1, "passed: 1; skipped: 2; open: 3 (later)"),
            "gone": ("0", "", None, 1, "not run: 2; passed: 1; open: 3 (later)"),
        },
    ),
)
def test_a_whole_run_says_which_rows_of_the_sources_it_shows(
    tmp_path: Path, workers: str, selection: str, second: str | None, code: int, rows: str
) -> None:
    text = "import pytest\n\ndef test_passes(): pass\n"
    text += f"\n@pytest.mark.nightly\ndef test_skipped(): {second}\n" if second else ""
    (tmp_path / "test_some.py").write_text(text)
    _configure(tmp_path)
    command = ("pytest", "-n", workers, "-p", "no:cacheprovider", "-m", selection)
    done = _run(tmp_path, *command)
    assert f"\nrows of the sources: {rows}\n" in done.stdout, done.stdout
    absent = "1" if "skipped: 2" in rows else "no"
    assert f"\nexternal checks: {absent} tests had nothing to compare with\n" in done.stdout
    assert done.returncode == code


@pytest.mark.nightly
@pytest.mark.tools
@pytest.mark.parametrize(
    ("marker", "fails", "code"),
    [("engine", 1, 0), ("engine", 2, 1), ("unit", 1, 1)],
    ids=["flaky", "red", "red unit test"],
)
def test_a_file_that_fails_is_run_once_more(tmp_path: Path, marker: str, fails: int, code: int) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pathlib, pytest\n\n"
        f"@pytest.mark.{marker}\n"
        "def test_flaky():\n"
        "    tries = pathlib.Path(__file__).with_name('tries')\n"
        "    tries.write_text((tries.read_text() if tries.exists() else '') + '.')\n"
        f"    assert len(tries.read_text()) > {fails}\n"
    )
    (tmp_path / "test_other.py").write_text("def test_passes(): pass\n")
    _configure(tmp_path)
    command = ("tests.run", "-cpytest.ini", "test_other.py", "test_some.py")
    done = _run(tmp_path, *command)
    assert done.returncode == code, done.stdout + done.stderr
    assert "2 passed" not in done.stdout, "only the file that failed runs again"
    assert done.stdout.endswith("passed only alone: test_some.py\n") is (code == 0)


@pytest.mark.tools
@pytest.mark.parametrize(
    "fault", sorted((ROOT / "tests" / "faults").glob("*.patch")), ids=lambda file: file.stem
)
def test_a_planted_fault_still_applies(fault: Path) -> None:
    command = ["git", "apply", "--check", str(fault)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
