"""The report that an update leaves behind: the same tables for a browser, the same facts for a program."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from gpuform.reports import bills, tables
from gpuform.status import ClusterStatus
from infra.plan.cost import Bill, document


def write(folder: Path, current: ClusterStatus, bill: Bill) -> Path:
    """Write ``status.json`` and ``index.html`` into ``folder`` and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {**current.to_json(), "cost": document(bill)}
    (folder / "status.json").write_text(json.dumps(facts, indent=2) + "\n")
    recorder = Console(
        record=True,
        width=140,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    recorder.print(tables.pools(current), "", tables.pods(current), "", *tables.troubles(current), sep="\n")
    recorder.print(
        bills.table(None, bill),
        "",
        "what such machines cost, were they bought; simulated ones cost nothing",
        "",
        sep="\n",
    )
    recorder.print(tables.SIMULATED)
    page = folder / "index.html"
    recorder.save_html(str(page), inline_styles=True)
    return page
