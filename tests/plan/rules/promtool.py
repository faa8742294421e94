"""Runs an environment's rules under promtool: input series, and what follows at given times."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.model.environment import Environment
from infra.plan.rules import groups

Series = Mapping[str, str]
"""Values in promtool's notation, by series."""
STEP = "1m"


def selector(name: str, **labels: Any) -> str:
    pairs = ",".join(f"{key}={json.dumps(str(value))}" for key, value in labels.items())
    return f"{name}{{{pairs}}}"


@dataclass(frozen=True)
class Check:
    """At one time: firing alerts, as ALERTS' labels without the state, and samples of expressions.

    Exactly the alerts in ``fires`` fire; None skips the check.
    """

    time: str
    fires: Sequence[Mapping[str, Any]] | None = None
    samples: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True)
class AlertText:
    time: str
    alert: str
    labels: Mapping[str, Any]
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Case:
    series: Series
    checks: Sequence[Check] = ()
    texts: Sequence[AlertText] = ()


class Promtool:
    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._count = 0

    def check(self, env: Environment) -> None:
        """Raises AssertionError if there are no rules, or if two record the same series."""
        self._run("check", "rules", "--lint=all", "--lint-fatal", str(self._rules(env)))

    def test(self, env: Environment, *cases: Case, backwards: bool = False, step: str = STEP) -> None:
        """Raises AssertionError, with the actual result, if it differs.

        ``backwards``: evaluate the last group first, since Prometheus evaluates groups in no certain order.
        ``step``: time between two samples, and between two evaluations.
        """
        rules = self._rules(env)
        names = [group["name"] for group in groups(env)]
        document = {
            "rule_files": [rules.name],
            "evaluation_interval": step,
            "group_eval_order": names[::-1] if backwards else names,
            "tests": [{**_test(case), "interval": step} for case in cases],
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


def _test(case: Case) -> dict[str, Any]:
    wanted = []
    for check in case.checks:
        if check.fires is not None:
            labels = [{"alertstate": "firing", **fire} for fire in check.fires]
            samples = [{"labels": selector("ALERTS", **label), "value": 1} for label in labels]
            wanted.append(
                {"expr": 'ALERTS{alertstate="firing"}', "eval_time": check.time, "exp_samples": samples}
            )
        for expression, values in (check.samples or {}).items():
            samples = [{"labels": labels, "value": value} for labels, value in values.items()]
            wanted.append({"expr": expression, "eval_time": check.time, "exp_samples": samples})
    return {
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": wanted,
        "alert_rule_test": [
            {
                "alertname": item.alert,
                "eval_time": item.time,
                "exp_alerts": [
                    {
                        "exp_labels": {key: str(value) for key, value in item.labels.items()},
                        "exp_annotations": dict(item.annotations),
                    }
                ],
            }
            for item in case.texts
        ],
    }
