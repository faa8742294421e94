"""Magnum's conductor in the process of its API, so that no broker is needed: messages stay in the process.

As ``magnum.cmd.conductor``, without its worker processes.
"""

from __future__ import annotations


def begin() -> None:
    import magnum.conf
    from magnum.common import rpc_service, short_id
    from magnum.conductor.handlers import (
        ca_conductor,
        cluster_conductor,
        conductor_listener,
        credential_conductor,
        federation_conductor,
        indirection_api,
        nodegroup_conductor,
    )

    modules = (
        *(indirection_api, cluster_conductor, conductor_listener, credential_conductor),
        *(ca_conductor, federation_conductor, nodegroup_conductor),
    )
    served = [module.Handler() for module in modules]
    topic, name = magnum.conf.CONF.conductor.topic, short_id.generate_id()
    server = rpc_service.Service.create(topic, name, served, binary="magnum-conductor")
    server.create_periodic_tasks()
    server.start()
