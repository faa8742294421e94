"""Runs an environment's rules under promtool: input series, and what follows at given times."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.model.environment import Environment
from infra.plan.rules import groups

Series = Mapping[str, str]
"""Values in promtool's notation, by series."""
Alerts = Sequence[Mapping[str, Any]]
Values = float | Mapping[str, float]
"""Samples of an expression by their labels; a number is the only one, without labels."""


def selector(name: str, **labels: Any) -> str:
    pairs = ",".join(f"{key}={json.dumps(str(value))}" for key, value in labels.items())
    return f"{name}{{{pairs}}}"


@dataclass(frozen=True)
class Case:
    """By minute: all alerts that fire, as ALERTS' labels without the state, and samples of expressions.

    ``texts`` are promtool's own checks of an alert's labels and annotations.
    """

    series: Series
    fires: Mapping[float, Alerts] = field(default_factory=dict)
    samples: Mapping[float, Mapping[str, Values]] = field(default_factory=dict)
    texts: Sequence[Mapping[str, Any]] = ()

    def document(self, step: str) -> dict[str, Any]:
        """The case in promtool's format."""
        wanted: list[tuple[float, str, Values]] = []
        for minute, alerts in self.fires.items():
            found = [selector("ALERTS", alertstate="firing", **labels) for labels in alerts]
            wanted.append((minute, 'ALERTS{alertstate="firing"}', dict.fromkeys(found, 1)))
        for minute, expressions in self.samples.items():
            wanted += [(minute, expression, values) for expression, values in expressions.items()]
        return {
            "interval": step,
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "promql_expr_test": [_check(*each) for each in wanted],
            "alert_rule_test": list(self.texts),
        }


def shows(series: Series, samples: Mapping[str, Values], minute: float = 10) -> Case:
    """Samples of expressions at one time."""
    return Case(series, samples={minute: samples})


def _check(minute: float, expression: str, values: Values) -> dict[str, Any]:
    by_labels = values if isinstance(values, Mapping) else {"{}": values}
    samples = [{"labels": labels, "value": value} for labels, value in by_labels.items()]
    return {"expr": expression, "eval_time": f"{round(minute * 60)}s", "exp_samples": samples}


class Promtool:
    def __init__(self, binary: Path, folder: Path, usual: Environment) -> None:
        self._binary = binary
        self._folder = folder
        self._usual = usual
        self._count = 0

    def check(self, env: Environment) -> None:
        """Raises AssertionError if there are no rules, or if two record the same series."""
        self._run("check", "rules", "--lint=all", "--lint-fatal", str(self._rules(env)))

    def test(
        self, *cases: Case, env: Environment | None = None, backwards: bool = False, step: str = "1m"
    ) -> None:
        """Raises AssertionError, with the actual result, if it differs.

        ``backwards``: evaluate the last group first, since Prometheus evaluates groups in no certain order.
        ``step``: time between two samples, and between two evaluations.
        """
        rules = self._rules(env or self._usual)
        names = [group["name"] for group in groups(env or self._usual)]
        document = {
            "rule_files": [rules.name],
            "evaluation_interval": step,
            "group_eval_order": names[::-1] if backwards else names,
            "tests": [case.document(step) for case in cases],
        }
        file = rules.with_name(rules.stem + "-test.json")
        file.write_text(json.dumps(document))
        self._run("test", "rules", str(file))

    def _rules(self, env: Environment) -> Path:
        self._count += 1
        file = self._folder / f"rules-{self._count}.json"
        file.write_text(json.dumps({"groups": groups(env)}))
        return file

    def _run(self, *arguments: str) -> None:
        command = [str(self._binary), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
