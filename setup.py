"""Puts what pyproject.toml names under ``tool.gpuform`` into ``gpuform/_bundle`` of a wheel."""

import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
BUNDLED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["gpuform"]["bundled"]
# A checkout's policy pack runs in the checkout's environment, an installed one in that of the installation.
VIRTUALENV = "  options:\n    virtualenv: ../.venv\n"


class Build(build_py):
    """An editable installation stays a checkout; an sdist needs the same files."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name, target in self._bundled():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
                if target.name == "PulumiPolicy.yaml":
                    target.write_text(target.read_text().replace(VIRTUALENV, ""))

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *(name for name, _ in self._bundled())]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        bundled = [] if self.editable_mode else [str(target) for _, target in self._bundled()]
        return [*super().get_outputs(include_bytecode), *bundled]

    def _bundled(self) -> list[tuple[str, Path]]:
        found = [path for name in BUNDLED for path in (ROOT / name, *(ROOT / name).rglob("*"))]
        files = [path.relative_to(ROOT) for path in found if path.is_file() and path.suffix != ".pyc"]
        return [(str(file), Path(self.build_lib, "gpuform", "_bundle", file)) for file in sorted(files)]


setup(cmdclass={"build_py": Build})
