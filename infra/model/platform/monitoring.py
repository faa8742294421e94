"""Monitoring: where measurements are kept and for how long, what is measured, and where alerts go.

The block installs a kube-prometheus-stack, or, with ``prometheus``, adds monitors, rules and dashboards to a
Prometheus that the cluster has.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from infra import versions
from infra.model.base.errors import InputError
from infra.model.base.fields import (
    NUMBER,
    Flag,
    Memory,
    Model,
    ObjectName,
    Strict,
    matching,
    option,
    refusing,
    required,
)
from infra.model.base.hostnames import is_loopback
from infra.model.base.labels import RELEASE as RELEASE_LABEL
from infra.model.base.quantities import memory_bytes, seconds, size_bytes
from infra.model.base.registries import ChartRepository
from infra.model.gpu.dcgm import FIELDS, MetricType
from infra.model.platform.existing_prometheus import SECRET_KEYS, Address, ExistingPrometheus

_MIN_RETENTION_S, _MAX_RETENTION_S = 2 * 3600, 10 * 365 * 86400
_MAX_BYTES = 2**63 - 1
"""Prometheus counts bytes with 63 bits (its units.Base2Bytes)."""
_TESTED_MAJOR = int(versions.KUBE_PROMETHEUS_STACK.partition(".")[0])
_MAX_MAJOR_DISTANCE = 50
"""Ours: about as many as come in two years."""
_MIN_BYTES = 3 * 128 * 2**20
"""Prometheus, storage, "On-disk layout"."""


def _field(value: str) -> str:
    if value not in FIELDS:
        fact = f"unknown field {value!r}, with which dcgm-exporter would not start"
        raise InputError("", fact, _closest(value))
    return value


def _closest(value: str) -> str:
    close = difflib.get_close_matches(value.upper(), FIELDS, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}docs/howto/monitoring.md lists all known fields"


Retention = Annotated[
    Strict,
    matching(r"[1-9]\d{0,8}[mhdwy]", "a retention time", "write a number and one of m, h, d, w, y: 15d"),
    refusing(
        lambda value: seconds(value) < _MIN_RETENTION_S,
        "{} is less than Prometheus keeps in one block",
        "use 2h or more",
    ),
    refusing(
        lambda value: seconds(value) > _MAX_RETENTION_S,
        "{} is longer than one Prometheus keeps its measurements",
        "use 10y or less, and remote_write for a longer time",
    ),
]
RetentionSize = Annotated[
    Strict,
    matching(r"[1-9]\d{0,15}(MB|GB|TB)", "a size", "write a number and one of MB, GB, TB: 40GB"),
    refusing(
        lambda value: size_bytes(value) > _MAX_BYTES,
        "{} is more than any volume has",
        "write what the volume has room for",
    ),
    refusing(
        lambda value: size_bytes(value) < _MIN_BYTES,
        "{} is less than the write-ahead log takes, of which three files of 128 MB are kept",
        "use 384MB or more",
    ),
]
Interval = Annotated[
    Strict,
    matching(r"[1-9]\d{0,5}[sm]", "an interval", "write a number and s or m: 15s"),
    refusing(
        lambda value: not 5 <= seconds(value) <= 120,
        "{} is not between 5s and 2m",
        "use 15s: rules look back 5m, and need several samples in that time",
    ),
]
ChartVersion = Annotated[
    Strict,
    matching(rf"{NUMBER}\.{NUMBER}\.{NUMBER}", "a chart version", "write the whole version, as 88.5.3"),
    # Each major version of the chart may rename values (its README, "Upgrading an existing Release").
    refusing(
        lambda value: abs(int(value.partition(".")[0]) - _TESTED_MAJOR) > _MAX_MAJOR_DISTANCE,
        f"{{}} is years away from {versions.KUBE_PROMETHEUS_STACK}, which the settings are for",
        f"use {_TESTED_MAJOR - _MAX_MAJOR_DISTANCE}.0.0 or newer, or leave it out",
    ),
]
FieldName = Annotated[Strict, AfterValidator(_field)]
_HELP_REMEDY = "write some words without comma, quotes and line breaks"
Help = Annotated[
    Strict,
    refusing(lambda value: not value, "is empty", _HELP_REMEDY),
    refusing(lambda value: set(value) & set(',"\n'), "cannot be a CSV column", _HELP_REMEDY),
]

NAMESPACE = "monitoring"
RELEASE = "monitoring"
"""Name of the Helm release, and value of the label ``release`` by which Prometheus selects our objects."""
_PROMETHEUS = f"{RELEASE}-kube-prometheus-prometheus"
PROMETHEUS_URL = f"http://{_PROMETHEUS}.{NAMESPACE}:9090"
"""Prometheus's Service, which the chart names after the release [kube-prometheus-stack, templates]."""
CLAIM = f"prometheus-{_PROMETHEUS}-db-prometheus-{_PROMETHEUS}-0"  # [prometheus-operator, pkg/prometheus]

