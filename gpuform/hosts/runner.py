"""Runs a playbook on an inventory, and hides the inventory's secrets in every text of the run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout import scratch, writable
from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.hosts.events import END_TASK, Event, HostResults, Outcome
from gpuform.hosts.listing import plays_of, requested_hosts, to_yaml_inventory

HIDDEN = "(hidden)"
# Ansible's own variables that hold a secret, and ours, by the last word of the name.
_NAMES = re.compile(r"(^|_)(pass|password|passphrase|secret|token|private_key)$")
_URL_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_LONG_TEXT = 8  # characters
_SHORTEST = 4  # characters: hiding "a" everywhere hides the message


def secrets_of(value: Any) -> Iterator[str]:
    """Every secret text in an inventory: variables with a secret's name, and passwords inside URLs."""
    for name, text in _named_texts(value):
        if _NAMES.search(name):
            yield text
        yield from _URL_PASSWORD.findall(text)


def texts_of(value: Any) -> Iterator[str]:
    """Every text that may be a secret, in an inventory that is secret as a whole.

    Short texts are words that messages need, and Ansible's own variables only say how a host is reached.
    """
    texts = ((name, text) for name, text in _named_texts(value) if len(text) >= _LONG_TEXT)
    return (text for name, text in texts if not name.startswith("ansible_"))


def _named_texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(name of the variable, text) of each text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named_texts(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named_texts(item, name)
    elif isinstance(value, str):
        yield name, value


class SecretFilter:
    """Replaces secrets in texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Longer secrets are replaced first, so that one that contains another is hidden as a whole."""
        known = {text for secret in secrets for text in (secret, *secret.splitlines())}
        self._secrets = sorted((text for text in known if len(text) >= _SHORTEST), key=len, reverse=True)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, HIDDEN)
            return _URL_PASSWORD.sub(lambda match: match[0].replace(match[1], HIDDEN), value)
        if isinstance(value, Mapping):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return value


# The only variables that a run gets: no setting of Ansible's, no secret of Pulumi's or a cloud's.
_PASSED_VARIABLES = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSH_AUTH_SOCK")


def run(
    playbook: str,
    inventory: Mapping[str, Any],
    *,
    check: bool = False,
    limit: Sequence[str] = (),
    forks: int | None = None,
    secrets: Iterable[str] = (),
    tools: Sequence[Path] = (),
    ansible: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    paths: Paths | None = None,
) -> Outcome:
    """Run ``playbook``, a file of ``ansible/playbooks``, on an inventory as of ``ansible-inventory --list``.

    ``check`` changes nothing and reports what would change. ``limit`` are names of hosts or groups.
    ``cancelled`` is called twice a second. A KeyboardInterrupt is raised again only when everything has
    ended. Programs for this machine (kubectl) are looked up on PATH, then in the folders ``tools``.
    Secrets in the inventory, and ``secrets``, are in no event and no result. Host keys are verified, whatever
    the user's own configuration of ssh or Ansible says. Raises InputError for an unknown playbook or limit,
    and if ansible-runner is missing; failures on hosts are in the outcome.
    """
    paths = paths or Paths.anywhere()
    ansible = ansible or paths.installation / "ansible"
    file = _find_playbook(ansible / "playbooks", playbook)
    _require_ansible()
    results = HostResults(requested_hosts(inventory, limit), plays_of(_read(file), inventory))
    hide_secrets = SecretFilter([*secrets_of(inventory), *secrets])
    writable.make_state(paths.state)
    result: dict[str, Any] = {"rc": 254, "cancelled": False}
    with _prepare_job(file, ansible, inventory, _command_line(check, limit, forks), paths) as job:
        env = _process_environment(Path(job["run"]["private_data_dir"]), [*tools, paths.shims])
        for item in _read_events(job, env, cancelled or (lambda: False)):
            if item["kind"] == "end":
                result = item
                continue
            event = Event(**hide_secrets(item))
            results.add(event)
            if on_event:
                on_event(event)
    return results.outcome(int(result["rc"]), cancelled=bool(result["cancelled"]))


