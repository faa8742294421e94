"""Writes the generated pages of docs/reference: ``python -m docs.generate``, which ``make docs`` runs.

Prose is in ``templates``; tables come from the model, the rules, the policies, the roles and the commands.
The same checkout gives the same bytes.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import yaml
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from docs.generate import environment, sharing
from gpuform.cli.main import app
from infra.config import parse
from infra.model.gpu import xid
from infra.model.openstack import changes
from infra.plan.rules.alerts import Alert, all_alerts
from infra.schema import schema_text
from policies.pack import RULES

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"

Option = Mapping[str, Any]
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701  (Markdown of our own texts)
)


def page(name: str) -> str:
    """The content of a file of docs/reference. KeyError for one that is not generated."""
    found = PAGES[name]()
    return found if isinstance(found, str) else _TEMPLATES.get_template(f"{name}.j2").render(found)


def alerts() -> tuple[Alert, ...]:
    """Every alert; the set does not depend on the environment."""
    pool = {"name": "p", "machine": "g4.p1.40g", "nodes": 1}
    return tuple(all_alerts(parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool]})))


def flat(options: Mapping[str, Option], above: str = "") -> Iterator[tuple[str, Option]]:
    """Every option of a role and its suboptions, with dotted names."""
    for name, option in options.items():
        yield f"{above}{name}", option
        yield from flat(option.get("options", {}), f"{above}{name}.")


def _alerts() -> dict[str, Any]:
    return {
        "alerts": alerts(),
        "classes": {kind: xid.ACTIONS[kind] for kind in xid.CLASSES},
        "xids": xid.XIDS.values(),
    }


def _magnum() -> dict[str, Any]:
    cluster = {f"cluster.{field}": change for field, change in changes.CLUSTER.items()}
    return {
        "cluster": {"name": changes.NAME, **cluster},
        "pool": {f"pools[].{field}": change for field, change in changes.POOL.items()},
        "upgrading": " or ".join(f"`{one}`" for one in changes.UPGRADING_DRIVERS),
    }


def _policies() -> dict[str, Any]:
    def item(text: str) -> str:
        return textwrap.fill(
            f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )

    return {"rules": RULES, "item": item}


def _commands() -> dict[str, Any]:
    def listed(name: str, command: Any) -> Iterator[tuple[str, str, list[Any]]]:
        if isinstance(command, TyperGroup):
            for part, below in getattr(command, "loaded", command.commands).items():
                yield from listed(f"{name} {part}", below)
        elif not command.hidden:
            records = [given.get_help_record(Context(command)) for given in command.params]
            yield name, " ".join(command.help.split()), [one for one in records if one]

    return {"commands": listed("gpuform", get_command(app))}


def _roles() -> dict[str, Any]:
    """From the argument specifications and defaults; the text of a playbook is the comment at its head."""
    folders = [folder for folder in sorted((ROOT / "ansible/roles").iterdir()) if folder.is_dir()]
    platforms = _yaml(ROOT / "ansible/roles/supported_platform/meta/main.yml")["galaxy_info"]["platforms"]
    return {
        "platforms": ", ".join(f"{one['name']} {' and '.join(one['versions'])}" for one in platforms),
        "playbooks": [
            (file.name, _head(file)) for file in sorted((ROOT / "ansible/playbooks").glob("*.yml"))
        ],
        "roles": [(folder.name, _specification(folder)) for folder in folders],
        "flat": flat,
        "value": _value,
        "default": _default,
        "cell": lambda text: " ".join(text.split()).replace("|", "\\|"),
    }


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _specification(role: Path) -> dict[str, Any]:
    """With the defaults, except templates and long mappings, which the descriptions explain."""
    found: dict[str, Any] = _yaml(role / "meta/argument_specs.yml")["argument_specs"]["main"]
    defaults = role / "defaults/main.yml"
    for name, value in (_yaml(defaults) if defaults.exists() else {}).items():
        if "{{" not in str(value) and not (isinstance(value, dict) and value):
            found["options"][name]["default"] = value
    return found


def _head(playbook: Path) -> str:
    lines = playbook.read_text(encoding="utf-8").splitlines()[1:]
    end = next(index for index, line in enumerate(lines) if not line.startswith("# "))
    return " ".join(line.removeprefix("# ") for line in lines[:end])


def _value(option: Option) -> str:
    if "choices" in option:
        return " \\| ".join(f"`{choice}`" for choice in option["choices"])
    inner = f" of {option['elements']}" if "elements" in option else ""
    return f"{option['type']}{inner}"


def _default(option: Option) -> str:
    if option.get("required"):
        return "required"
    return f"`{json.dumps(option['default'], ensure_ascii=False)}`" if "default" in option else ""


PAGES: Mapping[str, Callable[[], str | dict[str, Any]]] = {
    "environment.schema.json": schema_text,
    "environment.md": lambda: {"lines": environment.lines()},
    "sharing.md": sharing.tables,
    "roles.md": _roles,
    "alerts.md": _alerts,
    "magnum-changes.md": _magnum,
    "policies.md": _policies,
    "commands.md": _commands,
}
"""The generated files: a text, or what a template is filled with."""
