from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from pathlib import Path

REGION = "played"
PASSWORD = "played"
"""Password of every account: they protect nothing, and all services listen on loopback only."""
SERVICE_USER = "magnum"


@dataclass(frozen=True)
class Ports:
    keystone: int
    magnum: int


def keystone(state: Path) -> str:
    """keystone.conf; the passwords protect nothing, so their hashes are cheap."""
    return f"""\
[DEFAULT]
use_stderr = true
[database]
connection = sqlite:///{state}/keystone.db
sqlite_synchronous = false
[fernet_tokens]
key_repository = {state}/fernet-keys
[fernet_receipts]
key_repository = {state}/fernet-keys
[credential]
key_repository = {state}/credential-keys
[identity]
password_hash_rounds = 4
[token]
expiration = 86400
[oslo_policy]
enforce_scope = true
"""


def keys(state: Path) -> None:
    for folder in ("fernet-keys", "credential-keys"):
        (state / folder).mkdir(mode=0o700, exist_ok=True)
        for name in ("0", "1"):
            file = state / folder / name
            file.write_bytes(base64.urlsafe_b64encode(secrets.token_bytes(32)))
            file.chmod(0o600)


def magnum(state: Path, ports: Ports) -> str:
    """magnum.conf of API and conductor in one process: certificates in its own database, no notifications."""
    account = f"""\
auth_type = password
auth_url = http://127.0.0.1:{ports.keystone}/v3
www_authenticate_uri = http://127.0.0.1:{ports.keystone}/v3
username = {SERVICE_USER}
password = {PASSWORD}
project_name = service
user_domain_id = default
project_domain_id = default
region_name = {REGION}
"""
    regions = "".join(
        f"[{name}_client]\nregion_name = {REGION}\n"
        for name in ("magnum", "nova", "glance", "neutron", "cinder", "octavia", "heat", "barbican")
    )
    return f"""\
[DEFAULT]
use_stderr = true
host = localhost
transport_url = fake://
state_path = {state}
[database]
connection = sqlite:///{state}/magnum.db?timeout=60
sqlite_synchronous = false
[api]
api_paste_config = {state}/api-paste.ini
[certificates]
cert_manager_type = x509keypair
[oslo_messaging_notifications]
driver = noop
[oslo_concurrency]
lock_path = {state}/locks
[keystone_authtoken]
service_type = container-infra
{account}
[keystone_auth]
{account}
{regions}"""


def paste(original: str) -> str:
    changed = original.replace("authtoken api_v1", "authtoken recorded api_v1")
    assert changed != original, "Magnum's api-paste.ini has no pipeline 'authtoken api_v1' any more"
    return f"{changed}\n[filter:recorded]\npaste.filter_factory = recording:factory\n"


def gunicorn(application: str, port: int, threads: int) -> str:
    """gunicorn.conf.py: a file, since keystone and Magnum parse the command line themselves."""
    kind = "sync" if threads == 1 else "gthread"
    return f"""\
wsgi_app = "{application}"
bind = "127.0.0.1:{port}"
workers = 1
threads = {threads}
worker_class = "{kind}"
timeout = 120
graceful_timeout = 2
control_socket_disable = True
"""


CONDUCTOR = """

def post_worker_init(worker):
    from conductor import begin

    begin()
"""
"""The end of Magnum's gunicorn.conf.py."""