@contextmanager
def _prepare_job(
    playbook: Path, ansible: Path, inventory: Mapping[str, Any], command: str, paths: Paths
) -> Iterator[dict[str, Any]]:
    """What the run's process gets, see `gpuform.hosts.process`."""
    with (
        scratch.folder(paths.state / "hosts") as folder,
        tempfile.TemporaryDirectory(prefix="gpuform-ssh-", ignore_cleanup_errors=True) as sockets,
    ):
        (folder / "tmp").mkdir(mode=0o700)
        arguments = {
            "private_data_dir": str(folder),
            "project_dir": str(ansible),
            "playbook": str(_write_private(folder / "run.json", json.dumps(_with_end_play(playbook)))),
            "inventory": str(
                _write_private(folder / "inventory" / "hosts.json", json.dumps(to_yaml_inventory(inventory)))
            ),
            "envvars": _ansible_variables(folder, sockets, ansible / "ansible.cfg"),
            "cmdline": command,
        }
        yield {"run": arguments, "folders": (sockets, str(folder))}


def _find_playbook(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        known = ", ".join(sorted(file.name for file in folder.glob("*.yml"))) or "none"
        raise InputError("playbook", f"{name} is not in {folder}", f"the playbooks are: {known}")
    return folder / name


def _require_ansible() -> None:
    from importlib.util import find_spec

    if find_spec("ansible_runner") is None or find_spec("ansible") is None:
        raise InputError(
            "hosts", "ansible-core and ansible-runner are not installed", "pip install 'gpuform[hosts]'"
        )


def _read(playbook: Path) -> Any:
    """The playbook, or None if it is not YAML: Ansible reports the error."""
    try:
        return yaml.safe_load(playbook.read_text())
    except yaml.YAMLError:
        return None


def _with_end_play(playbook: Path) -> list[dict[str, Any]]:
    """The playbook, with a final task for every host that is still active.

    A host that neither failed nor got so far was stopped by another host's failure (serial,
    any_errors_fatal), which Ansible does not report.
    """
    task = {"name": END_TASK, "ansible.builtin.debug": {"msg": ""}}
    end_play = {"name": END_TASK, "hosts": "all", "gather_facts": False, "tasks": [task]}
    return [{"import_playbook": str(playbook)}, end_play]


def _command_line(check: bool, limit: Sequence[str], forks: int | None) -> str:
    words = ["--check", "--diff"] if check else []
    words += ["--limit", ",".join(limit)] if limit else []
    words += ["--forks", str(forks)] if forks else []
    return " ".join(words)


def _ansible_variables(folder: Path, sockets: str, config: Path) -> dict[str, str]:
    if not config.is_file():
        config = _write_private(folder / "ansible.cfg", "")
    return {
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,  # a short path: sun_path holds 108 bytes
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner turns it off by default
        "ANSIBLE_SSH_EXTRA_ARGS": "-o StrictHostKeyChecking=yes",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "False",
    }


def _write_private(file: Path, text: str) -> Path:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.touch(mode=0o600, exist_ok=False)
    file.write_text(text)
    return file


def _process_environment(folder: Path, tools: Sequence[Path]) -> dict[str, str]:
    """A short environment: ansible-runner writes all of it into its artifacts."""
    own_folder = str(Path(sys.executable).parent)  # the folder of ansible-playbook
    path = [own_folder, *(entry for entry in os.get_exec_path() if entry != own_folder), *map(str, tools)]
    return {
        **{name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
        "PATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder / "tmp"),
    }


def _read_events(
    job: Mapping[str, Any], env: Mapping[str, str], cancelled: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Events of the run's process, which has ended, and removed its folder, when the iterator does."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "gpuform.hosts.process"],
        env=env,
        cwd=job["run"]["private_data_dir"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C at the terminal reaches only this process, which ends the child
    )
    assert process.stdin is not None
    assert process.stdout is not None
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            if cancelled():
                process.terminate()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()  # left open: closing it ends the run
        for line in process.stdout:
            yield json.loads(line)
    finally:
        done.set()
        process.stdin.close()
        process.stdout.close()
        process.wait()
