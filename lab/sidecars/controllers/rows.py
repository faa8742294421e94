"""The controllers, one row each: how the chart's Deployment is recognised, and what differs outside a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class ProgramContext:
    """Where the program runs: ``root`` is a folder instead of the container's root folder.

    ``port`` gives the loopback port for one of the container's, which another cluster may use here;
    ``shared`` gives the same one to all controllers. ``proxy`` is the address of an HTTP proxy that knows
    Services by name.
    """

    namespace: str
    root: str
    port: Callable[[int], int]
    shared: Callable[[int], int] = int
    proxy: str = ""

    def address(self, address: str) -> str:
        """``:8081`` as an address on loopback."""
        return f"127.0.0.1:{self.port(int(address.rpartition(':')[2]))}"


@dataclass(frozen=True)
class Controller:
    """``name`` is that of the tool, ``declared`` the attribute of an environment that needs the controller;
    it is empty for NVIDIA's operator and NFD, which a control plane may simulate.

    ``charts`` are the names of charts in the Go ``module``, with their folders. ``labels``, a name and one
    more, are those of its Deployment and its pods; ``stages.yaml`` repeats them, so that the pods wait for
    their program. Folders next to the program appear in its root folder. ``adapt`` changes its configuration,
    the file ``config``, in what a process outside a pod cannot have: fixed ports, paths, the namespace that
    is mounted into a pod. ``arguments`` come after the container's and override them; ``variables`` are of
    its environment, besides the container's. With ``trusted``, its pods are ready only once the API server
    trusts its webhooks, for which the chart has a Job.
    """

    name: str
    module: str
    labels: Mapping[str, str]
    declared: str = ""
    charts: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    metrics: int = 0
    """The container's port with metrics, if Prometheus reads them."""
    adapt: Callable[[Json, ProgramContext], None] = lambda config, context: None
    arguments: Callable[[ProgramContext], Sequence[str]] = lambda context: ()
    variables: Callable[[ProgramContext], Mapping[str, str]] = lambda context: {}
    trusted: bool = False

    @property
    def selector(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.labels.items())


_NAME, _PART, _ROLE = "app.kubernetes.io/name", "app.kubernetes.io/component", "role"
_CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where the chart mounts the Secret


def _kueue(config: Json, context: ProgramContext) -> None:
    """Kueue's ports and paths; defaults: apis/config/v1beta2/defaults.go."""
    config["namespace"] = context.namespace
    health, metrics = config.setdefault("health", {}), config.setdefault("metrics", {})
    health["healthProbeBindAddress"] = context.address(health.get("healthProbeBindAddress") or ":8081")
    metrics["bindAddress"] = context.address(metrics.get("bindAddress") or ":8443")
    webhook = config.setdefault("webhook", {})
    certificates = webhook.get("certDir") or _CERTIFICATES
    webhook.update(
        host="127.0.0.1", port=context.port(webhook.get("port") or 9443), certDir=context.root + certificates
    )
    visibility = config.setdefault("visibilityServer", {})
    visibility.update(bindAddress="127.0.0.1", bindPort=context.port(visibility.get("bindPort") or 8082))
    config.setdefault("leaderElection", {})["resourceNamespace"] = context.namespace


_GRPC = 9666  # of KEDA's operator, which its metrics server asks: cmd/operator/main.go


def _keda(context: ProgramContext) -> list[str]:
    """Arguments of KEDA's operator: ports, and the folder of the certificates that it makes itself."""
    return [
        f"--metrics-bind-address={context.address(':8080')}",
        f"--health-probe-bind-address={context.address(':8081')}",
        f"--metrics-service-bind-address=127.0.0.1:{context.shared(_GRPC)}",
        f"--cert-dir={context.root}/certs",
        "--enable-webhook-patching=false",  # its webhooks are a third program, which only validates
    ]


def _keda_adapter(context: ProgramContext) -> list[str]:
    """Arguments of KEDA's metrics server, an aggregated API; defaults: cmd/adapter/main.go."""
    certificates, kubeconfig = f"{context.root}/certs", f"{context.root}/kubeconfig"
    kinds = ("authentication", "authorization", "lister")
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={context.port(6443)}",
        f"--port={context.port(8080)}",
        f"--metrics-service-address=127.0.0.1:{context.shared(_GRPC)}",
        f"--metrics-service-grpc-authority=keda-operator.{context.namespace}.svc.cluster.local",
        f"--client-ca-file={certificates}/ca.crt",
        f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key-file={certificates}/tls.key",
        f"--cert-dir={certificates}",
        *(f"--{kind}-kubeconfig={kubeconfig}" for kind in kinds),
    ]


def _keda_variables(context: ProgramContext) -> dict[str, str]:
    """KEDA's operator asks Prometheus by the name of a Service."""
    return {"KEDA_CLUSTER_OBJECT_NAMESPACE": context.namespace, "HTTP_PROXY": context.proxy}


