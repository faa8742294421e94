"""The table of XIDs against the sources, typed here independently."""

from __future__ import annotations

import pytest

from infra.model import xid

pytestmark = pytest.mark.unit

NOT_THE_APPLICATIONS = {48, 64, 74, 79, 95, 119, 120, 154}
DEVICE_PLUGIN_SKIPS = {13, 31, 43, 45, 68, 109}


def test_what_the_device_plugin_skips_is_the_applications() -> None:
    assert set(xid.DEVICE_PLUGIN_SKIPS) == DEVICE_PLUGIN_SKIPS
    assert {xid.of(number) for number in DEVICE_PLUGIN_SKIPS} == {"application"}


def test_faults_of_the_hardware_are_not_the_applications() -> None:
    assert {xid.of(number) for number in NOT_THE_APPLICATIONS} <= {"reset", "replace"}
    assert xid.of(79) == "replace"


def test_where_sources_differ_the_table_says_so() -> None:
    """63 and 94 are NVIDIA's word; the EKS agent calls 63 and 109 fatal, the catalogue resets after 109."""
    assert (xid.of(63), xid.of(94)) == ("informational", "application")
    assert "EKS agent: fatal" in xid.XIDS[63].differs
    assert "EKS agent: fatal" in xid.XIDS[109].differs
    assert "catalogue: reset" in xid.XIDS[109].differs
    assert "out of allocatable" in xid.XIDS[94].differs
    assert xid.XIDS[48].differs == xid.XIDS[13].differs == ""


def test_all_that_eks_calls_fatal_is_known() -> None:
    assert set(xid.XIDS) >= xid.EKS_FATAL


def test_classes_divide_the_table() -> None:
    every = [number for kind in xid.CLASSES for number in xid.numbers(kind)]
    assert sorted(every) == sorted(xid.XIDS)
    assert xid.of(999) is None
    assert set(xid.ASKS) == set(xid.CLASSES)


def test_a_row_is_said_in_words_of_ours() -> None:
    for row in xid.XIDS.values():
        assert row.meaning == row.meaning.strip().rstrip(".")
        assert "ROBUST_CHANNEL" not in row.meaning
