"""MIG geometry of the A100 and the A30, checked by NVIDIA's mock GPUs and by a table typed here.

The mocks of go-nvml have NVIDIA's profiles and placements; NVIDIA's go-nvlib names them. They create any
instance that is requested, so ``nvml-mock`` counts by their tables; a test here shows why. The mocks of
H100, H200 and B200 are wrong and are not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from infra.model.gpu.mig import Geometry, Layout
from lab.toolchain import Toolchain
from tests.build.mig_layouts import GEOMETRIES, layouts
from tests.checks.judges import Answer, ask_all

pytestmark = pytest.mark.tools

# Profile: (compute slices, memory slices, first memory slices, largest number); then the slices of the GPU.
Row = tuple[int, int, tuple[int, ...], int]
A100: dict[str, Row] = {
    "1g.5gb": (1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    "1g.5gb+me": (1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g.10gb": (1, 2, (0, 2, 4, 6), 4),
    "2g.10gb": (2, 2, (0, 2, 4), 3),
    "3g.20gb": (3, 4, (0, 4), 2),
    "4g.20gb": (4, 4, (0,), 1),
    "7g.40gb": (7, 8, (0,), 1),
}
LARGE = ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
A30: dict[str, Row] = {
    "1g.6gb": (1, 1, (0, 1, 2, 3), 4),
    "1g.6gb+me": (1, 1, (0, 1, 2, 3), 1),
    "2g.12gb": (2, 2, (0, 2), 2),
    "2g.12gb+me": (2, 2, (0, 2), 1),
    "4g.24gb": (4, 4, (0,), 1),
}
TABLES = {"a100-40gb": A100, "a100-80gb": dict(zip(LARGE, A100.values(), strict=True)), "a30": A30}
SLICES = {"a100-40gb": (7, 8), "a100-80gb": (7, 8), "a30": (4, 4)}
OURS = {"a100-40gb": "A100-PCIE-40GB", "a100-80gb": "A100-SXM4-80GB", "a30": "A30"}
GPUS = tuple(TABLES)
Live = tuple[tuple[str, int], ...]


@pytest.fixture(scope="module")
def mock(toolchain: Toolchain) -> Path:
    return toolchain.path("nvml-mock")


def geometry(gpu: str) -> Geometry:
    return GEOMETRIES[OURS[gpu]]


def question(gpu: str, layout: Layout, live: Live = ()) -> Answer:
    """For a layout beside live slices, larger ones first as the MIG manager creates them."""
    create = [{"profile": name} for name, count in layout.items() for _ in range(count)]
    create.sort(key=lambda item: -TABLES[gpu][item["profile"]][1])
    return {"gpu": gpu, "live": [{"profile": name, "start": start} for name, start in live], "create": create}


@pytest.mark.parametrize("gpu", GPUS)
def test_ours_theirs_and_the_table_typed_here_are_one(mock: Path, gpu: str) -> None:
    (found,) = ask_all(mock, [{"gpu": gpu, "table": True}])
    theirs = {
        profile["name"]: (profile["compute"], profile["memory"], tuple(profile["starts"]), profile["most"])
        for profile in found["profiles"]
    }
    cut = geometry(gpu)
    ours = {
        item.name: (item.compute, item.memory, item.starts, cut.max_slices(item.name))
        for item in cut.profiles
    }
    assert theirs == TABLES[gpu] == ours
    assert (cut.compute, cut.memory) == SLICES[gpu]


@pytest.mark.parametrize("gpu", GPUS)
def test_every_layout_fits_or_not_for_both(mock: Path, gpu: str) -> None:
    """All combinations, up to one more of each profile than fits alone."""
    table = TABLES[gpu]
    counts = itertools.product(*(range(most + 2) for *_, most in table.values()))
    tried = [
        {name: count for name, count in zip(table, chosen, strict=True) if count}
        for chosen in counts
        if 0 < sum(chosen) <= SLICES[gpu][0] + 1
    ]
    found = ask_all(mock, (question(gpu, layout) for layout in tried))
    theirs = {tuple(sorted(item.items())) for item, answer in zip(tried, found, strict=True) if answer["ok"]}
    assert theirs == set(layouts(geometry(gpu)))
    assert len(theirs) < len(tried) / 2


@cache
def lives(gpu: str) -> tuple[Live, ...]:
    """Every set of slices that can exist on the GPU together, by the table typed here."""
    table, (compute, memory) = TABLES[gpu], SLICES[gpu]

    def from_cell(cell: int, left: int, media: int) -> Iterator[Live]:
        if cell >= memory:
            yield ()
            return
        yield from from_cell(cell + 1, left, media)
        for name, (slices, size, starts, _) in table.items():
            takes = name.endswith("+me") or slices == compute
            if cell in starts and slices <= left and media + takes <= 1:
                for rest in from_cell(cell + size, left - slices, media + takes):
                    yield ((name, cell), *rest)

    return tuple(from_cell(0, compute, 0))


@pytest.mark.parametrize("gpu", ["a100-40gb", "a30"])
def test_beside_live_slices_there_is_room_or_not_for_both(mock: Path, gpu: str) -> None:
    """Every placed set of live slices, and one or two more of each profile."""
    asked = [(live, {name: count}) for live in lives(gpu) for name in TABLES[gpu] for count in (1, 2)]
    found = ask_all(mock, (question(gpu, layout, live) for live, layout in asked))
    only_in_number = 0
    for (live, layout), answer in zip(asked, found, strict=True):
        placed = geometry(gpu).placements(layout, taken=live)
        assert (placed is not None) is answer["ok"], (live, layout, answer, placed)
        together = {name: [n for n, _ in live].count(name) for name, _ in live}
        for name, count in layout.items():
            together[name] = together.get(name, 0) + count
        only_in_number += not answer["ok"] and geometry(gpu).fits(together)
    assert only_in_number > 10, "placement bites"


# Live slices, slices to be created, and whether that is possible; in number, each of these fits.
BESIDE: list[tuple[str, Live, Layout, bool]] = [
    ("a100-40gb", (("2g.10gb", 2),), {"3g.20gb": 1, "2g.10gb": 1}, True),
    ("a100-40gb", (("2g.10gb", 4),), {"3g.20gb": 1, "2g.10gb": 1}, False),
    ("a100-40gb", (("1g.5gb", 3),), {"2g.10gb": 3}, False),
    ("a30", (("1g.6gb", 1), ("1g.6gb", 2)), {"2g.12gb": 1}, False),
]


@pytest.mark.parametrize(("gpu", "live", "layout", "fits"), BESIDE)
def test_a_case_where_the_place_decides(mock: Path, gpu: str, live: Live, layout: Layout, fits: bool) -> None:
    (answer,) = ask_all(mock, [question(gpu, layout, live)])
    assert answer["ok"] is fits
    assert (geometry(gpu).placements(layout, taken=live) is not None) is fits


def test_the_order_of_creation_decides_where_no_place_is_chosen_for_what_comes(mock: Path) -> None:
    """A driver that gets requests one by one may place the first where the next no longer fits."""
    small, large = {"profile": "1g.5gb"}, {"profile": "4g.20gb"}
    bad = {"gpu": "a100-40gb", "live": [{**small, "start": 0}], "create": [large]}
    good = {"gpu": "a100-40gb", "create": [large, small]}
    refused, taken = ask_all(mock, [bad, good])
    assert refused["error"] == "4g.20gb: insufficient resources"
    assert taken["placed"] == [
        {"profile": "4g.20gb", "start": 0, "size": 4},
        {"profile": "1g.5gb", "start": 4, "size": 1},
    ]


def test_the_mock_alone_refuses_nothing(mock: Path) -> None:
    """Why the counting is ours: the mock itself creates nine slices, all in one place, where two fit."""
    asked = {"gpu": "a100-40gb", "blind": True, "create": [{"profile": "3g.20gb"}] * 9}
    (answer,) = ask_all(mock, [asked])
    assert answer["ok"]
    assert [item["start"] for item in answer["placed"]] == [0] * 9


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"gpu": "h100"}, 'unknown gpu "h100"; known: a100-40gb, a100-80gb, a30'),
        ({"gpu": "a30", "create": [{"profile": "1g.5gb"}]}, "1g.5gb: not a profile of this GPU"),
        ({"gpu": "a30", "live": [{"profile": "1g.6gb"}]}, "a live 1g.6gb lies nowhere"),
        (
            {"gpu": "a30", "live": [{"profile": "2g.12gb", "start": start} for start in (0, 0)]},
            "live: 2g.12gb: insufficient resources",
        ),
        ({"gpu": "a30", "create": [{"profile": "2g.12gb", "start": 1}]}, "2g.12gb: insufficient resources"),
    ],
)
def test_what_it_cannot_answer_it_says(mock: Path, asked: Answer, expected: str) -> None:
    (found,) = ask_all(mock, [asked])
    assert found["error"] == expected
    assert not found["ok"]
