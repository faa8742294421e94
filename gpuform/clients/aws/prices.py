"""AWS list prices of one region, read from the Price List API and kept in a committed file.

Each figure is the on-demand price that the API lists for exactly these attributes. With no such price, or
several that differ, the price is left out and reported as unknown; nothing is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.model.gpu.machines import MACHINES

SOURCE = "AWS Price List API, on-demand"
_LINUX = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}


@dataclass(frozen=True)
class Price:
    """One price: service, filters, suffix of the usage type, and how many of our units AWS's unit has."""

    name: str
    service: str
    attributes: Mapping[str, str]
    usage: str = ""
    units: Mapping[str, float] | None = None


CLUSTER_PRICES = (
    Price("control_plane", "AmazonEKS", {"operation": "CreateOperation"}, "AmazonEKS-Hours:perCluster"),
    Price(
        "extended_support", "AmazonEKS", {"operation": "ExtendedSupport"}, "AmazonEKS-Hours:extendedSupport"
    ),
    Price("nat_gateway", "AmazonEC2", {"productFamily": "NAT Gateway"}, "NatGateway-Hours"),
    Price("endpoint", "AmazonVPC", {"endpointType": "PrivateLink"}, "VpcEndpoint-Hours"),
    Price("gp3_gib_month", "AmazonEC2", {"productFamily": "Storage", "volumeApiName": "gp3"}),
    Price("gp3_iops_month", "AmazonEC2", {"productFamily": "System Operation", "volumeApiName": "gp3"}),
    Price(
        "gp3_mibps_month",
        "AmazonEC2",
        {"productFamily": "Provisioned Throughput", "volumeApiName": "gp3"},
        units={"GiBps-mo": 1024.0},
    ),
)
"""What an EKS cluster costs besides its machines, by the fields of ``OtherPrices``."""


def fetch_prices(client: Any, region: str, date: str, report: Callable[[str], None]) -> dict[str, Any]:
    """The price list of a region, in the form that ``infra.config.price_list`` reads.

    ``client`` is a botocore client for ``pricing``. Raises what botocore raises.
    """
    machines = [
        Price(name, "AmazonEC2", {"instanceType": name, **_LINUX}, f"BoxUsage:{name}")
        for name, machine in MACHINES.items()
        if machine.seller == "ec2"
    ]
    hourly = dict(_find_prices(client, region, machines, report))
    other = dict(_find_prices(client, region, CLUSTER_PRICES, report))
    return {"region": region, "date": date, "source": SOURCE, "usd_per_hour": hourly, "beside": other}


def save_prices(folder: Path, prices: Mapping[str, Any]) -> Path:
    """Write a region's price list, sorted, so that a change of prices is a readable diff."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{prices['region']}.json"
    file.write_text(json.dumps(prices, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return file


def _find_prices(
    client: Any, region: str, prices: Sequence[Price], report: Callable[[str], None]
) -> Iterator[tuple[str, float]]:
    for price in prices:
        amounts = _query_usd(client, region, price)
        if len(amounts) == 1:
            yield price.name, amounts.pop()
        else:
            report(f"{price.name}: {'no price' if not amounts else 'several prices'} in {region}; left out")


def _query_usd(client: Any, region: str, price: Price) -> set[float]:
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in {"regionCode": region, **price.attributes}.items()
    ]
    prices: set[float] = set()
    token: dict[str, str] = {}
    while True:
        page = client.get_products(ServiceCode=price.service, Filters=filters, **token)
        for text in page["PriceList"]:
            product = json.loads(text)
            if product["product"]["attributes"].get("usagetype", "").endswith(price.usage):
                prices |= set(_dimensions(product, price.units or {}))
        if not page.get("NextToken"):
            return prices
        token = {"NextToken": page["NextToken"]}


def _dimensions(product: Mapping[str, Any], units: Mapping[str, float]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0)) / units.get(dimension["unit"], 1.0)
            if usd:
                yield round(usd, 6)
