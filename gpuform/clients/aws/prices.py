"""AWS list prices of one region, read from the Price List API and kept in a committed file.

Each figure is the on-demand price that the API lists for exactly these attributes. With no such price, or
several that differ, the price is left out and reported as unknown; nothing is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.model.machines import MACHINES

SOURCE = "AWS Price List API, on-demand"
_MACHINE = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}


@dataclass(frozen=True)
class Wanted:
    """One price: service, filters, suffix of the usage type, and how many of our units one unit is."""

    name: str
    service: str
    attributes: Mapping[str, str]
    usage: str = ""
    units: Mapping[str, float] | None = None


BESIDE = (
    Wanted("control_plane", "AmazonEKS", {"operation": "CreateOperation"}, "AmazonEKS-Hours:perCluster"),
    Wanted(
        "extended_support", "AmazonEKS", {"operation": "ExtendedSupport"}, "AmazonEKS-Hours:extendedSupport"
    ),
    Wanted("nat_gateway", "AmazonEC2", {"productFamily": "NAT Gateway"}, "NatGateway-Hours"),
    Wanted("endpoint", "AmazonVPC", {"endpointType": "PrivateLink"}, "VpcEndpoint-Hours"),
    Wanted("gp3_gib_month", "AmazonEC2", {"productFamily": "Storage", "volumeApiName": "gp3"}),
    Wanted("gp3_iops_month", "AmazonEC2", {"productFamily": "System Operation", "volumeApiName": "gp3"}),
    Wanted(
        "gp3_mibps_month",
        "AmazonEC2",
        {"productFamily": "Provisioned Throughput", "volumeApiName": "gp3"},
        units={"GiBps-mo": 1024.0},
    ),
)
"""What an EKS cluster costs besides its machines, by the fields of ``infra.model.prices.Beside``."""


def fetch(client: Any, region: str, date: str, say: Callable[[str], None]) -> dict[str, Any]:
    """The price list of a region, in the form that ``infra.config.price_list`` reads.

    ``client`` is a botocore client for ``pricing``. Raises what botocore raises.
    """
    machines = [
        Wanted(name, "AmazonEC2", {"instanceType": name, **_MACHINE}, f"BoxUsage:{name}")
        for name, machine in MACHINES.items()
        if machine.seller == "ec2"
    ]
    hourly = dict(_priced(client, region, machines, say))
    beside = dict(_priced(client, region, BESIDE, say))
    return {"region": region, "date": date, "source": SOURCE, "usd_per_hour": hourly, "beside": beside}


def save(folder: Path, prices: Mapping[str, Any]) -> Path:
    """Write a region's price list, sorted, so that a change of prices is a readable diff."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{prices['region']}.json"
    file.write_text(json.dumps(prices, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return file


def _priced(
    client: Any, region: str, wanted: tuple[Wanted, ...] | list[Wanted], say: Callable[[str], None]
) -> Iterator[tuple[str, float]]:
    for one in wanted:
        found = _usd(client, region, one)
        if len(found) == 1:
            yield one.name, found.pop()
        else:
            say(f"{one.name}: {'no price' if not found else 'several prices'} in {region}; left out")


def _usd(client: Any, region: str, wanted: Wanted) -> set[float]:
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in {"regionCode": region, **wanted.attributes}.items()
    ]
    found: set[float] = set()
    token: dict[str, str] = {}
    while True:
        answer = client.get_products(ServiceCode=wanted.service, Filters=filters, **token)
        for text in answer["PriceList"]:
            product = json.loads(text)
            if product["product"]["attributes"].get("usagetype", "").endswith(wanted.usage):
                found |= set(_dimensions(product, wanted.units or {}))
        if not answer.get("NextToken"):
            return found
        token = {"NextToken": answer["NextToken"]}


def _dimensions(product: Mapping[str, Any], units: Mapping[str, float]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0)) / units.get(dimension["unit"], 1.0)
            if usd:
                yield round(usd, 6)
