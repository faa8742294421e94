"""A container without any request, started by an OCI runtime of the host, and the devices that it sees.

No image is needed: its only program is the host's own ls, in a temporary folder. It is created and started in
two steps, as container engines do, since NVIDIA's runtime acts only on the first. The options for hosts
that are containers themselves change nothing elsewhere.
"""

from __future__ import annotations

import json

from testinfra.host import Host

from gpuform.hosts.checks.findings import CheckFailure, first_line

_SPEC = {
    "ociVersion": "1.0.2",
    "process": {
        "user": {"uid": 0, "gid": 0},
        "args": ["/bin/ls", "/dev"],
        "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all"],
        "cwd": "/",
        "noNewPrivileges": True,
    },
    "root": {"path": "rootfs"},
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    ],
    "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]},
}

_SCRIPT = """\
PATH=$3${3:+:}$PATH
runtime=$1
folder=$(mktemp -d) || exit 2
name=gpuform-probe-$$
options=--rootless=true keyring=--no-new-keyring
[ "${runtime##*/}" != crun ] || options= keyring=
trap '"$runtime" $options delete --force "$name" >/dev/null 2>&1; rm -rf "$folder"' EXIT
mkdir -p "$folder/rootfs/dev" "$folder/rootfs/proc"
for file in /bin/ls $(ldd /bin/ls | grep -o '/[^ ]*'); do
    mkdir -p "$folder/rootfs${file%/*}" && cp -L "$file" "$folder/rootfs$file"
done
printf '%s' "$2" >"$folder/config.json"
"$runtime" $options create $keyring --bundle "$folder" "$name" >"$folder/seen" 2>"$folder/said" </dev/null &&
    "$runtime" $options start "$name" 2>>"$folder/said" || { cat "$folder/said" >&2; exit 1; }
tries=0
until "$runtime" $options state "$name" 2>/dev/null | grep -q '"stopped"'; do
    tries=$((tries + 1)); [ $tries -lt 100 ] || exit 1; sleep 0.1
done
cat "$folder/seen"
"""
_UNLINKED = """\
for node in "$1"/nvidia[0-9c]* "$1"/nvidia-[mu]* "$1"/nvidia-caps/*; do
    [ -c "$node" ] || continue
    link=$(printf '%d:%d' "0x$(stat -Lc %t "$node")" "0x$(stat -Lc %T "$node")")
    [ -e "$1/char/$link" ] || echo "$node"
done
"""


def devices(host: Host, runtime: str, programs: str = "") -> frozenset[str]:
    """Contents of the container's /dev; a runtime that starts no container is a finding.

    ``programs``: folder with runc, where it is not in the host's PATH.
    """
    result = host.run("sh -c %s probe %s %s %s", _SCRIPT, runtime, json.dumps(_SPEC), programs)
    if result.rc or "null" not in result.stdout.split():
        said = [line for line in result.stderr.splitlines() if "warning" not in line]
        raise CheckFailure(
            f"{runtime} starts no container: {first_line(chr(10).join(said))}",
            "see /etc/nvidia-container-runtime/config.toml for what it is told, and `runc --version`",
        )
    return frozenset(result.stdout.split())


def unlinked_devices(host: Host, folder: str = "/dev") -> list[str]:
    """Devices of GPUs that have no link [opencontainers/runc#3708]."""
    return str(host.run("sh -c %s links %s", _UNLINKED, folder).stdout).split()
