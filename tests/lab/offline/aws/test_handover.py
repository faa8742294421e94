"""What a program gets in an offline run: its environment, and a cluster with `aws eks get-token`."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.credentials import Tokens
from gpuform.kubernetes.kubeconfig import Access
from gpuform.provider.properties import reveal
from lab.offline.aws import functions
from lab.offline.aws.aws import answer, eks_stand_in
from lab.offline.aws.outputs import Settings, computed_outputs
from lab.offline.aws.provider import ROWS
from lab.offline.language.interpreter import Interpreter
from tests.fakes import client

pytestmark = pytest.mark.unit

SSM = "aws:ssm/getParameter:getParameter"
AL2023 = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64"
GET_TOKEN = ["eks", "get-token", "--region", "eu-central-1", "--cluster-name", "tried"]


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": data("CA")}
    user = {"client-certificate-data": data("CERT"), "client-key-data": data("KEY")}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(client.kubeconfig(cluster, user)))
    return file


def test_the_credential_is_the_embedded_clusters(kubeconfig: Path) -> None:
    environ = {"GPUFORM_OFFLINE_KUBECONFIG": str(kubeconfig)}
    credential = json.loads(answer(GET_TOKEN, environ))
    kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    assert credential == {**kind, "status": {"clientCertificateData": "CERT", "clientKeyData": "KEY"}}
    environ["KUBERNETES_EXEC_INFO"] = json.dumps({"apiVersion": "client.authentication.k8s.io/v1beta1"})
    assert json.loads(answer(GET_TOKEN, environ))["apiVersion"].endswith("beta1")


@pytest.mark.parametrize(
    ("arguments", "kubeconfig", "reason"),
    [
        (["s3", "ls"], "", "aws s3 ls: offline runs answer `aws eks get-token --cluster-name NAME` only"),
        (GET_TOKEN, "", "there is no cluster in this offline run; start one"),
        (GET_TOKEN, "/nowhere", "there is no cluster in this offline run"),
        (GET_TOKEN, __file__, "is not the kubeconfig of an embedded control plane"),
    ],
)
def test_what_cannot_be_answered(arguments: list[str], kubeconfig: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        answer(arguments, {"GPUFORM_OFFLINE_KUBECONFIG": kubeconfig})


def test_the_cluster_has_the_embedded_address(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_OFFLINE_KUBECONFIG", str(kubeconfig))
    row, inputs = ROWS["aws:eks/cluster:Cluster"], {"name": "c", "vpcConfig": {}}
    _, outputs = computed_outputs(row, Settings("eu-central-1"), "urn", inputs)
    assert outputs["endpoint"] == "https://127.0.0.1:6443"
    assert outputs["certificateAuthority"] == {"data": data("CA")}
    assert eks_stand_in({}) is None


def printing(credential: dict[str, Any]) -> Tokens:
    version = "client.authentication.k8s.io/v1"
    login = {"apiVersion": version, "command": "echo", "args": [json.dumps(credential)]}
    return Tokens(Access(user={"exec": login}))


NEITHER = "neither a token nor a client certificate with its key"


NONE = "no ExecCredential"
HALF = {"status": {"clientKeyData": "KEY"}}


@pytest.mark.parametrize(
    ("credential", "message"), [({"status": None}, NEITHER), ({}, NONE), ([], NONE), (HALF, NEITHER)]
)
def test_an_exec_plugin_without_a_credential_is_named(credential: Any, message: str) -> None:
    with pytest.raises(OSError, match=f"echo returned {message}"):
        asyncio.run(printing(credential).certified_user())


def test_a_client_certificate_from_an_exec_plugin_is_shown() -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    tokens = printing({"status": status})
    shown = asyncio.run(tokens.certified_user())
    assert shown["client-certificate-data"] == data("CERT")
    assert shown["client-key-data"] == data("KEY")
    assert asyncio.run(tokens.header()) == {}


@pytest.mark.parametrize(
    ("token", "args", "key", "value"),
    [
        ("aws:index/getCallerIdentity:getCallerIdentity", {}, "accountId", "123456789012"),
        ("aws:index/getPartition:getPartition", {}, "dnsSuffix", "amazonaws.com.cn"),
        ("aws:index/getRegion:getRegion", {}, "region", "cn-north-1"),
        (SSM, {"name": f"{AL2023}-standard-1.34-v20260801/release_version"}, "value", "1.34.0-20260801"),
        (
            SSM,
            {"name": "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/x86_64/1.50.0/image_version"},
            "insecureValue",
            "1.50.0-00000000",
        ),
    ],
)
def test_functions(token: str, args: dict[str, str], key: str, value: str) -> None:
    assert reveal(functions.answer(token, dict(args), Settings("cn-north-1"))[key]) == value


def test_tags_have_one_subnet_in_each_zone() -> None:
    """Which subnets exist is unknown offline; equal questions get equal ids, and each zone its own."""

    def asked(zone: str, tier: str = "private") -> list[str]:
        wanted = {"vpc-id": "vpc-1", "availability-zone": zone, "tag:tier": tier}
        filters = [{"name": name, "values": [value]} for name, value in wanted.items()]
        token = "aws:ec2/getSubnets:getSubnets"
        result: list[str] = functions.answer(token, {"filters": filters}, Settings("cn-north-1"))["ids"]
        return result

    one, again, other = asked("cn-north-1a"), asked("cn-north-1a"), asked("cn-north-1b")
    assert one == again == [functions.assumed_subnet("vpc-1", "cn-north-1a", {"tier": "private"})]
    assert one != other
    assert one != asked("cn-north-1a", "public")


def test_other_parameters_are_refused() -> None:
    message = "/my/secret: offline runs have only the release_version of a dated EKS image"
    with pytest.raises(OperationError, match=message):
        functions.answer(SSM, {"name": "/my/secret"}, Settings("cn-north-1"))


@pytest.mark.parametrize("callers", ["", "/a:/b"])
def test_a_program_gets_the_callers_path_and_not_the_hosts(callers: str) -> None:
    started = {"PYTHONPATH": "/ours", "GPUFORM_PYTHONPATH": callers}
    found = Interpreter(Path("python"), None).process_environment(started)
    assert found == {"PYTHONPATH": callers}
