"""Releases of Pulumi that are not in the table of releases, with the checksums that GitHub states."""

from __future__ import annotations

import re

from gpuform.checkout.errors import Failure
from lab.toolchain.releases import Release
from lab.toolchain.tool import Tool, this_platform

SERVER = "https://get.pulumi.com/releases/plugins"
RELEASES = "https://api.github.com/repos/pulumi"
_TIMEOUT_S = 30.0
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def sha256(repository: str, version: str, file: str, token: str = "") -> str:
    """SHA-256 of a release's file, as GitHub computed it when the file was uploaded.

    The file itself comes from Pulumi's server (docs.github.com, REST API, release assets: ``digest``).
    ``token`` is for GitHub's rate limit. Raises Failure if GitHub does not state it.
    """
    import httpx

    login = {"Authorization": f"Bearer {token}"} if token else {}
    headers = {"Accept": "application/vnd.github+json", **login}
    try:
        answer = httpx.get(
            f"{RELEASES}/{repository}/releases/tags/v{version}", headers=headers, timeout=_TIMEOUT_S
        ).raise_for_status()
        digests = {item["name"]: _DIGEST.fullmatch(item["digest"] or "") for item in answer.json()["assets"]}
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


def release(tool: Tool) -> Release:
    """The official plugin of a version that the table of releases does not have; Failure as `sha256`."""
    checksum = plugin_sha256(tool.name, tool.plugin)
    return Release((tool.name,), tool.plugin, archive_url(tool.name, tool.plugin)[0], checksum)
