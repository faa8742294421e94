"""Price lists: requested by the API's model, stored as a file, and used for their region."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from gpuform.clients.aws import prices
from infra.config import parse, price_list
from infra.model.base.errors import InputError
from infra.model.gpu.machines import MACHINES
from infra.plan.cost import bill
from tests.build.aws_stacks import stack

pytestmark = pytest.mark.unit

EC2 = [name for name, machine in MACHINES.items() if machine.seller == "ec2"]


def product(usage: str, *usd: str, unit: str = "Hrs") -> str:
    dimensions = {str(n): {"unit": unit, "pricePerUnit": {"USD": one}} for n, one in enumerate(usd)}
    terms = {"OnDemand": {"a": {"priceDimensions": dimensions}}}
    return json.dumps({"product": {"attributes": {"usagetype": usage}}, "terms": terms})


def request_of(wanted: prices.Price) -> dict[str, Any]:
    fields = {"regionCode": "us-west-2", **wanted.attributes}
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()]
    return {"ServiceCode": wanted.service, "Filters": filters}


def fetch(answers: dict[str, list[list[str]]]) -> tuple[dict[str, Any], list[str]]:
    """The result for these responses, page by page; every other query gets an empty one."""
    client = botocore.session.Session().create_client(
        "pricing", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    stub, message = Stubber(client), []
    machines = [prices.Price(name, "AmazonEC2", {"instanceType": name, **prices._LINUX}) for name in EC2]
    for wanted in (*machines, *prices.CLUSTER_PRICES):
        pages = answers.get(wanted.name, [[]])
        for number, page in enumerate(pages):
            answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": page}
            more = {"NextToken": str(number)} if number else {}
            if number + 1 < len(pages):
                answer["NextToken"] = str(number + 1)
            stub.add_response("get_products", answer, request_of(wanted) | more)
    with stub:
        found = prices.fetch_prices(client, "us-west-2", "2026-09-01", message.append)
        stub.assert_no_pending_responses()
    return found, message


def test_one_price_is_taken_and_anything_else_is_left_out_and_said() -> None:
    found, message = fetch(
        {
            "g4dn.xlarge": [
                [product("USW2-Reservation:g4dn.xlarge", "9.9")],
                [product("USW2-BoxUsage:g4dn.xlarge", "0.0000", "0.6000")],
            ],
            "g5.xlarge": [[product("BoxUsage:g5.xlarge", "1.0"), product("BoxUsage:g5.xlarge", "2.0")]],
            "control_plane": [[product("USW2-AmazonEKS-Hours:perCluster", "0.11")]],
            "gp3_mibps_month": [[product("USW2-EBS:VolumeP-Throughput.gp3", "40.96", unit="GiBps-mo")]],
        }
    )
    assert found == {
        "region": "us-west-2",
        "date": "2026-09-01",
        "source": "AWS Price List API, on-demand",
        "usd_per_hour": {"g4dn.xlarge": 0.6},
        "beside": {"control_plane": 0.11, "gp3_mibps_month": 0.04},
    }
    assert "g5.xlarge: several prices in us-west-2; left out" in message
    assert "p4d.24xlarge: no price in us-west-2; left out" in message


def test_the_list_of_a_region_is_used_there_and_nowhere_else(tmp_path: Path) -> None:
    listed: dict[str, Any] = {"region": "us-west-2", "date": "2026-09-01"}
    listed |= {"usd_per_hour": {"m6i.4xlarge": 1.0}, "beside": {"endpoint": 0.02}}
    assert prices.save_prices(tmp_path, listed).name == "us-west-2.json"
    prod, dev = parse(stack("aws-prod")), parse(stack("aws-dev"))
    found = price_list(prod, tmp_path)
    assert (found.region, found.date, found.beside.endpoint) == ("us-west-2", "2026-09-01", 0.02)
    assert found.beside.nat_gateway == 0.045
    assert "pool a100-mig" in bill(prod, found).unknown
    assert price_list(dev, tmp_path).region == "us-east-1"
    assert price_list(prod, tmp_path / "none").region == "us-east-1"


def test_a_file_that_is_no_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "us-west-2.json").write_text("{}")
    with pytest.raises(InputError, match=r"us-west-2.json: is not a price list .* prices refresh us-west-2"):
        price_list(parse(stack("aws-prod")), tmp_path)
