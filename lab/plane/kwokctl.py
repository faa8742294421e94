"""How kwokctl is called: its configuration, its environment, and the two commands in use.

kwokctl installs and starts the members. Ending and waiting for them is our own code (:mod:`processes`,
:mod:`starting`), since kwokctl knows processes by pid files only and kills etcd without letting it close its
data.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from gpuform.checkout.errors import Failure
from gpuform.engine.files import Tools, link
from infra import versions
from lab.plane.layout import CLUSTER, Layout

STAGES = Path(__file__).resolve().parent.parent / "simulator" / "stages.yaml"
# Toolchain name -> variable of kwokctl, so that it takes our binary and never downloads one.
BINARIES = {
    "etcd": "KWOK_ETCD_BINARY",
    "kube-apiserver": "KWOK_KUBE_APISERVER_BINARY",
    "kube-controller-manager": "KWOK_KUBE_CONTROLLER_MANAGER_BINARY",
    "kube-scheduler": "KWOK_KUBE_SCHEDULER_BINARY",
    "kwok": "KWOK_CONTROLLER_BINARY",
}
_Arguments = dict[str, dict[str, str]]
_KEPT_VARIABLES = ("HOME", "TMPDIR", "LANG", "TZ")


def configuration(layout: Layout, ports: Mapping[str, int]) -> str:
    """The configuration file: options, each member's arguments, and the simulator's stages if any."""
    document = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "kubeVersion": f"v{versions.KUBERNETES}",
            "bindAddress": "127.0.0.1",
            "securePort": True,
            "kubeAuthorization": True,
            "kubeAdmission": True,
            "disableQPSLimits": True,  # a thousand nodes report through one kwok
            "kubeApiserverPort": ports["kube-apiserver"],
            "etcdPort": ports["etcd"],
            "etcdPeerPort": ports["etcd-peer"],
            "kubeControllerManagerPort": ports["kube-controller-manager"],
            "kubeSchedulerPort": ports["kube-scheduler"],
            "kwokControllerPort": ports["kwok"],
        },
        "componentsPatches": _patches(layout, ports),
    }
    text = yaml.safe_dump(document, sort_keys=False)
    return f"{text}---\n{STAGES.read_text()}" if STAGES.is_file() else text


def _patches(layout: Layout, ports: Mapping[str, int]) -> list[dict[str, object]]:
    """Arguments that kwokctl does not set.

    GOGC keeps its default: a smaller one saves 40 MB of the apiserver's 260 and adds a fifth to its CPU time
    (measured with 0 and with 300 nodes on 2 cores).
    """
    added: _Arguments = {
        "etcd": {
            # Disposable: a killed process loses nothing, a power cut may. No effect on a fast disk.
            "unsafe-no-fsync": "true",
            # One member elects itself after one election timeout, by default a second of every start.
            "heartbeat-interval": "10",
            "election-timeout": "100",
        },
        "kube-apiserver": {
            "service-cluster-ip-range": "10.96.0.0/16",
            # Without these a machine that has no default route cannot start it.
            "advertise-address": "127.0.0.1",
            "external-hostname": "127.0.0.1",
            "endpoint-reconciler-type": "none",  # Endpoints must not name a loopback address
            "profiling": "false",
        },
        # Election would make a member that was killed wait up to 15 s for its own old lease.
        "kube-controller-manager": {"leader-elect": "false", "profiling": "false"},
        "kube-scheduler": {"leader-elect": "false", "profiling": "false"},
        "kwok-controller": {"manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake"},
    }
    if layout.egress.is_file():
        added["kube-apiserver"] |= _aggregation_arguments(layout)
    overridden: _Arguments = {
        "etcd": {"data-dir": str(layout.etcd)},
        "kube-apiserver": {},
        "kwok-controller": {"manage-all-nodes": "false"},
    }
    for member_arguments, secured in zip((added, overridden), _etcd_tls(layout, ports), strict=True):
        for name, arguments in secured.items():
            member_arguments[name] |= arguments
    return [
        {
            "name": name,
            "extraArgs": [{"key": key, "value": value} for key, value in arguments.items()]
            + [
                {"key": key, "value": value, "override": True}
                for key, value in overridden.get(name, {}).items()
            ],
        }
        for name, arguments in added.items()
    ]


def _aggregation_arguments(layout: Layout) -> dict[str, str]:
    """Arguments by which the API server reaches webhooks and aggregated APIs, and names each request's user.

    The headers are those of kubernetes.io, "Configure the Aggregation Layer"; its certificate is kwokctl's
    (kwok, pkg/kwokctl/pki). From Kubernetes 1.36 on the server does not start without the certificate's name,
    as users and proxies have one authority.
    """
    return {
        "egress-selector-config-file": str(layout.egress),
        "requestheader-client-ca-file": str(layout.workdir / "pki" / "ca.crt"),
        "requestheader-allowed-names": "kwok-admin",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
    }


def _etcd_tls(layout: Layout, ports: Mapping[str, int]) -> tuple[_Arguments, _Arguments]:
    """Arguments, added and overridden, by which etcd answers only who has a certificate of the cluster.

    kwokctl starts it with plain HTTP on loopback, which every user of the machine reaches. Its certificate
    is for servers and clients, so one file serves both (kwok, pkg/kwokctl/pki/pki.go, GenerateSignCert).
    """
    pki = layout.workdir / "pki"
    authority, certificate, key = (str(pki / name) for name in ("ca.crt", "admin.crt", "admin.key"))
    files = {
        "cert-file": certificate,
        "key-file": key,
        "trusted-ca-file": authority,
        "client-cert-auth": "true",
    }
    client, peer = (f"https://127.0.0.1:{ports[name]}" for name in ("etcd", "etcd-peer"))
    added = {
        "etcd": {f"{prefix}{name}": value for prefix in ("", "peer-") for name, value in files.items()},
        "kube-apiserver": {"etcd-cafile": authority, "etcd-certfile": certificate, "etcd-keyfile": key},
    }
    overridden = {
        "etcd": {
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"node0={peer}",
        },
        "kube-apiserver": {"etcd-servers": client},
    }
    return added, overridden


def digest(text: str) -> str:
    """SHA-256 of the configuration and the pinned versions; a cluster with another digest is reinstalled."""
    pins = f"{versions.KWOK} {versions.KUBERNETES} {versions.ETCD}\n"
    return hashlib.sha256((pins + text).encode()).hexdigest()


def link_binaries(layout: Layout, tools: Tools) -> None:
    """Link our binaries where kwokctl would, since kwokctl does not accept every path."""
    for name in BINARIES:
        link(_binary_link(layout.workdir, name), tools.path(name))


def _binary_link(workdir: Path, name: str) -> Path:
    return workdir / "bin" / ("kwok-controller" if name == "kwok" else name)


def run(layout: Layout, tools: Tools, *command: str) -> None:
    """Run kwokctl to its end; its output goes to ``kwokctl.log``.

    Raises :class:`Failure` with the last line of that log.
    """
    log = layout.logs / "kwokctl.log"
    command_line = [str(tools.path("kwokctl")), *command, "--name", CLUSTER, "--config", str(layout.config)]
    with log.open("a") as out:
        try:
            result = subprocess.run(
                command_line,
                env=_environment(layout),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=120,
            )
        except subprocess.TimeoutExpired:
            raise Failure("kwokctl", "did not end within 120 s", f"see {log}") from None
    if result.returncode != 0:
        raise Failure("kwokctl", last_line(log), f"see {log}")


def _environment(layout: Layout) -> dict[str, str]:
    """kwokctl's variables; of the caller's only ``_KEPT_VARIABLES``: no proxy, no KWOK_ or Go setting.

    kwokctl would poll the new server with kubectl processes, which take longer than the server's own start.
    :mod:`starting` asks the server itself, so kubectl is ``true`` here. PATH is empty, because kwokctl
    prefers a kubectl from PATH.
    """
    kept_variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    binaries = {variable: str(_binary_link(layout.workdir, name)) for name, variable in BINARIES.items()}
    return (
        kept_variables
        | binaries
        | {
            "PATH": "",
            "KWOK_WORKDIR": str(layout.kwok_home),
            "KWOK_KUBE_VERSION": f"v{versions.KUBERNETES}",
            "KWOK_KUBECTL_BINARY": shutil.which("true") or "/bin/true",
        }
    )


def last_line(log: Path) -> str:
    """The last line of a log that is not blank, at most 300 characters; for messages."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "no log"
    return lines[-1][-300:] if lines else "its log is empty"