SHORT_RETENTION = "1d"
"""The longest retention in an emptyDir (our choice): it is lost with its pod, and pods move when nodes are
replaced, in most pools within days. Rules, and a person on call, look back a day."""
LONG_RETENTION = "15d"
"""Prometheus's own default."""
VOLUME_SHARE = 85
"""Maximum percentage of the volume for measurements; the rest is for the write-ahead log
[Prometheus, storage: 80 to 85 %]."""
_GIB = 2**30
_CHART_SECRETS = re.compile(
    rf"sh\.helm\.release\..*|(prometheus|alertmanager)-{RELEASE}-.*"
    rf"|{RELEASE}-(grafana|kube-prometheus|kube-state-metrics|prometheus-node-exporter|alertmanager).*"
)
"""Secrets that Helm, the chart (templates/_helpers.tpl) and prometheus-operator create and overwrite."""
_MIN_VOLUME = 2 * _GIB
_MAX_GP2 = 16 * 2**40
"""EBS user guide, volume types."""


_OVERWRITTEN = "{} is a Secret of the chart's, which overwrites what others write into it"
UserSecret = Annotated[ObjectName, refusing(_CHART_SECRETS.fullmatch, _OVERWRITTEN, "use another name")]


class Storage(Model):
    """Volume of Prometheus; without one, measurements are lost with its pod."""

    size: Memory = required("Size of the volume, for example 50Gi; first enlarge the claim of an old one.")
    storage_class: ObjectName | None = option(
        "Its storage class; the cluster's default if left out.", alias="class"
    )


class RemoteWrite(Model):
    """Remote-write endpoint that also gets every measurement; none if left out."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = SECRET_KEYS

    url: Address = required("Address of the remote-write endpoint.")
    secret: UserSecret | None = option(
        "Secret in namespace monitoring with the keys username and password, which you create."
    )


class Alertmanager(Model):
    """Where alerts are sent; without it, they are only shown."""

    config_secret: UserSecret = required(
        "Secret in namespace monitoring with the key alertmanager.yaml, which you create: routes and "
        "receivers, with addresses and tokens."
    )


class Counter(Model):
    """A field of DCGM with a type or help text of its own."""

    field: FieldName = required("Name of the field.")
    type: MetricType | None = option("Type of the metric; the field's own if left out.")
    help: Help | None = option("Help text, without a comma; gpuform's text if left out.")


AnyCounter = Annotated[
    # Tags appear in error paths; the brackets distinguish them from an environment's keys.
    Annotated[FieldName, Tag("[name]")] | Annotated[Counter, Tag("[counter]")],
    Discriminator(lambda value: "[name]" if isinstance(value, str) else "[counter]"),
]


class Monitoring(Model):
    """Prometheus, Alertmanager, Grafana and the exporters, with their settings for GPUs."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "grafana_password": (
            "a secret does not belong in this file",
            "leave it out: the chart creates one, in the Secret monitoring-grafana",
        )
    }

    prometheus: ExistingPrometheus | None = Field(default=None)
    retention: Retention | None = option(
        f"Retention time of measurements; {LONG_RETENTION} if left out, {SHORT_RETENTION} without storage."
    )
    retention_size: RetentionSize | None = option(
        f"Maximum size of kept measurements, for example 40GB; {VOLUME_SHARE} % of the volume if left out."
    )
    storage: Storage | None = Field(default=None)
    remote_write: RemoteWrite | None = Field(default=None)
    scrape: Literal["service_monitor", "scrape_configs"] = option(
        "How Prometheus finds dcgm-exporter: by the ServiceMonitor that NVIDIA's operator creates, or by a "
        "scrape configuration of its own, with the operator's switched off.",
        "service_monitor",
    )
    interval: Interval = option("Time between two scrapes, and between two evaluations of the rules.", "15s")
    counters: tuple[AnyCounter, ...] = option(
        "Fields of DCGM in addition to the default ones, by name or as mappings.", ()
    )
    alertmanager: Alertmanager | None = Field(default=None)
    alerts: Flag = option("Whether to create alerts; recording rules are always created.", True)
    runbooks: Address | None = option(
        "Base address of this project's files: alerts then link to their runbooks below it "
        "(docs/runbooks/NAME.md), and only name them if left out."
    )
    dashboards: Flag = option("Whether Grafana has our dashboards.", True)
    version: ChartVersion | None = option(
        "Version of the chart kube-prometheus-stack; the one this release is tested with if left out."
    )
    repository: ChartRepository | None = option("Helm repository with the chart; upstream's if left out.")

    @model_validator(mode="after")
    def _check_consistency(self) -> Monitoring:
        self._check_counters()
        write = self.remote_write
        if write and write.secret and urlsplit(write.url).scheme == "http":
            fact = "http sends the password of remote_write.secret unencrypted"
            raise InputError("remote_write.url", fact, "use https, or leave the secret out")
        if write and is_loopback(urlsplit(write.url).hostname or ""):
            fact = f"{write.url} is Prometheus's own pod"
            raise InputError("remote_write.url", fact, "name a host that pods reach")
        if self.storage:
            self._check_volume(self.storage.size)
        return self

    @property
    def address(self) -> str:
        """Base address of Prometheus's API for pods."""
        if self.prometheus is None:
            return PROMETHEUS_URL
        return self.prometheus.url or f"http://{self.prometheus.service}"

    @property
    def has_operator(self) -> bool:
        """Whether Prometheus finds rules and targets by objects of prometheus-operator's kinds."""
        return self.prometheus is None or self.prometheus.config_namespace is None

    @property
    def selected_by(self) -> Mapping[str, str]:
        """Labels of the monitors and rules that Prometheus selects."""
        return self.prometheus.labels if self.prometheus else {RELEASE_LABEL: RELEASE}

    def _check_counters(self) -> None:
        index_of: dict[str, int] = {}
        for index, counter in enumerate(self.counters):
            name = counter.field if isinstance(counter, Counter) else counter
            if name in index_of:
                fact = f"{name} is also counters[{index_of[name]}]"
                raise InputError(f"counters[{index}]", fact, "name it once")
            index_of[name] = index
            declared_type = counter.type if isinstance(counter, Counter) else None
            if declared_type in ("gauge", "counter") and FIELDS[name].type == "label":
                fact = f"the value of {name} is a text, which no {declared_type} has"
                raise InputError(f"counters[{index}].type", fact, "use label, or leave it out")

    def _check_volume(self, size: str) -> None:
        volume = memory_bytes(size)
        if volume < _MIN_VOLUME:
            fact = f"{size} is too small for Prometheus's first hours"
            raise InputError("storage.size", fact, f"use {_MIN_VOLUME // _GIB}Gi or more")
        max_bytes = volume * VOLUME_SHARE // 100
        if self.retention_size and size_bytes(self.retention_size) > max_bytes:
            fact = f"{self.retention_size} of a volume of {size} leaves no room for the write-ahead log"
            remedy = f"use {max_bytes // 2**20}MB ({VOLUME_SHARE} %) or less, or leave it out"
            raise InputError("retention_size", fact, remedy)


