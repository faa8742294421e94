"""Prometheus's files on disk: nothing gets there that promtool does not take.

What is refused leaves in place what was there, as the operator's admission would have, and that is said.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuform.kept.files import write_private
from gpuform.monitor.config import RULES, Wanted

CONFIG = "prometheus.yml"
_DRAFT = "draft"
_TIMEOUT_S = 60
_PROBE = "scrape_configs: [{job_name: probe, kubernetes_sd_configs: [{role: pod}]}]"


class Files:
    """The configuration and the files of rules in one folder, mode 0600."""

    def __init__(self, home: Path, promtool: Path) -> None:
        """What an earlier keeper left in ``home`` was taken then, and is taken now."""
        self._home, self._promtool = home, promtool
        for folder in (home / RULES, home / _DRAFT / RULES):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._rules = {file.name: file.read_text() for file in (home / RULES).glob("*.yaml")}
        config = home / CONFIG
        self._config = config.read_text() if config.is_file() else ""
        self._refused: dict[tuple[str, str], str] = {}
        self.troubles: tuple[str, ...] = ()
        """What is refused now, and why."""

    def finds(self) -> bool:
        """Whether Prometheus looks for targets in Kubernetes itself; Debian's promtool knows no such key."""
        return not self._wrong(CONFIG, _PROBE, "config")

    @property
    def usable(self) -> bool:
        """Whether there is a configuration that Prometheus takes."""
        return bool(self._config)

    def bring(self, wanted: Wanted) -> bool:
        """Write what has changed and is right; whether anything was written. Raises OSError."""
        changed, troubles = False, []
        for name, text in wanted.rules.items():
            if text == self._rules.get(name):
                continue
            if reason := self._wrong(f"{RULES}/{name}", text, "rules"):
                stays = "the old ones stay" if name in self._rules else "there are none"
                troubles.append(f"rules {name.removesuffix('.yaml').replace('_', '/')}: {reason}; {stays}")
                continue
            write_private(self._home / RULES / name, text)
            self._rules[name], changed = text, True
        for name in set(self._rules) - set(wanted.rules):
            (self._home / RULES / name).unlink(missing_ok=True)
            del self._rules[name]
            changed = True
        if wanted.config != self._config:
            if reason := self._wrong(CONFIG, wanted.config, "config"):
                troubles.append(f"configuration: {reason}; the old one stays")
            else:
                write_private(self._home / CONFIG, wanted.config)
                self._config, changed = wanted.config, True
        self.troubles = tuple(troubles)
        current = {(f"{RULES}/{name}", text) for name, text in wanted.rules.items()}
        current.add((CONFIG, wanted.config))
        self._refused = {key: why for key, why in self._refused.items() if key in current}
        return changed

    def _wrong(self, name: str, text: str, kind: str) -> str:
        """Why promtool refuses it, empty where it does not; the same text is asked about once."""
        if (name, text) in self._refused:
            return self._refused[name, text]
        draft = self._home / _DRAFT / name
        write_private(draft, text)
        try:
            done = subprocess.run(
                [str(self._promtool), "check", kind, draft.name],
                cwd=draft.parent,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        finally:
            draft.unlink()
        if done.returncode == 0:
            return ""
        self._refused[name, text] = (
            _reason(done.stdout + done.stderr) or f"promtool ends with {done.returncode}"
        )
        return self._refused[name, text]


def _reason(said: str) -> str:
    """What promtool says is wrong, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return "; ".join(line for line in lines if not line.startswith(("Checking", "SUCCESS", "FAILED")))[:500]
