from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpuform.cli.main import app
from tests.command_line import make_targets, parse
from tests.docs.pages import README, ROOT, anchors, files, links, pages, scripts

pytestmark = pytest.mark.unit

CODE = (".py", ".yaml", ".yml", ".toml", "Makefile", ".json", ".j2")
PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))


@PAGES
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for file, anchor in links(page):
        assert file.exists(), f"{page}: {file}"
        assert not anchor or anchor in anchors(file), f"{page}: {file}#{anchor}"


def test_every_page_that_code_names_exists() -> None:
    for name in files():
        if not name.startswith("tests/") and name.endswith(CODE):
            text = (ROOT / name).read_text(encoding="utf-8")
            for path in re.findall(r"\bdocs/(?!cri/|runbooks/NAME)[\w/-]+\.(?:md|png|json)\b", text):
                assert (ROOT / path).exists(), f"{name}: {path}"


def test_every_test_that_a_page_names_exists() -> None:
    named = {item for page in pages() for item in re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text())}
    assert named
    for file, test in named:
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), f"{file}::{test}"


def test_every_failure_has_a_guarantee_and_a_test() -> None:
    text = (ROOT / "docs/explanation/failures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (F\d+) \| ([^|]+) \| ([^|]+) \| (`[^|]+`) \|$", text, re.MULTILINE)
    assert [row[0] for row in rows] == [f"F{number}" for number in range(1, 30)]
    assert all(re.fullmatch(r"`[\w/]+\.py::\w+`(, `[\w/]+\.py::\w+`)*", row[3]) for row in rows)


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs/index.md"
    listed = {file for file, _ in links(index)} | {index}
    expected = {page for page in pages() if page.is_relative_to(ROOT / "docs")}
    assert {page for page in expected - listed if page.parent.name != "runbooks"} == set()


@PAGES
def test_every_command_exists_with_its_options(page: Path) -> None:
    targets = make_targets()
    for line in scripts(page):
        assert set(re.findall(r"\bmake ([a-z-]+)", line)) <= targets, line
        for words in re.findall(r"(?:^|[\s/(])gpuform( [^;|&)\"]*)", line.partition(" #")[0]):
            parse(app, shlex.split(words))


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150
