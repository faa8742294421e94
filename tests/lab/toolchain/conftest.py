"""A checkout with one small Go module, and a stand-in for the Go compiler that a test controls."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from lab.toolchain import Toolchain
from lab.toolchain.releases import Hosts
from lab.toolchain.tool import Module, Tool

VERSION = "1.2.3"
MAIN = """package main

import "fmt"

var version = "unset"

func main() { fmt.Println("tiny version", version) }
"""
# Logs its process id, compiles two packages, sleeps, and writes a script as the binary.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit 0; fi
if [ "$1" = list ]; then echo "$FAKE_GO_MODULE"; exit 0; fi
echo $$ >> "$FAKE_GO_NOTES"
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo example.org/first
echo example.org/second
trap 'kill $!; exit 130' INT
sleep "${FAKE_GO_SECONDS:-0}" & wait $!
if [ -n "$FAKE_GO_ERROR" ]; then echo "$FAKE_GO_ERROR"; exit 1; fi
for name in tiny other; do
  printf '#!/bin/sh\\necho %s version v%s\\n' $name "${FAKE_GO_SAYS:-1.2.3}" > "$out$name"
  chmod +x "$out$name"
done
"""


@dataclass(frozen=True)
class Checkout:
    paths: Paths
    notes: Path

    @property
    def tools(self) -> Path:
        return self.paths.cache / "tools"

    def tool(self, name: str = "tiny") -> Tool:
        linked = (f"-X main.version={VERSION}",)
        module = Module(name="tiny", module_path="example.org/tiny", version=VERSION, mb=3, ldflags=linked)
        return Tool(name, module, "." if name == "tiny" else f"./{name}", version_arguments=("--version",))

    def toolchain(self, *tools: Tool) -> Toolchain:
        return Toolchain(self.paths, {tool.name: tool for tool in tools or (self.tool(),)}, hosts=Hosts(""))

    def builds(self) -> list[int]:
        return [int(line) for line in self.notes.read_text().split()] if self.notes.exists() else []

    def published(self) -> list[str]:
        return sorted(p.name for p in self.tools.glob("*") if not p.name.startswith("."))


def get(toolchain: Toolchain, *names: str) -> list[str]:
    """Get the tools, ``tiny`` by default; returns the lines of progress."""
    lines: list[str] = []
    toolchain.ensure(*(names or ("tiny",)), progress=lines.append)
    return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    module = tmp_path / "root" / "toolchain" / "tiny"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example.org/tiny\n\ngo 1.26\n")
    (module / "main.go").write_text(MAIN)
    (tmp_path / "root" / "infra" / "incluster").mkdir(parents=True)  # the mark of a checkout
    paths = Paths(root=tmp_path / "root", state=tmp_path / "state", cache=tmp_path / "cache")
    return Checkout(paths=paths, notes=tmp_path / "builds")


@pytest.fixture
def executable(tmp_path: Path) -> Callable[[str, str, str], Path]:
    def write(folder: str, name: str, text: str) -> Path:
        file = tmp_path / folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return file

    return write


@pytest.fixture
def fake_go(
    checkout: Checkout, executable: Callable[[str, str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> Checkout:
    """The checkout, with the stand-in as the first Go on PATH."""
    go = executable("go", "go", FAKE_GO)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("FAKE_GO_NOTES", str(checkout.notes))
    return checkout
