"""Validation of the inputs of PoolNodes and MigLayout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.provider.handler import CheckResult, Properties, unknown_inputs
from gpuform.provider.nodes import joining
from gpuform.provider.properties import UNKNOWN, Secret, has_unknown, reveal

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TIMEOUT_S = 600  # a relayout takes minutes where the GPU must be reset or the node rebooted
IN_USE = ("drain", "refuse")
_SHARE = re.compile(r"([1-9][0-9]?|100)%")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_Failures = Iterator[tuple[str, str]]


def check_inputs(news: Properties, names: tuple[str, ...], failures: _Failures) -> CheckResult:
    """The inputs without empty ones; a kubeconfig given as contents becomes a secret: it holds keys."""
    inputs = {key: value for key, value in news.items() if value is not None}
    kubeconfig = inputs.get("kubeconfig")
    if isinstance(kubeconfig, str) and ("\n" in kubeconfig.strip() or kubeconfig.lstrip().startswith("{")):
        inputs["kubeconfig"] = Secret(kubeconfig)
    return CheckResult(inputs, [*unknown_inputs(inputs, names), *failures])


def selector_failures(news: Properties) -> _Failures:
    """Errors of selector and kubeconfig; an empty selector would match every node."""
    if reveal(news.get("selector")) is not UNKNOWN and not reveal(news.get("selector")):
        yield "selector", "is empty, which would match every node; write it as key=value,key2=value2"
    if not reveal(news.get("kubeconfig")):
        yield "kubeconfig", "is missing; give a path, or the contents"


def pool_failures(news: Properties) -> _Failures:
    yield from selector_failures(news)
    plain = reveal(news)
    yield from joining.input_failures(plain.get("joining"))
    if has_unknown(plain.get("labels")) or has_unknown(plain.get("taints")):
        return
    for key, value in (plain.get("labels") or {}).items():
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            yield f'labels["{key}"]', f"{value!r} is not a label value; use up to 63 of A-Z a-z 0-9 - _ ."
    sharing = plain.get("sharing")
    if sharing and not (isinstance(sharing, Mapping) and {"label", "offers"} <= set(sharing)):
        yield "sharing", "is not {label, offers}: the label that selects it, and what a node then offers"
    startup = plain.get("startup") or {}
    if startup and not (isinstance(startup, Mapping) and startup.get("proof")):
        yield "startup", "has no proof; it is {taints, proof, reason}, the last two are keys of annotations"
        return
    yield from _taint_failures("taints", plain.get("taints") or [])
    yield from _taint_failures("startup.taints", startup.get("taints") or [])


def _taint_failures(name: str, taints: Sequence[Any]) -> _Failures:
    seen = set()
    for index, taint in enumerate(taints):
        path = f"{name}[{index}]"
        if not isinstance(taint, Mapping) or not taint.get("key"):
            yield path, "has no key; a taint is {key, value, effect}"
        elif taint.get("effect") not in EFFECTS:
            yield f"{path}.effect", f"{taint.get('effect')!r} is not one of {', '.join(EFFECTS)}"
        elif (taint["key"], taint["effect"]) in seen:
            yield path, f"{taint['key']}:{taint['effect']} occurs twice; keep one"
        else:
            seen.add((taint["key"], taint["effect"]))


def layout_failures(news: Properties) -> _Failures:
    yield from selector_failures(news)
    plain = reveal(news)
    config, offers = plain.get("config"), plain.get("offers")
    if config is not UNKNOWN and (
        not isinstance(config, str) or not config or not _LABEL_VALUE.fullmatch(config)
    ):
        yield "config", f"{config!r} is not a layout name; it must be a valid label value"
    if not has_unknown(offers):
        if not isinstance(offers, Mapping) or not offers:
            yield "offers", "is empty; say what each node offers with this layout"
        else:
            by_count = [item.items() for item in offers.values() if isinstance(item, Mapping)]
            pairs = [pair for items in by_count or [offers.items()] for pair in items]
            yield from (_bad_offer(key, value) for key, value in pairs if not _is_offer(key, value))
    yield from _rolling_failures(plain)
    timeout = plain.get("timeoutSeconds")
    if timeout is not None and timeout is not UNKNOWN and not (_is_number(timeout) and timeout > 0):
        yield "timeoutSeconds", f"{timeout!r} is not a timeout; give seconds above 0"


def _rolling_failures(plain: Mapping[str, Any]) -> _Failures:
    in_use, cap = plain.get("inUse"), plain.get("maxUnavailable")
    if in_use not in (None, UNKNOWN, *IN_USE):
        yield "inUse", f"{in_use!r} is not one of {', '.join(IN_USE)}"
    if cap is None or cap is UNKNOWN:
        return
    if not (_SHARE.fullmatch(cap) if isinstance(cap, str) else _is_number(cap) and cap >= 1):
        yield "maxUnavailable", f"{cap!r} is not a number of nodes; give 1 or more, or a share such as '25%'"


def _is_offer(key: str, value: Any) -> bool:
    return key.startswith("nvidia.com/") and isinstance(value, int) and _is_number(value) and value >= 0


def _bad_offer(key: str, value: Any) -> tuple[str, str]:
    return f'offers["{key}"]', f"{value!r} is not a count of a resource nvidia.com/...; give a whole number"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
