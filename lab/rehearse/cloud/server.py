"""The simulated AWS as a server on loopback."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from gpuform.clients.aws.api import create_client, translate_errors
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.plan import eks, node_groups
from lab.rehearse.cloud import account
from lab.rehearse.cloud.answers import ACCOUNT, Answer, Answers, add_machine_types
from lab.rehearse.cloud.fleet import Fleets
from lab.rehearse.cloud.instances import Instances
from lab.rehearse.cloud.market import Market
from lab.rehearse.cluster import Cluster

_HERE = "127.0.0.1"

Respond = Callable[..., Any]


class Cloud:
    """One account in one region, while the context lasts.

    moto keeps its state in this process, so only one can exist at a time. ``join_s``: seconds from its launch
    until an instance becomes a node; about half a minute in reality.
    """

    def __init__(self, env: Environment, prices: PriceList, plane: Cluster, join_s: float = 2.0) -> None:
        cluster = node_groups.cluster_of(env)
        self._env, self._region = env, cluster.region
        self.market = Market(env, prices)
        self._fleets = Fleets(self._region, self.market)
        zones = cluster.network.zones
        add_machine_types(env.catalogue.declared_machines.values(), self._region, zones)
        self._answers = Answers(self._region, zones, self.market)
        self._instances = Instances(self._region, self.market, self._fleets, plane, join_s)
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
        sqs = create_client("sqs", self._region)
        event = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "source": "aws.ec2",
            "account": ACCOUNT,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "region": self._region,
            "resources": [f"arn:aws:ec2:{self._region}:{ACCOUNT}:instance/{instance}"],
            "detail": {"instance-id": instance, "instance-action": "terminate"},
        }
        with translate_errors("the simulated AWS"):
            url = sqs.get_queue_url(QueueName=eks.interruption_queue(self._env))["QueueUrl"]
            sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event))
        self._instances.reclaim(instance, notice_s)

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why instances do not become nodes now; it is retried continuously."""
        return self._instances.trouble

    def __enter__(self) -> Cloud:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler
        from werkzeug.serving import make_server

        class Quiet(MotoRequestHandler):
            def log(self, *_: object) -> None:
                """No line per request."""

        self._moto = DomainDispatcherApplication(self._app)
        with ExitStack() as contexts:  # what fails half-way leaves nothing behind
            server = make_server(_HERE, 0, self._serve, threaded=True, request_handler=Quiet)
            contexts.callback(server.server_close)
            self.url = f"http://{_HERE}:{server.server_port}"
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            contexts.callback(server.shutdown)
            contexts.enter_context(aws_environment(self.variables))
            self._reset()
            account.create_account(self._env)
            self._instances.start()
            contexts.callback(self._instances.stop)
            self._contexts = contexts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.close()

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

    def _app(self, service: Any) -> Any:
        """moto's service, with our answers in the place of some of its own."""
        from moto.core.utils import convert_to_flask_response
        from moto.ec2.responses import EC2Response
        from moto.moto_server.werkzeug_app import create_backend_app
        from moto.ssm.responses import SimpleSystemManagerResponse

        replacements: Mapping[str, tuple[Any, Mapping[str, Answer]]] = {
            "ec2": (EC2Response, {**self._answers.ec2_actions, "create_fleet": self._fleets.create}),
            "ssm": (SimpleSystemManagerResponse, {"get_parameter": self._answers.get_parameter}),
        }
        app = create_backend_app(service)
        if service in replacements:
            moto, table = replacements[service]
            methods = {name: _method(answer, getattr(moto, name, None)) for name, answer in table.items()}
            subclass: Any = type(moto.__name__, (moto,), methods)
            app.view_functions = dict.fromkeys(
                app.view_functions, convert_to_flask_response(subclass.dispatch)
            )
        return app


@contextmanager
def aws_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these AWS variables and no others in this process's environment; afterwards it is as it was.

    A profile, a session token or the endpoint of one service would take precedence over ``AWS_ENDPOINT_URL``,
    and a proxy would be asked for addresses on loopback.
    """
    proxies = ("NO_PROXY", "no_proxy")
    direct = {name: ",".join(filter(None, (os.environ.get(name), _HERE))) for name in proxies}
    before = dict(os.environ)
    try:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ.update({**variables, **direct})
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _method(answer: Answer, moto: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """A method of moto's classes that answer: ``moto``'s own is called where ``answer`` is None."""
    from moto.core.responses import ActionResult

    def method(request: Any) -> Any:
        params = request.params if request.automated_parameter_parsing else json.loads(request.body)
        result = answer(params)
        if result is None and moto:
            return moto(request)
        return ActionResult(result)

    return method
