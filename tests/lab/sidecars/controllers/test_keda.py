"""KEDA's own operator and metrics server: a workload follows the requests that Prometheus reports."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from infra import versions
from infra.config import parse
from infra.model.scaling import KEDA
from infra.plan import scaling, workloads
from lab.offline.charts import Charts
from lab.plane import sidecars
from lab.plane.processes import scan
from lab.toolchain import Toolchain
from tests.lab.plane.conftest import Own
from tests.lab.simulator.site import Site
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ENV: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "monitoring": {},
    "pools": [{"name": "cpu", "machine": "m6i.4xlarge", "nodes": 1}],
    "workloads": [
        {
            "name": "triton",
            "kind": "inference",
            "image": "tritonserver:1",
            "scale": {"min": 1, "max": 6, "qps_per_replica": 100, "cooldown_seconds": 1},
        }
    ],
}


class Requests:
    """Prometheus's answers: requests per second, or none; and what was asked."""

    def __init__(self) -> None:
        self.per_second: int | None = 0
        self.asked: set[str] = set()


@contextmanager
def prometheus(port: int) -> Iterator[Requests]:
    played = Requests()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            played.asked |= set(parse_qs(urlsplit(self.path).query)["query"])
            value = [time.time(), str(played.per_second)]
            result = [] if played.per_second is None else [{"metric": {}, "value": value}]
            body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield played
        server.shutdown()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Own]:
    found = Own(tmp_path_factory.mktemp("keda"), toolchain)
    try:
        found.plane.controlled("keda", "keda-adapter")
        Site(found).node("cpu-0")
        yield found
    finally:
        found.plane.stop(delete=True)
    assert found.pids() == {}


def programs(cluster: Own) -> set[int]:
    """Process ids; two of each while a new one takes over."""
    return {one.pid for one in scan(cluster.layout) if one.name in ("keda", "keda-adapter")}


def test_400_requests_per_second_start_the_declared_number_and_none_leave_the_fewest(cluster: Own) -> None:
    site, env = Site(cluster), parse(ENV)
    chart = Charts(cluster.paths.root, cluster.paths.cache, cluster.state / "charts").folder(
        "keda", versions.KEDA
    )
    where = ("-n", KEDA, "--create-namespace", "--wait", "--timeout", "120s")
    site.helm("install", "keda", str(chart), *where)
    made = [one for one in workloads.objects(env, env.workloads[0]) if one["kind"] != "PodMonitor"]

    def number() -> int:
        return int(site.get("deployment", "triton")["spec"]["replicas"])

    with prometheus(sidecars.served(cluster.layout)["prometheus"]) as requests:
        site.apply(*made)
        until(
            lambda: site.get("scaledobject", "triton").get("status", {}).get("hpaName"),
            what="KEDA makes no HPA",
        )
        requests.per_second = 400
        until(lambda: number() == 4, seconds=90, what="400 requests per second are not four pods")
        assert requests.asked == {scaling.requests(env, env.workloads[0])}
        site.apply(made[0])
        assert number() == 4, "an update leaves the number alone"
        # An upgrade of the release: another process, the same objects.
        names = ("deployment/triton", "scaledobject/triton", "hpa/keda-hpa-triton", "-n", "default")
        live = lambda: site.kubectl("get", *names, "-o", "jsonpath={.items[*].metadata.uid}")  # noqa: E731
        before, first = live(), programs(cluster)
        values = cluster.state / "values.yaml"
        values.write_text(yaml.safe_dump({"tolerations": [{"key": "other", "operator": "Exists"}]}))
        site.helm("upgrade", "keda", str(chart), "-f", str(values), *where)
        until(lambda: programs(cluster), lambda now: len(now) == 2 and not now & first, seconds=90)
        assert (number(), live()) == (4, before)
        requests.per_second = 500
        until(lambda: number() == 5, seconds=90, what="the new operator scales nothing")
        requests.per_second = None
        time.sleep(20)  # longer than between two looks of the HPA
        assert number() == 5, "no answer is not zero"
        requests.per_second = 0
        until(lambda: number() == 1, seconds=90, what="pods without requests stay")
    site.kubectl("delete", "scaledobject", "triton")
    site.helm("uninstall", "keda", "-n", KEDA)
    until(lambda: "keda" not in cluster.pids(), what="it runs on, but its release is removed")
    assert number() == 1
