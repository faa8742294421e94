"""Prometheus's files on disk: only files that promtool accepts are written.

A refused file leaves the previous one in place, as the operator's admission webhook would, and is reported.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.sidecars.monitoring.config import RULES, PrometheusFiles
from lab.sidecars.shared.files import write_private

CONFIG = "prometheus.yml"
_DRAFT = "draft"
_TIMEOUT_S = 60
_SYNTAX = {"config": ("--syntax-only",)}


class Files:
    """The configuration and the files of rules in one folder, mode 0600."""

    def __init__(self, home: Path, promtool: Path) -> None:
        """Files of an earlier keeper in ``home`` count as accepted: it has checked them."""
        self._home, self._promtool = home, promtool
        for folder in (home / RULES, home / _DRAFT / RULES):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._rules = {file.name: file.read_text() for file in (home / RULES).glob("*.yaml")}
        config = home / CONFIG
        self._config = config.read_text() if config.is_file() else ""
        self._refused: dict[tuple[str, str], str] = {}
        self.troubles: tuple[str, ...] = ()
        """Files that are refused now, each with the reason."""

    @property
    def has_config(self) -> bool:
        return bool(self._config)

    def update(self, wanted: PrometheusFiles) -> bool:
        """Write the changed files that promtool accepts; returns whether any file changed. Raises OSError."""
        changed, troubles = False, []
        for name, text in wanted.rules.items():
            if text == self._rules.get(name):
                continue
            if reason := self._refusal(f"{RULES}/{name}", text, "rules"):
                consequence = "the old ones stay" if name in self._rules else "no rules are loaded"
                rule = name.removesuffix(".yaml").replace("_", "/")
                troubles.append(f"rules {rule}: {reason}; {consequence}")
                continue
            write_private(self._home / RULES / name, text)
            self._rules[name], changed = text, True
        for name in set(self._rules) - set(wanted.rules):
            (self._home / RULES / name).unlink(missing_ok=True)
            del self._rules[name]
            changed = True
        if wanted.config != self._config:
            if reason := self._refusal(CONFIG, wanted.config, "config"):
                troubles.append(f"configuration: {reason}; the old one stays")
            else:
                write_private(self._home / CONFIG, wanted.config)
                self._config, changed = wanted.config, True
        self.troubles = tuple(troubles)
        current = {(f"{RULES}/{name}", text) for name, text in wanted.rules.items()}
        current.add((CONFIG, wanted.config))
        self._refused = {key: reason for key, reason in self._refused.items() if key in current}
        return changed

    def _refusal(self, name: str, text: str, kind: str) -> str:
        """Why promtool refuses ``text``, empty if it accepts; a refusal is remembered per text."""
        if (name, text) in self._refused:
            return self._refused[name, text]
        draft = self._home / _DRAFT / name
        write_private(draft, text)
        try:
            result = subprocess.run(
                # Files that the configuration names are beside the accepted one, not beside the draft.
                [str(self._promtool), "check", kind, draft.name, *_SYNTAX.get(kind, ())],
                cwd=draft.parent,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        finally:
            draft.unlink()
        if result.returncode == 0:
            return ""
        self._refused[name, text] = (
            _reason(result.stdout + result.stderr) or f"promtool ends with {result.returncode}"
        )
        return self._refused[name, text]


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "; ".join(line for line in lines if not line.startswith(("Checking", "SUCCESS", "FAILED")))[:500]
