"""dcgm-exporter's fields: a CSV in a ConfigMap named by its content, since edits are not picked up."""

from __future__ import annotations

from infra.model.dcgm import DEFAULT, FIELDS, DcgmField
from infra.model.environment import Environment
from infra.model.monitoring import Counter
from infra.plan import sharing
from infra.plan.sharing import Manifest

CONFIG_MAP = "gpuform-dcgm-metrics"
KEY = "dcgm-metrics.csv"
"""The key that NVIDIA's operator mounts [its values, dcgmExporter.config]."""


def fields(env: Environment) -> dict[str, DcgmField]:
    """Every exported field, in the order of the CSV: the defaults, then those that the environment adds.

    For a default field that the environment also names, the environment's type and help apply.
    """
    found = dict(DEFAULT)
    for counter in env.monitoring.counters if env.monitoring else ():
        asked = counter if isinstance(counter, Counter) else Counter(field=counter)
        known = FIELDS[asked.field]
        found[asked.field] = DcgmField(asked.type or known.type, asked.help or known.help)
    return found


def csv(env: Environment) -> str:
    """One line for each field: name, type, help."""
    return "".join(f"{name}, {field.type}, {field.help}\n" for name, field in fields(env).items())


def config_map(env: Environment) -> Manifest | None:
    """The ConfigMap in the exporter's namespace; None without monitoring."""
    return sharing.config_map(env, CONFIG_MAP, {KEY: csv(env)}) if env.monitoring else None
