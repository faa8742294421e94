"""Official plugins of Pulumi, and the checksums of Pulumi's releases."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import tarfile
from pathlib import Path

from gpuform.checkout.errors import Failure
from lab.toolchain.progress import Reporter
from lab.toolchain.tool import Tool

SERVER = "https://get.pulumi.com/releases/plugins"
RELEASES = "https://api.github.com/repos/pulumi"
PROBE_S = 3.0
_TIMEOUT_S = 30.0
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def this_platform() -> str:
    """``os/arch`` of this machine in Go's words, for example ``linux/amd64``."""
    machine = platform.machine()
    return f"{platform.system().lower()}/{_MACHINES.get(machine, machine)}"


def sha256(repository: str, version: str, file: str, token: str = "") -> str:
    """SHA-256 of a release's file, as GitHub computed it when the file was uploaded.

    The file itself comes from Pulumi's server (docs.github.com, REST API, release assets: ``digest``).
    ``token`` is for GitHub's rate limit. Raises Failure if GitHub does not state it.
    """
    import httpx

    headers = {"Accept": "application/vnd.github+json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        answer = httpx.get(
            f"{RELEASES}/{repository}/releases/tags/v{version}", headers=headers, timeout=_TIMEOUT_S
        ).raise_for_status()
        digests = {
            asset["name"]: _DIGEST.fullmatch(asset["digest"] or "") for asset in answer.json()["assets"]
        }
    except httpx.HTTPStatusError as error:
        fact = f"HTTP {error.response.status_code} for the release {version} of {repository}"
        raise Failure("GitHub", fact, "try again later") from None
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        fact = f"does not describe the release {version} of {repository} ({type(error).__name__})"
        raise Failure("GitHub", fact, "try again later") from None
    if (digest := digests.get(file)) is None:
        raise Failure("GitHub", f"states no SHA-256 of {file}", "install it by hand")
    return digest[1]


def archive_url(name: str, version: str) -> tuple[str, str]:
    """Address and file name of a plugin's official archive for this platform."""
    file = f"{name}-v{version}-{this_platform().replace('/', '-')}.tar.gz"
    return f"{SERVER}/{file}", file


def plugin_sha256(name: str, version: str, token: str = "") -> str:
    """SHA-256 of a resource plugin's archive for this platform; Failure as `sha256`."""
    _, file = archive_url(name, version)
    return sha256(name.replace("-resource-", "-"), version, file, token)


def download(tool: Tool, scratch: Path, report: Reporter) -> Path | None:
    """The verified plugin below ``scratch``; None, after a line with the reason, if there is none.

    Not by ``pulumi plugin install --checksum``, which refuses the right archive if the last read of the
    response returns both bytes and the end (sdk/go/common/workspace/plugins.go, checksumReader).
    """
    import httpx

    address, file = archive_url(tool.name, tool.plugin)
    try:
        httpx.head(SERVER, timeout=PROBE_S, follow_redirects=True)
        report.update(f"{tool.name}: downloading {tool.plugin}")
        digest = plugin_sha256(tool.name, tool.plugin)
        _fetch(address, scratch / file, digest)
        binary = _unpack(scratch / file, tool.name)
    except httpx.HTTPStatusError as error:
        reason = f"cannot be downloaded: HTTP {error.response.status_code} for {address}"
    except httpx.HTTPError as error:
        reason = f"cannot be downloaded: {SERVER} cannot be reached ({error or type(error).__name__})"
    except Failure as failure:
        reason = f"cannot be verified: {failure.subject}: {failure.fact}"
    else:
        report.line(f"{tool.name} {tool.plugin}: downloaded")
        return binary
    report.line(f"{tool.name} {tool.plugin} {reason}")
    return None


def _fetch(address: str, file: Path, expected: str) -> None:
    import httpx

    digest = hashlib.sha256()
    with (
        file.open("wb") as out,
        httpx.stream("GET", address, timeout=_TIMEOUT_S, follow_redirects=True) as answer,
    ):
        for part in answer.raise_for_status().iter_bytes():
            digest.update(part)
            out.write(part)
    if digest.hexdigest() != expected:
        raise Failure(
            address, f"has SHA-256 {digest.hexdigest()}, and its release {expected}", "try again later"
        )


def _unpack(file: Path, name: str) -> Path:
    binary = file.with_name(name)
    with tarfile.open(file) as packed, binary.open("wb") as out:
        member = packed.extractfile(name)
        assert member is not None  # the checksum is right
        shutil.copyfileobj(member, out)
    binary.chmod(0o755)
    return binary
