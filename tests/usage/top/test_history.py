"""The last hour: of a MIG GPU weighted by slice size, and finer steps for a young Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from gpuform.checkout.errors import Failure
from gpuform.usage.prometheus import Nowhere, Prometheus
from gpuform.usage.top.history import History, ask
from gpuform.usage.top.view import Gpu, Node, Slice, Use, View
from infra.plan.rules.promql import POOL_REQUESTED, POOL_USED
from tests.usage.top.played import Played, answer, device, series

pytestmark = pytest.mark.unit

SLICES = (
    Slice("3g.20gb", "2", 0, 3, 4, 3 / 7, 1, Use()),
    Slice("2g.10gb", "5", 4, 2, 2, 2 / 7, 1, Use()),
)
VIEW = View((Node("a.b", "p", "m", True, (Gpu(0, "u", "A100", 1, 7, 8, Use(), SLICES),)),))


class Young(Played):
    since = 3300.0

    def get(self, path: str, params: Mapping[str, str]) -> httpx.Response:
        data = super().get(path, params).json()["data"]
        for one in data["result"]:
            one["values"] = [value for value in one["values"] if value[0] >= self.since]
        return answer(data)


def played(kind: type[Played]) -> Played:
    found = kind()
    for instance, util in (("2", 1.0), ("5", 0.5)):
        found.series += device("a.b", 0, util, 1, 2, GPU_I_ID=instance)
    found.series += [series(POOL_USED, 0.4, pool="p"), series(POOL_REQUESTED, 0.7, pool="p")]
    return found


def test_an_hour_in_sixty_steps() -> None:
    prometheus = played(Played)
    found = ask(Prometheus(prometheus, ""), VIEW, 3600.0)
    assert (found.since, found.until) == (0.0, 3600.0)
    assert [len(found.pools["p", name]) for name in (POOL_USED, POOL_REQUESTED)] == [61, 61]
    (points,) = found.gpus.values()
    assert {round(value, 6) for _, value in points} == {round(3 / 7 + 0.5 * 2 / 7, 6)}
    assert prometheus.asked == [
        "sum by (pool) (avg_over_time(gpuform:pool:gpus_used[60s]))",
        "sum by (pool) (avg_over_time(gpuform:pool:gpus_requested[60s]))",
        'avg_over_time(gpuform:device:util_ratio{node=~"a[.]b"}[60s])',
    ]


def test_a_young_prometheus_is_asked_again_finer() -> None:
    found = ask(Prometheus(played(Young), ""), VIEW, 3600.0)
    assert found.since == pytest.approx(3300, abs=6)
    assert len(found.pools["p", POOL_USED]) > 45


def test_what_does_not_answer_is_left_out() -> None:
    assert ask(Prometheus(Nowhere(Failure("a", "b", "c")), ""), VIEW, 3600.0) == History()
