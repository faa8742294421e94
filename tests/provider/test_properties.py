from __future__ import annotations

import pytest

from gpuform.provider.properties import UNKNOWN, Secret, from_struct, has_unknown, reveal, to_struct

pytestmark = pytest.mark.unit


def test_property_values_survive_the_wire() -> None:
    values = {
        "text": "x",
        "whole": 3,
        "part": 0.5,
        "yes": True,
        "none": None,
        "list": [1, {"a": []}],
        "map": {},
        "secret": Secret({"p": [Secret("q")]}),
        "unknown": UNKNOWN,
    }
    back = from_struct(to_struct(values))
    assert back == values
    assert isinstance(back["whole"], int)
    assert has_unknown(back)
    assert "q" not in repr(back["secret"])
    assert reveal(back["secret"]) == {"p": ["q"]}


def test_an_output_value_is_what_it_holds() -> None:
    signature = "4dabf18193072939515e22adb298388d"
    output = {signature: "d0e6a833031e9bbcd3f4e8bde6ca49a4"}
    values = {"a": output, "b": {**output, "value": "x", "secret": True}, "c": {**output, "value": "x"}}
    assert from_struct(to_struct(values)) == {"a": UNKNOWN, "b": Secret("x"), "c": "x"}
