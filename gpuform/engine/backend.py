"""Where a stack's state is kept when that is not here: the backend that its stack file declares.

Nothing in such a backend is repaired or taken from here: locks and checkpoints are the engine's, and other
people's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import yaml

from gpuform import scratch
from gpuform.engine.places import Places, write
from gpuform.errors import Failure, InputError
from infra.config import KEY, parse, read_yaml
from infra.model.state import State

Ask = Callable[..., str]
"""Runs pulumi with these words and returns what it prints."""

PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
_OF_OURS_ONLY = "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS"


def declared(root: Path, stack: str) -> State | None:
    """What the stack file says of its state; None where it says nothing, or is not there.

    Raises InputError for an environment that declares a state and is wrong, or is no YAML.
    """
    file = root / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        return None
    text = file.read_text(encoding="utf-8")
    content = read_yaml(text, str(file)) if "state" in text else None  # most files need not be read twice
    config = content.get("config") if isinstance(content, dict) else None
    environment = config.get(KEY) if isinstance(config, dict) else None
    if not isinstance(environment, dict) or "state" not in environment:
        return None
    return parse(environment, str(file)).state


def project(root: Path) -> str:
    """Name of the checkout's project."""
    file = root / "Pulumi.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise Failure(str(file), "is no Pulumi project file", "run inside a checkout of this project")
    return str(content["name"])


def variables(state: State) -> dict[str, str]:
    """What the engine is told of it; credentials and passphrase are the caller's own."""
    return {"PULUMI_BACKEND_URL": address(state.backend)}


def address(url: str) -> str:
    """A backend's address as the engine gets it: beside the files of a folder no notes are written.

    The storage library (gocloud fileblob, v0.46) writes a file in one step and the ``.attrs`` beside it in
    two. Killed between them it leaves an empty one, and the engine then reads the sound file no more.
    """
    parts = urlsplit(url)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    if parts.scheme != "file" or "metadata" in dict(asked):
        return url
    return urlunsplit(parts._replace(query=urlencode([*asked, ("metadata", "skip")])))


def unset(always: Iterable[str], env: Mapping[str, str], ours: str) -> tuple[str, ...]:
    """Variables of the caller that a run with ``env`` must not see.

    A run with a declared state has the caller's passphrase, except ``ours``, which an earlier
    ``eval "$(gpuform local env)"`` of a stack without one has left.
    """
    if PASSPHRASES[0] in env:
        return tuple(always)
    left = [PASSPHRASES[0]] if os.environ.get(PASSPHRASES[0]) == ours else []
    return (*(name for name in always if name not in PASSPHRASES), *left, _OF_OURS_ONLY)


def without(always: Iterable[str], env: Mapping[str, str], ours: str) -> dict[str, str]:
    """The caller's environment without what ``unset`` names."""
    gone = unset(always, env, ours)
    return {name: value for name, value in os.environ.items() if name not in gone}


def require_passphrase(stack: str, state: State, env: Mapping[str, str]) -> None:
    """Raise InputError where secrets are protected by a passphrase that nobody has given."""
    if state.secrets_provider is None and not any(name in env for name in PASSPHRASES):
        raise InputError(
            PASSPHRASES[0],
            f"is not set, and stack {stack} keeps its state at {state.backend} without a secrets_provider",
            f"set it or {PASSPHRASES[1]}, or declare state.secrets_provider",
        )


def make(places: Places, project: str, stack: str, state: State, ask: Ask) -> None:
    """Make the stack in its backend unless it is there; the key that is declared protects it from then on."""
    with scratch.folder(places.runs) as folder:  # apart: the engine writes the key next to the project file
        write(folder / "Pulumi.yaml", f"name: {project}\nruntime: python\n", 0o600)
        here = ("--cwd", str(folder))
        found = json.loads(ask("stack", "ls", "--json", *here))
        if any(str(one["name"]).rpartition("/")[2] == stack for one in found):
            return
        key = ["--secrets-provider", state.secrets_provider] if state.secrets_provider else []
        ask("stack", "init", stack, "--no-select", *key, *here)