def _kserve(context: ProgramContext) -> list[str]:
    """Arguments of KServe's manager, which binds its webhooks' port on all addresses: cmd/manager/main.go."""
    return [
        f"--metrics-addr={context.address(':8080')}",
        f"--health-probe-addr={context.address(':8081')}",
        f"--webhook-port={context.port(9443)}",
        "--leader-elect=false",  # it takes the lock's namespace from a file that only pods have
    ]


def _kserve_variables(context: ProgramContext) -> dict[str, str]:
    """Its folder of certificates is below the one for temporary files: controller-runtime, pkg/webhook."""
    temporary = str(PurePath(_CERTIFICATES).parents[1])
    return {"TMPDIR": context.root + temporary}


def _cert_manager_webhook(context: ProgramContext) -> list[str]:
    """Arguments of cert-manager's webhook server, which binds two of its ports on all addresses."""
    return [
        f"--secure-port={context.port(10250)}",
        f"--healthz-port={context.port(6080)}",
        f"--metrics-listen-address={context.address(':9402')}",
    ]


def _gpu_operator(context: ProgramContext) -> list[str]:
    """Arguments of NVIDIA's operator; defaults: cmd/gpu-operator/main.go. It serves no webhook."""
    return [
        f"--metrics-bind-address={context.address(':8080')}",
        f"--health-probe-bind-address={context.address(':8081')}",
        "--leader-elect=false",  # it takes the lock's namespace from a file that only pods have
    ]


def _nfd(context: ProgramContext) -> list[str]:
    """Arguments of both programs of node feature discovery, which listen on all addresses."""
    return [f"-port={context.port(8080)}"]


def _nfd_master(context: ProgramContext) -> list[str]:
    """It listens on all addresses; defaults: cmd/nfd-master/main.go."""
    return [*_nfd(context), f"-config={context.root}/etc/kubernetes/node-feature-discovery/nfd-master.conf"]


_NFD: Json = {
    "module": "sigs.k8s.io/node-feature-discovery",
    "variables": lambda context: {"KUBERNETES_NAMESPACE": context.namespace},
}
_CERT_MANAGER: Json = {
    "declared": "served_workloads",
    "module": "github.com/cert-manager/cert-manager",
    "variables": lambda context: {"KUBECONFIG": f"{context.root}/kubeconfig"},
}
_KEDA: Json = {
    "declared": "has_scaling",
    "module": "github.com/kedacore/keda/v2",
    "variables": _keda_variables,
}
_ROWS = (
    Controller(
        name="gpu-operator",
        module="github.com/NVIDIA/gpu-operator",
        labels=dict.fromkeys((_NAME, _PART), "gpu-operator"),
        metrics=8080,
        arguments=_gpu_operator,
        # Without it, operators before 25.10 read /host-etc/os-release, of the host.
        variables=lambda context: {"UNIT_TEST": "true"},
    ),
    Controller(
        name="nfd-master",
        labels={_NAME: "node-feature-discovery", _ROLE: "master"},
        arguments=_nfd_master,
        **_NFD,
    ),
    Controller(name="nfd-gc", labels={_NAME: "node-feature-discovery", _ROLE: "gc"}, arguments=_nfd, **_NFD),
    Controller(
        name="kueue",
        declared="queues",
        module="sigs.k8s.io/kueue",
        charts={"kueue": "charts/kueue"},
        labels={_NAME: "kueue", "control-plane": "controller-manager"},
        config="controller_manager_config.yaml",
        metrics=8443,
        adapt=_kueue,
    ),
    Controller(
        name="keda",
        labels={_NAME: "keda-operator", "control-plane": "controller-manager"},
        arguments=_keda,
        **_KEDA,
    ),
    Controller(
        name="keda-adapter",
        labels={_NAME: "keda-operator-metrics-apiserver", "control-plane": "controller-manager"},
        arguments=_keda_adapter,
        **_KEDA,
    ),
    Controller(
        name="kserve",
        declared="served_workloads",
        module="github.com/kserve/kserve",
        charts={name: f"charts/{name}" for name in ("kserve-crd", "kserve-resources")},
        labels=dict.fromkeys((_NAME, "control-plane"), "kserve-controller-manager"),
        arguments=_kserve,
        variables=_kserve_variables,
    ),
    Controller(
        name="cert-manager",
        charts={"cert-manager": "deploy/charts/cert-manager"},
        labels={_NAME: "cert-manager", _PART: "controller"},
        **_CERT_MANAGER,
    ),
    Controller(
        name="cert-manager-cainjector", labels=dict.fromkeys((_NAME, _PART), "cainjector"), **_CERT_MANAGER
    ),
    Controller(
        name="cert-manager-webhook",
        labels=dict.fromkeys((_NAME, _PART), "webhook"),
        arguments=_cert_manager_webhook,
        trusted=True,
        **_CERT_MANAGER,
    ),
)
CONTROLLERS: Mapping[str, Controller] = MappingProxyType({row.name: row for row in _ROWS})
OPERATOR = tuple(name for name, row in CONTROLLERS.items() if not row.declared)
"""NVIDIA's operator and node feature discovery."""
CHARTS: Mapping[str, Controller] = MappingProxyType(
    {chart: row for row in CONTROLLERS.values() for chart in row.charts}
)
"""By the name of a chart: the controller with the module that contains it."""
