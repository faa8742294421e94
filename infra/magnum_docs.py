"""Generates the page on which changes Magnum makes in place, from the table that the guards use.

The page is committed; ``python -m infra.magnum_docs docs/reference`` regenerates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.model.magnum_changes import CLUSTER, NAME, POOL, UPGRADING, Change, How

PAGE = "magnum-changes.md"

_HEAD = """<!-- Made by `make docs` from the guards' table; a test compares. -->

# What a change does to a Magnum cluster

Fields of a stack file with `cluster.kind: openstack`. A change that replaces something is refused, in
previews and updates, with a list of what would be lost, until `allow_replace` is set
([how to](../howto/openstack.md)). Fields in neither table (labels, taints and sharing of a pool, monitoring,
workloads, ...) are applied inside the cluster and change in place.
"""
_LABELS = """
`cluster.labels` stands for each label, also for derived ones: the first pool with GPUs adds
`nvidia_gpu_enabled`, and with driver `capi` the first elastic pool adds `auto_scaling_enabled`. A pool that
adds or removes one of them replaces the cluster, unless `cluster.labels` sets it and so keeps its value.
"""
_WORDS: Mapping[How, str] = {
    "in_place": "in place",
    "replace": "**replaces {it}**",
    "delete": "**deletes {it}**",
    "by_upgrade": "upgraded with driver {drivers}; else **replaces {it}**",
}


def page() -> str:
    """The whole page in Markdown, the same bytes every time."""
    lines = [_HEAD, *_table("The cluster", {"name": NAME, **_below("cluster", CLUSTER)}, "the cluster")]
    lines += [_LABELS, *_table("A pool's node group", _below("pools[]", POOL), "the group")]
    return "\n".join(lines) + "\n"


def _below(path: str, table: Mapping[str, Change]) -> dict[str, Change]:
    return {f"{path}.{field}": change for field, change in table.items()}


def _table(title: str, rows: Mapping[str, Change], it: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| field | a change | why |"
    yield "|---|---|---|"
    for field, change in rows.items():
        how = _WORDS[change.how].format(it=it, drivers=" or ".join(f"`{one}`" for one in UPGRADING))
        yield f"| `{field}` | {how} | {change.source} |"


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")
