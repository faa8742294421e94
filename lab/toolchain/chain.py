"""The toolchain: gives the path of each tool, and gets a missing tool first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.standins import downloaded_path
from lab.toolchain.build import build
from lab.toolchain.catalogue import CATALOGUE
from lab.toolchain.golang import find_go
from lab.toolchain.plugin import download, this_platform
from lab.toolchain.progress import Progress, Reporter, reporting
from lab.toolchain.space import require_space
from lab.toolchain.store import Store
from lab.toolchain.tool import Module, Tool, ToolLocation, ask_version, in_range, on_path


class Toolchain:
    """Tools in this order: PATH if the version fits, official plugin, Go build.

    Fetched and built tools lie in ``Paths.cache`` for every checkout of this user. An object remembers what
    it found, so it does not notice a tool that is removed later.
    """

    def __init__(self, paths: Paths, catalogue: Mapping[str, Tool] = CATALOGUE) -> None:
        self._modules = paths.root / "toolchain"
        self._cache = paths.cache
        self._store = Store(paths.cache)
        self._catalogue = catalogue
        self._known: dict[str, ToolLocation] = {}

    def path(self, name: str) -> Path:
        """Absolute path of the tool; gets it first if it is missing. Errors as ``ensure``."""
        self.ensure(name)
        path = self.locate(name).path
        assert path is not None
        return path

    def locate(self, name: str) -> ToolLocation:
        """Where the tool is now; builds and fetches nothing.

        Raises InputError for a name that is not in the catalogue.
        """
        tool = self._tool(name)
        if name not in self._known:
            tool_source = on_path(tool) or self._cached(tool)
            if tool_source is None:
                return ToolLocation(name, tool.module.displayed_version, "missing", None)
            self._known[name] = tool_source
        return self._known[name]

    def ensure(self, *names: str, progress: Progress = None) -> None:
        """Get every missing tool; reports nothing if all exist.

        ``progress`` takes one line of text per call, or is a ``Reporter``; None writes to stderr. Raises
        InputError (unknown name, no disk space, no Go and no network) or Failure (a build or a download went
        wrong).
        """
        missing = [self._catalogue[name] for name in dict.fromkeys(names) if self.locate(name).path is None]
        if not missing:
            return
        modules = {tool.module.name: tool.module for tool in missing}
        require_space(self._store.tools, *modules.values())
        with reporting(progress) as report:
            for number, module in enumerate(modules.values(), 1):
                if len(modules) > 1:
                    report.line(f"tools {number} of {len(modules)}: {module.name}")
                self._get_tools(module, [tool for tool in missing if tool.module == module], report)

    def clean(self) -> int:
        """Remove every tool from the cache, of all versions; returns the bytes freed.

        Go's own caches are the user's and stay. Raises Failure while another run builds.
        """
        self._known.clear()
        modules = {tool.module.name for tool in self._catalogue.values()}
        return self._store.clean(("go", *sorted(modules)))

    def _tool(self, name: str) -> Tool:
        if name not in self._catalogue:
            raise InputError("toolchain", f"unknown tool {name}", f"use one of {', '.join(self._catalogue)}")
        return self._catalogue[name]

    def _get_tools(self, module: Module, tools: Sequence[Tool], report: Reporter) -> None:
        with self._store.lock(module.name, report):
            # Another run may have got them while this one waited for the lock.
            tools = [tool for tool in tools if self.locate(tool.name).path is None]
            if not tools:
                return
            with self._store.scratch(module.name) as scratch:
                remaining = [tool for tool in tools if not self._fetch(tool, scratch, report)]
                if remaining:
                    self._build(module, remaining, scratch, report)

    def _fetch(self, tool: Tool, scratch: Path, report: Reporter) -> bool:
        """Download a plugin; False if it is none, or cannot be downloaded."""
        if tool.plugin and (binary := download(tool, scratch, report)):
            folder = downloaded_path(self._cache, tool.name, tool.plugin).parent.name
            self._publish(tool, binary, scratch, folder)
            return True
        return False

    def _build(self, module: Module, tools: Sequence[Tool], scratch: Path, report: Reporter) -> None:
        folder = self._modules / module.name
        if not (folder / "go.mod").is_file():
            raise Failure(
                module.name, f"no go.mod in {folder}", "run from a complete checkout of the repository"
            )
        go = find_go(self._store, report)
        log = self._store.log(module.name)
        output = build(go, module, tools, folder, scratch, log, report)
        for tool in tools:
            self._publish(tool, output / tool.output, scratch, self._built_folder(tool))

    def _publish(self, tool: Tool, binary: Path, scratch: Path, folder: str) -> None:
        """Put a binary into the cache; raises Failure if it prints a version that is not accepted."""
        version = ask_version(binary, tool.version_arguments) if tool.version_arguments else None
        if tool.version_arguments and (version is None or not in_range(version, tool.accepted)):
            raise Failure(
                tool.name,
                f"the binary reports version {version or 'nothing'}, not {tool.module.displayed_version}",
                f"see {self._store.logs}, and check that programs may run from {self._store.tools}",
            )
        ready = scratch / f"{tool.name}.ready"
        ready.mkdir()
        binary.replace(ready / tool.name)
        self._store.publish(ready, folder)

    def _cached(self, tool: Tool) -> ToolLocation | None:
        binary = downloaded_path(self._cache, tool.name, tool.plugin)
        if tool.plugin and binary.is_file():
            return ToolLocation(tool.name, tool.plugin, "plugin", binary)
        binary = self._store.tools / self._built_folder(tool) / tool.name
        if binary.is_file():
            return ToolLocation(tool.name, tool.module.displayed_version, "built", binary)
        return None

    def _built_folder(self, tool: Tool) -> str:
        """``<tool>-<version>-<hash>``, over everything that decides the bytes except the Go compiler."""
        digest = hashlib.sha256()
        for text in (this_platform(), tool.package, *tool.module.ldflags, *tool.module.tags):
            digest.update(text.encode() + b"\0")
        folder = self._modules / tool.module.name
        for file in _sources(folder):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
        return f"{tool.name}-{tool.module.version}-{digest.hexdigest()[:12]}"


def _sources(folder: Path) -> Iterable[Path]:
    """go.mod, go.sum and, for a module of our own, its sources; tests do not end up in a binary."""
    if not folder.is_dir():
        return ()
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and not file.name.endswith("_test.go")
        and "testdata" not in file.relative_to(folder).parts
    )
