"""The programs in ConfigMaps: what they may import."""

from __future__ import annotations

import ast
import sys

import pytest

from infra.plan import health, pool_keeper, readiness_gate
from infra.plan.script import SOURCE

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("files", "file"),
    [(one.FILES, file) for one in (health, pool_keeper, readiness_gate) for file in one.FILES],
)
def test_a_program_imports_the_standard_library_and_the_files_beside_it(
    files: tuple[str, ...], file: str
) -> None:
    names = set()
    for statement in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            names |= {one.name.partition(".")[0] for one in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names.add((statement.module or "").partition(".")[0])
    # From infra only types, for type checking.
    assert names - {"infra"} <= sys.stdlib_module_names | {name.removesuffix(".py") for name in files}
