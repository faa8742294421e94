"""Official binaries: the table of releases, and their download, several at once, each checked by SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from gpuform.checkout.errors import Failure, InputError
from lab.toolchain.progress import Reporter
from lab.toolchain.tool import Tool, this_platform

if TYPE_CHECKING:
    import httpx

PROBE_S = 3.0
_READ_S = 10.0  # the longest time without a byte of a file
_ATTEMPTS = 2
_CHUNK = 1 << 20
_INDEX = "application/vnd.oci.image.index.v1+json,application/vnd.docker.distribution.manifest.list.v2+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json,application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Release:
    """A file with the binaries of ``tools``: a plain binary, a tar archive, or an image by its index.

    Of an image, ``programs`` are the paths of the tools; without them, the one that the image starts.
    ``folder`` is a folder of the image that is kept next to the binary, under the same path, ``chart`` the
    address and SHA-256 of a Helm chart, which is unpacked into the folder ``chart`` there.
    """

    tools: tuple[str, ...]
    version: str
    address: str
    sha256: str
    programs: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    chart: tuple[str, str] = ("", "")

    @property
    def title(self) -> str:
        return f"{', '.join(self.tools)} {self.version}"


@cache
def official_releases() -> tuple[Release, ...]:
    """The rows of releases.yaml for this platform."""
    rows = yaml.safe_load(Path(__file__).with_name("releases.yaml").read_text(encoding="utf-8"))
    platform = this_platform()
    return tuple(
        Release(
            tuple(row["tools"]),
            row["version"],
            **row["files"][platform],
            programs=tuple(row.get("programs", {}).items()),
            folder=row.get("folder", ""),
            chart=tuple(row.get("chart", {}).values()) or ("", ""),
        )
        for row in rows
        if platform in row["files"]
    )


def official_version(tool: Tool) -> str:
    return tool.plugin or tool.official or tool.module.displayed_version


def release_of(tool: Tool, releases: Iterable[Release]) -> Release | None:
    version = official_version(tool)
    return next((item for item in releases if tool.name in item.tools and item.version == version), None)


class Unavailable(Exception):
    """A file cannot be had now; ``str()`` is the reason."""


class Hosts:
    """Which hosts answer: each is asked once, all at the same time, for at most ``PROBE_S`` seconds.

    ``mirror`` is the base address of a server that has the files under the paths of the original ones; then
    it alone is asked. Proxies and certificates are those of HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE.
    """

    def __init__(self, mirror: str | None = None) -> None:
        given = os.environ.get("GPUFORM_MIRROR", "") if mirror is None else mirror
        self._mirror = given.rstrip("/")
        self._problems: dict[str, str] = {}
        self._announced: set[str] = set()
        if given and urlsplit(given).scheme not in ("http", "https"):
            raise InputError(
                "GPUFORM_MIRROR", f"{given!r} is no http or https address", "set it to a base address"
            )

    @classmethod
    @cache
    def of_this_run(cls) -> Hosts:
        return cls()

    def address(self, original: str) -> str:
        return f"{self._mirror}{urlsplit(original).path}" if self._mirror else original

    def problems(self, addresses: Iterable[str]) -> Mapping[str, str]:
        """Why a host does not answer, by host; empty for one that does."""
        bases = {f"{url.scheme}://{url.netloc}" for url in (urlsplit(self.address(a)) for a in addresses)}
        threads = []
        for base in sorted(bases - self._problems.keys()):
            self._problems[base] = f"no answer within {PROBE_S:.0f} s"
            # A name server that hangs holds this thread, and not the end of the process.
            threads.append(threading.Thread(target=self._ask, args=(base,), daemon=True))
            threads[-1].start()
        deadline = time.monotonic() + PROBE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return {base: self._problems[base] for base in sorted(bases)}

    def announce(self, problems: Mapping[str, str], report: Reporter) -> None:
        """One line for the hosts that do not answer and have not been named before."""
        if new := [host for host, problem in problems.items() if problem and host not in self._announced]:
            self._announced.update(new)
            names = ", ".join(urlsplit(host).hostname or host for host in new)
            report.line(f"no official binaries from {names}: {problems[new[0]]}")

    def problem(self, address: str) -> str:
        return next(iter(self.problems([address]).values()))

    def _ask(self, base: str) -> None:
        import httpx

        try:
            httpx.head(base, timeout=PROBE_S)
            self._problems[base] = ""
        except (httpx.HTTPError, OSError, ValueError) as error:  # the others: a bad proxy or certificate file
            self._problems[base] = str(error) or type(error).__name__


class Downloads:
    """Downloads of one run into ``scratch``; ``done`` takes each tool's name and its verified binary.

    Use as a context: leaving it early ends what still runs. `finish` waits and raises the first Failure.
    """

    def __init__(
        self, releases: Sequence[Release], hosts: Hosts, scratch: Path, done: Callable[[str, Path], None]
    ) -> None:
        self._releases, self._hosts, self._scratch, self._done = releases, hosts, scratch, done
        self._stopped = threading.Event()
        self._running: dict[Future[None], Release] = {}
        self._bytes: dict[str, tuple[int, int]] = {}
        self._tokens: dict[str, str] = {}

    def __enter__(self) -> Downloads:
        import httpx

        timeout = httpx.Timeout(_READ_S, connect=PROBE_S)
        self._client = httpx.Client(follow_redirects=True, timeout=timeout)
        self._pool = ThreadPoolExecutor(max_workers=8)
        for number, item in enumerate(self._releases):
            self._running[self._pool.submit(self._get, item, self._scratch / f"file-{number}")] = item
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def finish(self, report: Reporter) -> None:
        """Wait for every file; a line for each. Those that cannot be had are left to the caller, with a line.

        Raises Failure for a file with another checksum, after the others have ended.
        """
        failures: list[Exception] = []
        for future, item in self._wait(report):
            error = future.exception()
            if isinstance(error, Unavailable):
                report.line(f"{item.title}: cannot be downloaded: {error}")
            elif isinstance(error, Exception):
                failures.append(error)
            else:
                report.line(f"{item.title}: downloaded, {self._bytes[item.title][0] / 1e6:.0f} MB")
        if failures:
            raise failures[0]

    def _wait(self, report: Reporter) -> Iterator[tuple[Future[None], Release]]:
        remaining = set(self._running)
        while remaining:
            ended, remaining = wait(remaining, timeout=0.5, return_when="FIRST_COMPLETED")
            for future in ended:
                yield future, self._running[future]
            if remaining:
                report.update(self._progress(remaining))

    def _progress(self, remaining: set[Future[None]]) -> str:
        received, expected = (sum(part) for part in zip((0, 0), *list(self._bytes.values()), strict=True))
        total = len(self._running)
        return (
            f"official binaries: {total - len(remaining)} of {total} downloaded, "
            f"{received / 1e6:.0f} of {expected / 1e6:.0f} MB"
        )

    def _get(self, item: Release, file: Path) -> None:
        if "/manifests/" in item.address:
            binaries = self._from_image(item, file)
        else:
            self._fetch(item, file)
            binaries = _unpack(item, file)
        for name, binary in binaries.items():
            binary.chmod(0o755)
            self._done(name, binary)

    def _from_image(self, item: Release, file: Path) -> dict[str, Path]:
        """Programs and folder of an image. Blobs and manifests are named by their SHA-256."""
        manifest = self._json(item, file, f"{_INDEX},{_MANIFEST}")
        os_name, architecture = this_platform().split("/")
        for child in manifest.get("manifests", ()):
            platform = child.get("platform", {})
            if (platform.get("os"), platform.get("architecture")) == (os_name, architecture):
                manifest = self._json(_part(item, "manifests", child["digest"]), file, _MANIFEST)
                break
        config = self._json(_part(item, "blobs", manifest["config"]["digest"]), file, "*/*")
        if config.get("architecture", architecture) != architecture:
            raise Unavailable(f"its image is for {config['architecture']}")
        wanted = {path: tool for tool, path in item.programs}
        wanted = wanted or {str(config["config"]["Entrypoint"][0]).lstrip("/"): item.tools[0]}
        kept = file.with_name(f"{item.tools[0]}.ready")
        found: dict[str, Path] = {}
        for layer, is_named in _last_first(manifest["layers"], config, (*wanted, item.folder)):
            if len(found) == len(wanted) and not (item.folder and is_named):
                break
            self._fetch(_part(item, "blobs", layer["digest"]), file)
            try:
                found |= _extract(file, {path: tool for path, tool in wanted.items() if tool not in found})
                if item.folder:
                    _unpack_folder(file, item.folder, kept / item.folder)
            except tarfile.ReadError as error:
                raise Unavailable(f"a layer of its image cannot be read ({error})") from None
        if missing := [path for path, tool in wanted.items() if tool not in found]:
            raise Failure(item.title, f"its image has no file /{missing[0]}", "report it; the table is wrong")
        address, sha256 = item.chart
        if address:
            self._fetch(replace(item, address=address, sha256=sha256), file)
            _unpack_folder(file, item.tools[0], kept / "chart")
        return found

    def _json(self, item: Release, file: Path, accept: str) -> Any:
        self._fetch(item, file, accept)
        return json.loads(file.read_bytes())

    def _fetch(self, item: Release, file: Path, accept: str = "*/*") -> None:
        import httpx

        address = self._hosts.address(item.address)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                headers = {"Accept": accept, "Accept-Encoding": "identity", **self._authorization(item)}
                with self._client.stream("GET", address, headers=headers) as answer:
                    digest = self._copy(item, answer.raise_for_status(), file)
                break
            except httpx.HTTPStatusError as error:
                raise Unavailable(f"HTTP {error.response.status_code} for {address}") from None
            except httpx.HTTPError as error:
                if attempt == _ATTEMPTS:
                    raise Unavailable(f"{address}: {error or type(error).__name__}") from None
        if digest != item.sha256:
            raise Failure(
                address,
                f"has SHA-256 {digest} ({file.stat().st_size} bytes), and the release {item.sha256}",
                "it is damaged or not the release; try again, and check proxy and GPUFORM_MIRROR",
            )

    def _authorization(self, item: Release) -> dict[str, str]:
        """The header of a registry that gives everyone a token for its public images; else none.

        The registry names its token server in the answer to a request without one (CNCF distribution, "Token
        authentication").
        """
        base = re.split("/(?:manifests|blobs)/", item.address)[0]
        if base == item.address:
            return {}
        if base not in self._tokens:
            self._tokens[base] = ""
            answer = self._client.head(self._hosts.address(item.address))
            challenge = answer.headers.get("WWW-Authenticate", "") if answer.status_code == 401 else ""
            fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
            if realm := fields.pop("realm", ""):
                answer = self._client.get(realm, params=fields).raise_for_status()
                try:
                    given = answer.json()
                except ValueError:
                    raise Unavailable(f"{realm} gives no token") from None
                self._tokens[base] = given.get("token") or given.get("access_token") or ""
        token = self._tokens[base]
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _copy(self, item: Release, answer: httpx.Response, file: Path) -> str:
        digest, received = hashlib.sha256(), 0
        expected = int(answer.headers.get("Content-Length", 0))
        with file.open("wb") as out:
            for part in answer.iter_bytes(_CHUNK):
                if self._stopped.is_set():
                    raise Unavailable("stopped")
                digest.update(part)
                out.write(part)
                received += len(part)
                self._bytes[item.title] = (received, max(received, expected))
        return digest.hexdigest()


def _last_first(
    layers: Sequence[Any], config: Mapping[str, Any], paths: Iterable[str]
) -> Iterator[tuple[Any, bool]]:
    """Layers, the last one first, as it wins; but first those that the history names with one of the paths.

    An image of NVIDIA's has CUDA's libraries, which nothing here needs, in other layers.
    """
    names = [PurePosixPath(path).name for path in paths if path]
    history = [
        step.get("created_by", "") for step in config.get("history", ()) if not step.get("empty_layer")
    ]
    texts = history if len(history) == len(layers) else [names[0]] * len(layers)
    marked = [(layer, any(name in text for name in names)) for layer, text in zip(layers, texts, strict=True)]
    yield from sorted(reversed(marked), key=lambda pair: not pair[1])


def _part(item: Release, kind: str, digest: str) -> Release:
    base = item.address.partition("/manifests/")[0]
    return replace(item, address=f"{base}/{kind}/{digest}", sha256=digest.removeprefix("sha256:"))


def _unpack(item: Release, file: Path) -> dict[str, Path]:
    if not tarfile.is_tarfile(file):
        return {item.tools[0]: file}
    found = _extract(file, {name: name for name in item.tools}, by_name=True)
    if missing := [name for name in item.tools if name not in found]:
        raise Failure(item.title, f"its archive has no {missing[0]}", "report it; the table is wrong")
    file.unlink()
    return found


def _unpack_folder(file: Path, folder: str, target: Path) -> None:
    """Regular files of an archive below ``folder``; one that exists is of a later layer and stays."""
    with tarfile.open(file) as archive:
        for member in archive:
            path = PurePosixPath(member.name.removeprefix("./"))
            if not member.isfile() or not path.is_relative_to(folder) or ".." in path.parts:
                continue
            place = target / path.relative_to(folder)
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                _write_member(archive, member, place)


def _write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None  # it is a regular file
    with place.open("wb") as out:
        shutil.copyfileobj(source, out)


def _extract(file: Path, wanted: Mapping[str, str], by_name: bool = False) -> dict[str, Path]:
    """Regular files of an archive by their path or, with ``by_name``, by their last part."""
    found = {}
    with tarfile.open(file) as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            tool = wanted.get(path.rpartition("/")[2] if by_name else path)
            if tool and member.isfile() and tool not in found:
                found[tool] = file.with_name(f"{file.name}-{tool}")
                _write_member(archive, member, found[tool])
    return found
