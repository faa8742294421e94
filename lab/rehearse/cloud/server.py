"""The simulated AWS as a server on loopback."""

from __future__ import annotations

import io
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlencode

from gpuform.clouds.aws.api import answers, client
from gpuform.engine.places import Tools
from infra.model.aws import AwsCluster
from infra.model.environment import Environment
from infra.model.prices import PriceList
from infra.plan import eks
from lab.rehearse.cloud import account, declared, described
from lab.rehearse.cloud.answers import ACCOUNT, Answer, Answers, priced
from lab.rehearse.cloud.fleet import Fleets
from lab.rehearse.cloud.instances import Instances
from lab.rehearse.cloud.market import Bought, Market, Refused

_QUERY = ("ec2", "iam", "sts")
_CREDENTIAL = re.compile(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request")
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
        assert isinstance(env.cluster, AwsCluster)  # only a stack on AWS has one
        self._env, self._region = env, env.cluster.region
        self.market = Market(env, prices)
        self._fleets = Fleets(self._region, self.market)
        zones = env.cluster.network.zones
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

    def bought(self) -> tuple[Bought, ...]:
        return self.market.bought()

    def refused(self) -> tuple[Refused, ...]:
        return self.market.refusals()

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
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        service = found[1] if found else ""
        form = dict(parse_qsl(body.decode(), keep_blank_values=True)) if service in _QUERY else {}
        action = form.get("Action") or environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        own = self._own(f"{service}_{action}".lower())
        answer = own(form if service in _QUERY else json.loads(body or b"{}")) if own else None
        if answer is not None:
            return _respond(respond, answer)
        if own:
            body = urlencode(form).encode()
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        if (service, action) != ("ec2", "DescribeInstances"):
            found_elsewhere: Iterable[bytes] = self._moto(environ, respond)
            return found_elsewhere
        caught: list[str] = []
        whole = b"".join(self._moto(environ, lambda status, *_: caught.append(status)))
        return _respond(respond, Answer(described.completed(whole, self.bought())), caught[0])

    def _own(self, name: str) -> Callable[[Any], Answer | None] | None:
        if name == "ec2_createfleet":
            return self._fleets.create
        found: Callable[[Any], Answer | None] | None = getattr(self._answers, name, None)
        return found

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
    foreign = {name for name in os.environ if name.startswith("AWS_")}
    before = {name: os.environ.get(name) for name in {*own, *direct, *foreign}}
    for name in foreign:
        del os.environ[name]
    os.environ.update({**own, **direct})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _respond(respond: Respond, answer: Answer, status: str = "200 OK") -> Iterable[bytes]:
    respond(status, [("Content-Type", answer.type), ("Content-Length", str(len(answer.body)))])
    return [answer.body]
