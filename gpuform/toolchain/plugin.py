"""Official plugins of Pulumi, by ``pulumi plugin install``, and the checksums of Pulumi's releases."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

from gpuform.errors import Failure
from gpuform.toolchain.catalogue import Tool
from gpuform.toolchain.progress import Reporter

SERVER = "https://get.pulumi.com/releases/plugins"
RELEASES = "https://api.github.com/repos/pulumi"
PROBE_S = 3.0
_ANSWER_S = 30.0
_INSTALL_S = 300
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def this_platform() -> str:
    """``os/arch`` of this machine in Go's words, for example ``linux/amd64``."""
    machine = platform.machine()
    return f"{platform.system().lower()}/{_MACHINES.get(machine, machine)}"


def downloaded(cache: Path, name: str, version: str) -> Path:
    return cache / "tools" / f"{name}-{version}-plugin" / name


def installing(name: str, version: str) -> list[str]:
    """Arguments of ``pulumi`` that install a plugin."""
    kind, _, of = name.removeprefix("pulumi-").partition("-")
    return ["plugin", "install", kind, of, version]


def sha256(repository: str, version: str, file: str, token: str = "", releases: str = RELEASES) -> str:
    """SHA-256 of a release's file, as GitHub computed it when the file was uploaded.

    The file itself comes from Pulumi's server (docs.github.com, REST API, release assets: ``digest``). ``token`` is for GitHub's rate limit. Raises Failure if GitHub does not state it.
    """
    import httpx

    headers = {"Accept": "application/vnd.github+json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        answer = httpx.get(
            f"{releases}/{repository}/releases/tags/v{version}", headers=headers, timeout=_ANSWER_S
        ).raise_for_status()
        stated = {one["name"]: _DIGEST.fullmatch(one["digest"] or "") for one in answer.json()["assets"]}
    except httpx.HTTPStatusError as error:
        fact = f"HTTP {error.response.status_code} for the release {version} of {repository}"
        raise Failure("GitHub", fact, "try again later") from None
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        fact = f"does not describe the release {version} of {repository} ({type(error).__name__})"
        raise Failure("GitHub", fact, "try again later") from None
    if (found := stated.get(file)) is None:
        raise Failure("GitHub", f"states no SHA-256 of {file}", "install it by hand")
    return found[1]


def plugin_sha256(name: str, version: str, token: str = "", releases: str = RELEASES) -> str:
    """SHA-256 of a resource plugin's archive for this platform; Failure as `sha256`."""
    file = f"{name}-v{version}-{this_platform().replace('/', '-')}.tar.gz"
    return sha256(name.replace("-resource-", "-"), version, file, token, releases)


def download(
    tool: Tool, pulumi: Path, scratch: Path, report: Reporter, server: str = SERVER, releases: str = RELEASES
) -> Path | None:
    """The official plugin below ``scratch``, verified; None, after a line with the reason, if there is none."""
    import httpx

    try:
        httpx.head(server, timeout=PROBE_S, follow_redirects=True)
    except httpx.HTTPError as error:
        report.line(f"{tool.name}: {server} cannot be reached ({error or type(error).__name__})")
        return None
    try:
        checksum = plugin_sha256(tool.name, tool.plugin, releases=releases)
    except Failure as failure:
        report.line(f"{tool.name} {tool.plugin} cannot be verified: {failure.subject}: {failure.fact}")
        return None
    home = scratch / "home"
    command = [str(pulumi), *installing(tool.name, tool.plugin), "--non-interactive", "--checksum", checksum]
    if server != SERVER:
        command += ["--server", server]
    report.update(f"{tool.name}: downloading {tool.plugin}")
    env = os.environ | {"PULUMI_HOME": str(home), "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            command, env=env, cwd=scratch, capture_output=True, text=True, timeout=_INSTALL_S
        )
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        why = f"not finished within {_INSTALL_S} s"
    folder = f"{tool.name.removeprefix('pulumi-')}-v{tool.plugin}"
    binary = home / "plugins" / folder / tool.name
    if not binary.is_file():
        report.line(f"{tool.name} {tool.plugin} cannot be downloaded: {why}")
        return None
    report.line(f"{tool.name} {tool.plugin}: downloaded")
    return binary
