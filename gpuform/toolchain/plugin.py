"""Official plugins of Pulumi, by ``pulumi plugin install``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuform.toolchain.catalogue import Tool
from gpuform.toolchain.progress import Reporter

SERVER = "https://get.pulumi.com/releases/plugins"
PROBE_S = 3.0
_INSTALL_S = 300


def downloaded(cache: Path, name: str, version: str) -> Path:
    return cache / "tools" / f"{name}-{version}-plugin" / name


def installing(name: str, version: str) -> list[str]:
    """Arguments of ``pulumi`` that install a plugin."""
    kind, _, of = name.removeprefix("pulumi-").partition("-")
    return ["plugin", "install", kind, of, version]


def download(tool: Tool, pulumi: Path, scratch: Path, report: Reporter, server: str = SERVER) -> Path | None:
    """The official plugin below ``scratch``; None, after a line with the reason, if ``server`` has none."""
    import httpx

    try:
        httpx.head(server, timeout=PROBE_S, follow_redirects=True)
    except httpx.HTTPError as error:
        report.line(f"{tool.name}: {server} cannot be reached ({error or type(error).__name__})")
        return None
    home = scratch / "home"
    command = [str(pulumi), *installing(tool.name, tool.plugin), "--non-interactive"]
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
