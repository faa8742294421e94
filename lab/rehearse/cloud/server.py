"""The simulated AWS as a server on loopback."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

from gpuform.clients.aws.api import answers, client
from gpuform.engine.places import Tools
from infra.model.environment import Environment
from infra.model.prices import PriceList
from infra.plan import eks, node_groups
from lab.rehearse.cloud import account, declared
from lab.rehearse.cloud.answers import ACCOUNT, Answers, Json, priced
from lab.rehearse.cloud.fleet import Fleets
from lab.rehearse.cloud.instances import Instances
from lab.rehearse.cloud.market import Market

_HERE = "127.0.0.1"

Respond = Callable[..., Any]


class Cloud:
    """One account in one region, while the context lasts.

    moto keeps its state in this process, so only one can exist at a time. ``join_s``: seconds from its launch
    until an instance becomes a node; about half a minute in reality.
    """

    def __init__(
        self, env: Environment, prices: PriceList, kubeconfig: Path, tools: Tools, join_s: float = 2.0
    ) -> None:
        cluster = node_groups.cluster_of(env)
        self._env, self._region = env, cluster.region
        self.market = Market(env, prices)
        self._fleets = Fleets(self._region, self.market)
        zones = cluster.network.zones
        declared.add(env.catalogue.own_machines.values(), self._region, zones)
        self._answers = Answers(self._region, zones, self.market, priced(self.market))
        kubectl = [str(tools.path("kubectl")), "--kubeconfig", str(kubeconfig)]
        self._instances = Instances(self._region, self.market, self._fleets, kubectl, join_s)
        self.url = ""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of a client: AWS's endpoint, and credentials that it accepts."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "rehearsal",
            "AWS_SECRET_ACCESS_KEY": "rehearsal",
            "AWS_REGION": self._region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def interrupt(self, instance: str, notice_s: float = 120.0) -> None:
        """Warn of a spot interruption as EventBridge does, and take the instance back after the notice."""
        detail = {"instance-id": instance, "instance-action": "terminate"}
        self._warn("EC2 Spot Instance Interruption Warning", detail)
        self._instances.reclaim(instance, notice_s)

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why instances do not become nodes now; it is retried continuously."""
        return self._instances.trouble

    def __enter__(self) -> Cloud:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

        class Quiet(MotoRequestHandler):
            def log(self, *_: object) -> None:
                """No line per request."""

        self._moto = DomainDispatcherApplication(create_backend_app)
        with ExitStack() as held:  # what fails half-way leaves nothing behind
            server = make_server(_HERE, 0, self._serve, threaded=True, request_handler=Quiet)
            held.callback(server.server_close)
            self.url = f"http://{_HERE}:{server.server_port}"
            threading.Thread(target=server.serve_forever, daemon=True).start()
            held.callback(server.shutdown)
            held.enter_context(pointed(self.variables))
            self._overridden(held)
            self._reset()
            account.furnish(self._env)
            self._instances.start()
            held.callback(self._instances.stop)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _reset(self) -> None:
        import httpx

        httpx.post(f"{self.url}/moto-api/reset", timeout=60).raise_for_status()

    def _serve(self, environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        """moto has no price list service; it answers all other requests."""
        if not environ.get("HTTP_X_AMZ_TARGET", "").endswith(".GetProducts"):
            from_moto: Iterable[bytes] = self._moto(environ, respond)
            return from_moto
        body = json.dumps(self._answers.get_products()).encode()
        head = [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))]
        respond("200 OK", head)
        return [body]

    def _overridden(self, held: ExitStack) -> None:
        """Put our answers in the place of moto's while ``held`` lasts."""
        from moto.ec2.responses import EC2Response
        from moto.ssm.responses import SimpleSystemManagerResponse

        own, ssm = self._answers, SimpleSystemManagerResponse
        of_ec2 = {
            "create_fleet": self._fleets.create,
            "describe_spot_price_history": own.describe_spot_price_history,
            "describe_capacity_reservations": own.describe_capacity_reservations,
            "describe_placement_groups": own.describe_placement_groups,
            "describe_instance_types": own.describe_instance_types,
            "describe_instance_type_offerings": own.describe_instance_type_offerings,
        }
        for name, answer in of_ec2.items():
            method = _method(answer, getattr(EC2Response, name, None))
            held.enter_context(patch.object(EC2Response, name, method, create=True))
        held.enter_context(patch.object(ssm, "get_parameter", _method(own.get_parameter, None)))

    def _warn(self, kind: str, detail: Mapping[str, Any]) -> None:
        sqs = client("sqs", self._region)
        event = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": kind,
            "source": "aws.ec2",
            "account": ACCOUNT,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "region": self._region,
            "resources": [f"arn:aws:ec2:{self._region}:{ACCOUNT}:instance/{detail['instance-id']}"],
            "detail": detail,
        }
        with answers("the simulated AWS"):
            url = sqs.get_queue_url(QueueName=eks.interruption_queue(self._env))["QueueUrl"]
            sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event))


@contextmanager
def pointed(own: Mapping[str, str]) -> Iterator[None]:
    """Set these AWS variables and no others in this process's environment; afterwards it is as it was.

    A profile, a session token or the endpoint of one service would take precedence over ``AWS_ENDPOINT_URL``,
    and a proxy would be asked for addresses on loopback.
    """
    proxies = ("NO_PROXY", "no_proxy")
    direct = {name: ",".join(filter(None, (os.environ.get(name), _HERE))) for name in proxies}
    with patch.dict(os.environ, {**own, **direct}):
        for name in [name for name in os.environ if name.startswith("AWS_") and name not in own]:
            del os.environ[name]
        yield


def _method(answer: Callable[[Json], Json | None], moto: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """A method of moto's classes that answer: ``moto``'s own is called where ``answer`` is None."""
    from moto.core.responses import ActionResult

    def method(request: Any) -> Any:
        asked = request.params if request.automated_parameter_parsing else json.loads(request.body)
        found = answer(asked)
        if found is None and moto:
            return moto(request)
        return ActionResult(found)

    return method
