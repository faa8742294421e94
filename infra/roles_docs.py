"""Generates the page on every variable of the Ansible roles, from their argument specifications.

The page is committed; ``python -m infra.roles_docs docs/reference`` regenerates it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

PAGE = "roles.md"
_ANSIBLE = Path(__file__).parents[1] / "ansible"
_HEAD = """<!-- Made by `make docs` from ansible/roles; a test compares. -->

# The Ansible roles

`gpuform hosts apply` (`--playbook FILE` for another playbook than `site.yml`) and the component HostCluster
set the variables from the [environment file](environment.md). Without them, use a stack's inventory, or your
own, in which you set the variables:

    . .venv/bin/activate; cd ansible; GPUFORM_STACK=onprem-dev ansible-playbook playbooks/site.yml

The extra `hosts` installs Ansible and testinfra. Supported: {where}.
Tests boot Debian 12 hosts with systemd and use ssh: packages, signatures, holds, containerd and reboots are
real; GPU, driver packages and module list are simulated. The other systems are only linted.
"""

Option = Mapping[str, Any]


def page(ansible: Path) -> str:
    """The documentation of all roles and playbooks in Markdown, the same bytes every time."""
    roles = [folder for folder in sorted((ansible / "roles").iterdir()) if folder.is_dir()]
    (where,) = {_platforms(role) for role in roles}  # the same for every role
    parts = [_HEAD.format(where=where), _playbooks(ansible / "playbooks"), *map(_role, roles)]
    return "\n".join(parts)


def flat(options: Mapping[str, Option], above: str = "") -> Iterator[tuple[str, Option]]:
    """Every option and its suboptions, with dotted names."""
    for name, option in options.items():
        yield f"{above}{name}", option
        yield from flat(option.get("options", {}), f"{above}{name}.")


def _playbooks(folder: Path) -> str:
    """A table of the playbooks; the text is the comment at the head of each."""
    rows = ["| playbook | what it does |", "|---|---|"]
    for file in sorted(folder.glob("*.yml")):
        lines = file.read_text(encoding="utf-8").splitlines()[1:]
        said = []
        for line in lines:
            if not line.startswith("# "):
                break
            said.append(line.removeprefix("# "))
        rows.append(f"| `{file.name}` | {_cell(' '.join(said))} |")
    return "\n".join([*rows, ""])


def _platforms(folder: Path) -> str:
    platforms = _load(folder / "meta/main.yml")["galaxy_info"]["platforms"]
    return ", ".join(f"{entry['name']} {' and '.join(entry['versions'])}" for entry in platforms)


def _role(folder: Path) -> str:
    spec = _load(folder / "meta/argument_specs.yml")["argument_specs"]["main"]
    lines = [f"## {folder.name}", "", f"{spec['short_description']}.", ""]
    lines += [f"- {_cell(sentence)}" for sentence in spec["description"]]
    lines += ["", "| variable | value | default | meaning |", "|---|---|---|---|"]
    for name, option in flat(spec["options"]):
        lines.append(f"| `{name}` | {_type(option)} | {_default(option)} | {_cell(_text(option))} |")
    return "\n".join([*lines, ""])


def _load(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _type(option: Option) -> str:
    if "choices" in option:
        return " \\| ".join(f"`{choice}`" for choice in option["choices"])
    inner = f" of {option['elements']}" if "elements" in option else ""
    return f"{option['type']}{inner}"


def _default(option: Option) -> str:
    if option.get("required"):
        return "required"
    if "default" not in option:
        return ""
    return f"`{json.dumps(option['default'], ensure_ascii=False)}`"


def _text(option: Option) -> str:
    said = option.get("description", "")
    return said if isinstance(said, str) else " ".join(said)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(_ANSIBLE), encoding="utf-8")
