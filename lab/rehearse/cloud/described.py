"""Adds to moto's description of an instance how it was bought, as AWS does."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

from lab.rehearse.cloud.market import Bought

_XMLNS = "http://ec2.amazonaws.com/doc/2016-11-15/"


def completed(body: bytes, bought: Iterable[Bought]) -> bytes:
    """moto's DescribeInstances answer with capacity types; instances not in ``bought`` stay as they are.

    ``body`` comes from moto in this process.
    """
    book = {one.id: one for one in bought if one.capacity != "on-demand"}
    if not book:
        return body
    ElementTree.register_namespace("", _XMLNS)
    root = ElementTree.fromstring(body)  # noqa: S314 - it is our own
    space = root.tag.partition("}")[0].removeprefix("{")
    mark = f"{{{space}}}" if "}" in root.tag else ""
    for element in list(root.iter(f"{mark}instancesSet")):
        for item in element:
            id = item.findtext(f"{mark}instanceId", "")
            if id in book:
                _complete(item, book[id], mark)
    whole: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return whole


def _complete(item: ElementTree.Element, one: Bought, mark: str) -> None:
    names = ("spotInstanceRequestId", "instanceLifecycle", "capacityReservationId")
    for name in (*names, "capacityReservationSpecification"):
        for old in item.findall(f"{mark}{name}"):
            item.remove(old)
    if one.capacity == "spot":
        ElementTree.SubElement(item, f"{mark}spotInstanceRequestId").text = f"sir-{one.id[2:10]}"
        ElementTree.SubElement(item, f"{mark}instanceLifecycle").text = "spot"
    else:
        ElementTree.SubElement(item, f"{mark}capacityReservationId").text = one.reservation
        chosen = ElementTree.SubElement(item, f"{mark}capacityReservationSpecification")
        only = ElementTree.SubElement(chosen, f"{mark}capacityReservationPreference")
        only.text = "capacity-reservations-only"
