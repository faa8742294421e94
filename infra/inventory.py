"""The Ansible inventory of a stack's hosts, with repository keys read from their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra import strict_yaml
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.hosts.cluster import HostsCluster
from infra.plan import inventory as plan

ROOT = Path(__file__).resolve().parent.parent
_UNSAFE = "__ansible_unsafe"
_KEY_HEADER = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


def inventory(env: Environment, root: Path = ROOT) -> dict[str, Any]:
    """The whole inventory; relative paths of keys start at ``root``.

    Raises InputError for a cluster of another kind, and for a file that is unreadable or not a public key.
    """
    if not isinstance(env.cluster, HostsCluster):
        fact = f"a cluster of kind {env.cluster.kind} has no own hosts"
        raise InputError("cluster.kind", fact, "name a stack of kind hosts")
    return plan.inventory(env, read_keys(env, root))


def read_keys(env: Environment, root: Path = ROOT) -> Mapping[str, str]:
    """The text of every repository's key by its declared path; empty for a cluster of another kind."""
    if not isinstance(env.cluster, HostsCluster):
        return {}
    return {
        declared: _read_key(path, root / Path(declared).expanduser())
        for path, declared in plan.key_paths(env)
    }


def to_json(variables: Mapping[str, Any]) -> str:
    """An inventory as JSON, the same bytes every time."""
    return json.dumps(variables, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def from_json(text: str) -> dict[str, Any]:
    """An inventory without marks, from JSON as `to_json` or ``ansible-inventory --list`` gives it."""
    variables: dict[str, Any] = json.loads(text, object_hook=lambda item: item.get(_UNSAFE, item))
    return variables


def mark_unsafe(value: Any) -> Any:
    """The same variables with every text marked as data, which Ansible never templates.

    As Ansible's JSON decoder reads it (ansible-core, lib/ansible/_internal/_json/_profiles/_legacy.py).
    """
    if isinstance(value, Mapping):
        return {key: mark_unsafe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mark_unsafe(item) for item in value]
    return {_UNSAFE: value} if isinstance(value, str) else value


def content_hash(inventory_text: str, root: Path = ROOT) -> str:
    """Hash of an inventory's text, the roles and the playbooks: they determine the state of the hosts."""
    digest = hashlib.sha256(inventory_text.encode())
    for folder in ("playbooks", "roles"):
        for file in sorted((root / "ansible" / folder).rglob("*")):
            name = file.relative_to(root).as_posix()
            if file.is_file() and "/." not in name and "/__pycache__/" not in name:
                digest.update(f"\0{name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _read_key(path: str, file: Path) -> str:
    name = strict_yaml.short_path(file)
    try:
        content = file.read_text(encoding="ascii")
    except OSError as error:
        fact = f"{name}: {error.strerror or 'cannot be read'}"
        raise InputError(path, fact, "name the file with the repository's public key") from None
    except UnicodeDecodeError:
        fact = f"{name} is not an ASCII-armored key"
        raise InputError(path, fact, "write it with `gpg --armor --export`") from None
    if _KEY_HEADER not in content:
        fact = f"{name} is not an ASCII-armored public key"
        raise InputError(path, fact, "write it with `gpg --armor --export`")
    return content