def check(cluster: str, spec: Monitoring | None, namespaces: Mapping[str, str]) -> None:
    """Refuse fields without effect on this kind of cluster, and a retention that needs storage.

    ``namespaces``: the environment's namespaces, each with the path of the first field that names it.
    """
    if spec is None:
        return
    if NAMESPACE in namespaces and spec.prometheus is None:
        fact = f"{NAMESPACE} is the namespace of monitoring"
        raise InputError(namespaces[NAMESPACE], fact, "name another one")
    if spec.prometheus:
        if cluster not in ("existing", "hosts"):
            fact = "the stack makes this cluster, and no Prometheus is there before"
            raise InputError("monitoring.prometheus", fact, "leave it out: the stack installs one")
        for key in _OF_OWN_PROMETHEUS:
            if getattr(spec, key) == Monitoring.model_fields[key].default:
                continue
            fact = "the cluster's own Prometheus is configured by its owner (monitoring.prometheus)"
            raise InputError(f"monitoring.{key}", fact, "leave it out")
    if cluster == "embedded":
        for key, reason in UNUSED_FIELDS.items():
            if key in spec.model_fields_set:
                raise InputError(f"monitoring.{key}", *reason)
        return
    if cluster == "aws" and spec.storage and spec.storage.storage_class is None:
        fact = "missing, and EKS has no default class since 1.30: the volume would never be created"
        raise InputError("monitoring.storage.class", fact, "name one; EKS creates gp2")
    gp2 = cluster == "aws" and spec.storage and spec.storage.storage_class == "gp2"
    if gp2 and spec.storage and memory_bytes(spec.storage.size) > _MAX_GP2:
        fact = f"EBS makes no volume of type gp2 with {spec.storage.size}"
        raise InputError("monitoring.storage.size", fact, "use 16Ti or less")


def warnings(spec: Monitoring | None) -> Iterator[str]:
    """Measurements that are lost before they expire."""
    retention = spec.retention if spec and spec.storage is None else None
    if retention and seconds(retention) > seconds(SHORT_RETENTION):
        fact = f"{retention} without storage: measurements are lost with the pod"
        yield f"monitoring.retention: {fact}; give storage: {{size: 50Gi}}, or keep {SHORT_RETENTION} at most"


_OF_OWN_PROMETHEUS = (
    *("retention", "retention_size", "storage", "remote_write", "scrape", "alertmanager"),
    *("version", "repository"),
)
"""Fields of a Prometheus that the stack installs."""
_NO_VOLUME = ("Prometheus of the embedded cluster writes into a folder of this machine", "leave it out")
_OWN_CHART = ("the embedded cluster has our own chart", "leave it out")
UNUSED_FIELDS: Mapping[str, tuple[str, str]] = {
    "storage": _NO_VOLUME,
    "remote_write": ("simulated metrics must not be mixed with measured ones", "leave it out"),
    "alertmanager": (
        "no Alertmanager runs on the embedded cluster, so no alert would be sent",
        "leave it out",
    ),
    "version": _OWN_CHART,
    "repository": _OWN_CHART,
}
"""Fields without effect on the embedded cluster."""
