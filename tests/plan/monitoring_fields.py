from __future__ import annotations

from typing import Any

START: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
    "monitoring": {
        "storage": {"size": "50Gi", "class": "fast"},
        "remote_write": {"url": "https://other.example/write", "secret": "other"},
        "counters": [{"field": "DCGM_FI_DEV_FB_TOTAL", "type": "gauge", "help": "Memory"}],
        "alertmanager": {"config_secret": "who"},
    },
}
_BARE = {**START, "monitoring": {}}

ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("Environment", "monitoring"): (START, "monitoring", None),
    ("Monitoring", "retention"): (START, "monitoring/retention", "30d"),
    ("Monitoring", "retention_size"): (START, "monitoring/retention_size", "20GB"),
    ("Monitoring", "storage"): (_BARE, "monitoring/storage", START["monitoring"]["storage"]),
    ("Monitoring", "remote_write"): (START, "monitoring/remote_write", None),
    ("Monitoring", "scrape"): (START, "monitoring/scrape", "scrape_configs"),
    ("Monitoring", "interval"): (START, "monitoring/interval", "30s"),
    ("Monitoring", "counters"): (START, "monitoring/counters", []),
    ("Monitoring", "alertmanager"): (START, "monitoring/alertmanager", None),
    ("Monitoring", "alerts"): (_BARE, "monitoring/alerts", False),
    ("Monitoring", "runbooks"): (START, "monitoring/runbooks", "https://git.example/gpuform/blob/main"),
    ("Monitoring", "dashboards"): (START, "monitoring/dashboards", False),
    ("Monitoring", "version"): (START, "monitoring/version", "88.0.0"),
    ("Monitoring", "repository"): (START, "monitoring/repository", "https://mirror.example/charts"),
    ("Storage", "size"): (START, "monitoring/storage/size", "60Gi"),
    ("Storage", "storage_class"): (START, "monitoring/storage/class", "slow"),
    ("RemoteWrite", "url"): (START, "monitoring/remote_write/url", "https://another.example/write"),
    ("RemoteWrite", "secret"): (START, "monitoring/remote_write/secret", "another"),
    ("Alertmanager", "config_secret"): (START, "monitoring/alertmanager/config_secret", "others"),
    ("Counter", "field"): (START, "monitoring/counters/0/field", "DCGM_FI_DEV_PSTATE"),
    ("Counter", "type"): (START, "monitoring/counters/0/type", "counter"),
    ("Counter", "help"): (START, "monitoring/counters/0/help", "All of it"),
}
