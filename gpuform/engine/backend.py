"""The backend that a stack file declares, for state that is kept outside this checkout.

Nothing in such a backend is repaired or removed from here: locks and checkpoints belong to the engine and to
other users.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from gpuform.checkout import scratch
from gpuform.checkout.errors import Failure, InputError
from gpuform.engine.files import EngineFiles, write
from infra import strict_yaml
from infra.config import KEY, parse
from infra.model.platform.state import State

RunPulumi = Callable[..., str]
"""Runs pulumi with these arguments and returns its output."""

PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
_LOCAL_BACKEND_OPTION = "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS"


def declared_state(root: Path, stack: str) -> State | None:
    """The state settings of a stack file; None if it has none or does not exist.

    Raises InputError if the file cannot be read, or if its environment has a state and is invalid.
    """
    file = root / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        return None
    text, source = strict_yaml.read_text(file), str(strict_yaml.short_path(file))
    content = strict_yaml.parse(text, source) if "state" in text else None  # most files declare none
    config = content.get("config") if isinstance(content, dict) else None
    environment = config.get(KEY) if isinstance(config, dict) else None
    if not isinstance(environment, dict) or "state" not in environment:
        return None
    return parse(environment, source).state


def project_name(root: Path) -> str:
    """Name of the project. Raises Failure if the folder has no valid Pulumi.yaml."""
    file = root / "Pulumi.yaml"
    content = strict_yaml.read(file) if file.exists() else None
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise Failure(
            str(strict_yaml.short_path(file)), "is not a Pulumi project file", "run inside a gpuform project"
        )
    return str(content["name"])


def variables(state: State) -> dict[str, str]:
    """Variables that select the backend; credentials and passphrase are the caller's own."""
    return {"PULUMI_BACKEND_URL": engine_address(state.backend)}


def engine_address(url: str) -> str:
    """A backend's address for the engine, which writes no ``.attrs`` files into a folder with it.

    The storage library (gocloud fileblob, v0.46) writes a file in one step and the ``.attrs`` beside it in
    two. If it is killed in between, ``.attrs`` is empty, and the engine can no longer read the intact file.
    """
    parts = urlsplit(url)
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    if parts.scheme != "file" or "metadata" in dict(parameters):
        return url
    return urlunsplit(parts._replace(query=urlencode([*parameters, ("metadata", "skip")])))


def variables_to_unset(names: Iterable[str], env: Mapping[str, str], own_passphrase: str) -> tuple[str, ...]:
    """Variables of the caller that a run with ``env`` must not see.

    A run with a declared state keeps the caller's passphrase, unless it is ``own_passphrase``: an earlier
    ``eval "$(gpuform local env)"`` of a stack without a declared state sets that one.
    """
    if PASSPHRASES[0] in env:
        return tuple(names)
    stale = [PASSPHRASES[0]] if os.environ.get(PASSPHRASES[0]) == own_passphrase else []
    return (*(name for name in names if name not in PASSPHRASES), *stale, _LOCAL_BACKEND_OPTION)


def environment_without(names: Iterable[str], env: Mapping[str, str], own_passphrase: str) -> dict[str, str]:
    unset = variables_to_unset(names, env, own_passphrase)
    return {name: value for name, value in os.environ.items() if name not in unset}


def require_passphrase(stack: str, state: State, env: Mapping[str, str]) -> None:
    """Raise InputError if the state's secrets need a passphrase and the caller has not set one."""
    if state.secrets_provider is None and not any(name in env for name in PASSPHRASES):
        raise InputError(
            PASSPHRASES[0],
            f"is not set, and stack {stack} keeps its state at {state.backend} without a secrets_provider",
            f"set it or {PASSPHRASES[1]}, or declare state.secrets_provider",
        )


def create_stack(
    files: EngineFiles, project: str, stack: str, run: RunPulumi, state: State | None = None
) -> None:
    """Create the stack; in a declared backend unless it exists, with the declared secrets provider."""
    with scratch.folder(files.runs) as folder:  # the engine writes salt or key next to the project file
        write(folder / "Pulumi.yaml", f"name: {project}\nruntime: python\n", 0o600)
        in_folder = ("--cwd", str(folder))
        provider = ["--secrets-provider", state.secrets_provider] if state and state.secrets_provider else []
        stacks = json.loads(run("stack", "ls", "--json", *in_folder)) if state else ()
        if any(str(item["name"]).rpartition("/")[2] == stack for item in stacks):
            return
        run("stack", "init", stack, "--no-select", *provider, *in_folder)
