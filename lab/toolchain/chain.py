"""The toolchain: gives the path of each tool, and gets a missing tool first."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.standins import downloaded_path
from lab.toolchain import plugin
from lab.toolchain.build import build
from lab.toolchain.catalogue import CATALOGUE
from lab.toolchain.golang import find_go
from lab.toolchain.module_files import copy_files, unpacked
from lab.toolchain.progress import Progress, Reporter, reporting
from lab.toolchain.releases import (
    Downloads,
    Hosts,
    Release,
    official_releases,
    official_version,
    release_of,
)
from lab.toolchain.space import require_space
from lab.toolchain.store import Store
from lab.toolchain.tool import (
    Module,
    Tool,
    ToolLocation,
    ask_version,
    in_range,
    on_path,
    relocate,
    this_platform,
)


class Toolchain:
    """Tools in this order: PATH if the version fits, official binary, Go build.

    Fetched and built tools lie in ``Paths.cache`` for every checkout of this user. An object remembers what
    it found, so it does not notice a tool that is removed later.
    """

    def __init__(
        self,
        paths: Paths,
        catalogue: Mapping[str, Tool] = CATALOGUE,
        releases: Sequence[Release] | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self._modules = paths.installation / "toolchain"
        self._cache = paths.cache
        self._store = Store(paths.cache)
        self._catalogue = catalogue
        self._releases = official_releases() if releases is None else releases
        self._hosts = hosts or Hosts.of_this_run()
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

        Official binaries are downloaded while tools without one are built; what cannot be downloaded is built
        then. ``progress`` takes one line of text per call, or is a ``Reporter``; None writes to stderr.
        Raises InputError (unknown name, no disk space, no Go and no network) or Failure (a build went wrong,
        or a download has another checksum than its release).
        """
        if not self._missing(names):
            return
        writable.require(self._store.tools, "make it a writable folder, or set GPUFORM_CACHE to one")
        with reporting(progress) as report, _disk_errors(self._store.tools):
            if any(tool.plugin or release_of(tool, self._releases) for tool in self._missing(names)):
                with self._store.lock("downloads", report), self._store.scratch("downloads") as scratch:
                    self._download(self._missing(names), scratch, report)
            self._build_all(self._missing(names), report)

    def modules_to_build(self, *names: str) -> set[Module]:
        """Modules of missing tools without an official binary within reach; asks the hosts, gets nothing."""
        releases = {tool: release_of(tool, self._releases) for tool in self._missing(names)}
        self._hosts.problems(release.address for release in releases.values() if release)
        built = [tool for tool, item in releases.items() if item is None or self._hosts.problem(item.address)]
        return {tool.module for tool in built}

    def clean(self) -> int:
        """Remove every tool from the cache, of all versions; returns the bytes freed.

        Go's own caches are the user's and stay. Raises Failure while another run builds.
        """
        self._known.clear()
        modules = {tool.module.name for tool in self._catalogue.values()}
        return self._store.clean(("go", "downloads", *sorted(modules)))

    def _tool(self, name: str) -> Tool:
        if name not in self._catalogue:
            raise InputError("toolchain", f"unknown tool {name}", f"use one of {', '.join(self._catalogue)}")
        return self._catalogue[name]

    def _missing(self, names: Iterable[str]) -> list[Tool]:
        return [self._catalogue[name] for name in dict.fromkeys(names) if self.locate(name).path is None]

    def _download(self, tools: Sequence[Tool], scratch: Path, report: Reporter) -> None:
        """Publish every tool with an official binary within reach; meanwhile build those that have none."""
        known = {tool.name: release_of(tool, self._releases) for tool in tools}
        asked = [release.address for release in known.values() if release]
        others = [tool for tool in tools if tool.plugin and not known[tool.name]]
        problems = self._hosts.problems([*asked, *((plugin.SERVER, plugin.RELEASES) if others else ())])
        self._hosts.announce(problems, report)
        if not any(map(self._hosts.problem, (plugin.SERVER, plugin.RELEASES) if others else ())):
            known |= {tool.name: self._plugin_release(tool, report) for tool in others}
        official = dict.fromkeys(filter(None, known.values()))
        releases = [release for release in official if not self._hosts.problem(release.address)]
        if releases:
            with Downloads(releases, self._hosts, scratch, self._publish_official) as downloads:
                self._build_all([tool for tool in tools if known[tool.name] is None], report)
                downloads.finish(report)

    def _plugin_release(self, tool: Tool, report: Reporter) -> Release | None:
        try:
            return plugin.release(tool)
        except Failure as failure:
            report.line(f"{tool.name} {tool.plugin} cannot be verified: {failure.subject}: {failure.fact}")
            return None

    def _publish_official(self, name: str, binary: Path) -> None:
        if name in self._catalogue:
            self._publish(self._catalogue[name], binary, self._official_folder(self._catalogue[name]))

    def _build_all(self, tools: Sequence[Tool], report: Reporter) -> None:
        modules = {tool.module.name: tool.module for tool in tools}
        require_space(self._store.tools, *modules.values())
        for number, module in enumerate(modules.values(), 1):
            if len(modules) > 1:
                report.line(f"tools {number} of {len(modules)}: {module.name}")
            self._get_tools(module, [tool for tool in tools if tool.module == module], report)

    def _get_tools(self, module: Module, tools: Sequence[Tool], report: Reporter) -> None:
        with self._store.lock(module.name, report):
            # Another run may have got them while this one waited for the lock.
            tools = [tool for tool in tools if self.locate(tool.name).path is None]
            if tools:
                with self._store.scratch(module.name) as scratch:
                    self._build(module, tools, scratch, report)

    def _build(self, module: Module, tools: Sequence[Tool], scratch: Path, report: Reporter) -> None:
        folder = self._modules / module.name
        if not (folder / "go.mod").is_file():
            remedy = "run from a complete checkout of the repository"
            raise Failure(module.name, f"no go.mod in {folder}", remedy)
        go = find_go(self._store, report)
        log = self._store.log(module.name)
        output = build(go, module, tools, folder, scratch, log, report)
        for tool in tools:
            for source, target in tool.files:
                files = unpacked(go, module.module_path, folder) / source
                copy_files(files, output / f"{tool.name}.ready" / target)
            self._publish(tool, output / tool.output, self._built_folder(tool))

    def _publish(self, tool: Tool, binary: Path, folder: str) -> None:
        """Put a binary, and the files in ``TOOL.ready`` next to it, into the cache.

        Raises Failure if it prints a version that is not accepted.
        """
        version = ask_version(binary, tool.version_arguments) if tool.version_arguments else None
        if tool.version_arguments and (version is None or not in_range(version, tool.accepted)):
            raise Failure(
                tool.name,
                f"the binary reports version {version or 'nothing'}, not {tool.module.displayed_version}",
                f"see {self._store.logs}, and check that programs may run from {self._store.tools}",
            )
        if tool.relocated:
            relocate(binary, tool.relocated)
        ready = binary.with_name(f"{tool.name}.ready")
        ready.mkdir(exist_ok=True)
        binary.replace(ready / tool.name)
        self._store.publish(ready, folder)

    def _cached(self, tool: Tool) -> ToolLocation | None:
        official = self._store.tools / self._official_folder(tool) / tool.name
        if official.is_file():
            return ToolLocation(tool.name, official_version(tool), "official", official)
        binary = self._store.tools / self._built_folder(tool) / tool.name
        if binary.is_file():
            return ToolLocation(tool.name, tool.module.displayed_version, "built", binary)
        return None

    def _official_folder(self, tool: Tool) -> str:
        """The engine's plugins look for a plugin by its version alone."""
        if tool.plugin:
            return downloaded_path(self._cache, tool.name, tool.plugin).parent.name
        release = release_of(tool, self._releases)
        return f"{tool.name}-{release.version}-official-{release.sha256[:12]}" if release else "none"

    def _built_folder(self, tool: Tool) -> str:
        """``<tool>-<version>-<hash>``, over everything that decides the bytes except the Go compiler."""
        digest = hashlib.sha256()
        kept = (path for pair in tool.files for path in pair)
        for text in (this_platform(), tool.package, *tool.module.ldflags, *tool.module.tags, *kept):
            digest.update(text.encode() + b"\0")
        digest.update(tool.relocated)
        folder = self._modules / tool.module.name
        for file in _sources(folder):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
        return f"{tool.name}-{tool.module.version}-{digest.hexdigest()[:12]}"


@contextmanager
def _disk_errors(tools: Path) -> Iterator[None]:
    """Turn an error of a full or read-only disk into an InputError that names the cache."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        remedy = "free space, or set GPUFORM_CACHE to a folder on another disk; the next run continues"
        fact = f"cannot be written ({error.strerror})"
        raise InputError(error.filename or str(tools), fact, remedy) from None


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
