"""MIG geometry against placements typed independently, and NVIDIA's own names of layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.model.gpu.mig import Geometry, Profile
from infra.model.gpu.models import GPUS
from infra.model.pool.layouts import listing_profiles, standard_layout
from infra.model.pool.mig_config import config_name
from infra.plan import gpu_operator, sharing
from tests.build.environments import on
from tests.build.mig_layouts import GEOMETRIES, layouts
from tests.external import mig_layouts

pytestmark = pytest.mark.unit

# name: (compute slices, memory slices, first memory slices, uses the media engines)
Table = dict[str, tuple[int, int, list[int], bool]]


def seven(small: str, wide: str, two: str, three: str, four: str, whole: str) -> Table:
    return {
        small: (1, 1, list(range(7)), False),
        small + "+me": (1, 1, list(range(7)), True),
        wide: (1, 2, [0, 2, 4, 6], False),
        two: (2, 2, [0, 2, 4], False),
        three: (3, 4, [0, 4], False),
        four: (4, 4, [0], False),
        whole: (7, 8, [0], False),
    }


A100_40 = seven("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
EIGHTY = seven("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
TABLES: dict[str, Table] = {
    "A30": {
        "1g.6gb": (1, 1, [0, 1, 2, 3], False),
        "1g.6gb+me": (1, 1, [0, 1, 2, 3], True),
        "2g.12gb": (2, 2, [0, 2], False),
        "2g.12gb+me": (2, 2, [0, 2], True),
        "4g.24gb": (4, 4, [0], False),
    },
    "A100-SXM4-40GB": A100_40,
    "A100-PCIE-40GB": A100_40,
    "A100-SXM4-80GB": EIGHTY,
    "A100-PCIE-80GB": EIGHTY,
    "H100-SXM": EIGHTY,
    "H100-PCIe": EIGHTY,
    "H200": seven("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "B200": seven("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    "H100-NVL": seven("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    "GH200": seven("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    "GB200": seven("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
    "B300": seven("1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"),
    "RTX-PRO-4500": {"1g.16gb": (1, 1, [0, 1], False), "2g.32gb": (2, 2, [0], False)},
    "RTX-PRO-6000": {
        "1g.24gb": (1, 1, [0, 1, 2, 3], False),
        "1g.24gb-me": (1, 1, [0, 1, 2, 3], False),
        "1g.24gb+gfx": (1, 1, [0, 1, 2, 3], False),
        "1g.24gb+me.all": (1, 1, [0, 1, 2, 3], True),
        "2g.48gb": (2, 2, [0, 2], False),
        "2g.48gb-me": (2, 2, [0, 2], False),
        "2g.48gb+gfx": (2, 2, [0, 2], False),
        "2g.48gb+me.all": (2, 2, [0, 2], True),
        "4g.96gb": (4, 4, [0], False),
        "4g.96gb+gfx": (4, 4, [0], False),
    },
}


def every_placement(gpu: str) -> Iterator[tuple[tuple[str, int], ...]]:
    """Every set of instances that can exist on the GPU together, searched memory slice by memory slice."""
    table = TABLES[gpu]
    compute_total, memory_total = {7: (7, 8), 2: (2, 2)}.get(len(table), (4, 4))

    def walk(cell: int, compute: int, media: int) -> Iterator[tuple[tuple[str, int], ...]]:
        if cell >= memory_total:
            yield ()
            return
        yield from walk(cell + 1, compute, media)
        for name, (slices, size, starts, takes_media) in table.items():
            if cell in starts and compute + slices <= compute_total and media + takes_media <= 1:
                for rest in walk(cell + size, compute + slices, media + takes_media):
                    yield ((name, cell), *rest)

    return walk(0, 0, 0)


@cache
def plain_placements(gpu: str) -> list[tuple[tuple[str, int], ...]]:
    return [live for live in every_placement(gpu) if all("+" not in name for name, _ in live)]


@cache
def brute_force(gpu: str) -> frozenset[tuple[tuple[str, int], ...]]:
    found = {tuple(sorted(Counter(name for name, _ in live).items())) for live in every_placement(gpu)}
    return frozenset(found - {()})


def test_every_mig_gpu_is_compared() -> None:
    assert set(TABLES) == set(GEOMETRIES) == {gpu.name for gpu in GPUS.values() if gpu.mig_capable}


@pytest.mark.parametrize("gpu", TABLES)
def test_the_table_is_what_exhaustive_placement_finds(gpu: str) -> None:
    assert set(layouts(GEOMETRIES[gpu])) == brute_force(gpu)


def test_an_empty_a100_has_77_layouts_and_each_within_the_totals_can_be_placed() -> None:
    plain = {name: row for name, row in A100_40.items() if not row[3]}
    found = [pairs for pairs in layouts(GEOMETRIES["A100-PCIE-40GB"]) if "1g.5gb+me" not in dict(pairs)]
    assert len(found) == 77
    within = {
        tuple(sorted(Counter(chosen).items()))
        for size in range(1, 8)
        for chosen in combinations_with_replacement(plain, size)
        if sum(plain[name][0] for name in chosen) <= 7 and sum(plain[name][1] for name in chosen) <= 8
    }
    assert within == set(found)


@settings(deadline=None)
@given(st.data())
def test_beside_live_instances_only_free_places_count(data: st.DataObject) -> None:
    """Live slices keep their places: a layout that fits an empty GPU may not fit beside them."""
    gpu = data.draw(st.sampled_from(["A30", "A100-PCIE-40GB"]))
    everything = plain_placements(gpu)
    live = data.draw(st.sampled_from(everything))
    names = sorted(name for name in TABLES[gpu] if "+" not in name)
    new = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 3), min_size=1, max_size=2))
    possible = {
        tuple(sorted((Counter(n for n, _ in both) - Counter(n for n, _ in live)).items()))
        for both in everything
        if set(live) <= set(both)
    }
    placed = GEOMETRIES[gpu].placements(new, taken=live)
    assert (placed is not None) is (tuple(sorted(new.items())) in possible)
    if placed is not None:
        assert Counter(name for name, _ in placed) == Counter(new)
        assert tuple(sorted((*live, *placed), key=lambda item: item[1])) in set(everything)


def test_two_live_slices_in_bad_places_keep_a_third_out() -> None:
    a100 = GEOMETRIES["A100-PCIE-40GB"]
    assert a100.fits({"1g.5gb": 2, "3g.20gb": 1})
    assert a100.placements({"3g.20gb": 1}, taken=(("1g.5gb", 1), ("1g.5gb", 5))) is None


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"1g.5gb": 8}, "8 x 1g.5gb takes 8 compute slices of 7"),
        ({"1g.6gb": 1}, "1g.6gb is not a profile of this GPU"),
        ({"1g.5gb+me": 2}, "2 slices request the media engines, and only one slice can have them"),
        (
            {"3g.20gb": 2, "1g.5gb": 1},
            "2 x 3g.20gb + 1 x 1g.5gb takes 7 of 7 compute slices but 9 memory slices of 8",
        ),
    ],
)
def test_the_refusal_says_which_limit(layout: dict[str, int], reason: str) -> None:
    assert GEOMETRIES["A100-PCIE-40GB"].refusal(layout) == reason


def test_slices_within_the_totals_but_without_places_are_refused() -> None:
    narrow = Geometry(compute=2, memory=2, profiles=(Profile("1g.1gb", 1, 1, (0,)),))
    assert narrow.refusal({"1g.1gb": 2}) == (
        "2 x 1g.1gb fits in size, but its slices cannot be placed without overlap"
    )


def test_the_largest_counts_are_those_that_nvidia_ships() -> None:
    """Every all-<profile> entry of mig-parted's own file, for the devices of its filter."""
    configs = mig_layouts()
    compared = 0
    for entries in configs.values():
        for entry in entries:
            devices = entry.get("mig-devices") or {}
            wanted = entry.get("device-filter", [])
            wanted = [wanted] if isinstance(wanted, str) else wanted
            for gpu in GPUS.values():
                known = gpu.geometry and all(gpu.geometry.profile(name) for name in devices)
                if wanted and gpu.device_filter not in wanted:
                    continue
                if wanted:
                    assert known or not gpu.mig_capable, (gpu.name, devices)
                if not known or not devices or gpu.geometry is None:
                    continue
                compared += 1
                assert gpu.geometry.fits(devices), (gpu.name, devices)
                if len(devices) == 1 and "+me.all" not in next(iter(devices)):
                    ((name, count),) = devices.items()
                    assert gpu.geometry.max_slices(name) == count, (gpu.name, name)
    assert compared > 50


def test_standard_names_mean_what_nvidia_ships() -> None:
    shipped = mig_layouts()
    compared = 0
    for name in GEOMETRIES:
        gpu = GPUS[name]
        for config, entries in shipped.items():
            for entry in entries:
                filters = entry.get("device-filter", [])
                # An entry without a filter is for the GPUs that have its profiles.
                concerns = (
                    gpu.device_filter in filters if filters else standard_layout(gpu, config) is not None
                )
                if concerns and entry["mig-enabled"] and entry["mig-devices"]:
                    assert standard_layout(gpu, config) == entry["mig-devices"], (name, config)
                    compared += 1
    assert compared > 60


def test_a_name_of_another_gpu_means_nothing() -> None:
    assert standard_layout(GPUS["A30"], "all-1g.5gb") is None
    assert standard_layout(GPUS["A30"], "all-disabled") is None
    assert standard_layout(GPUS["T4"], "all-balanced") is None
    assert standard_layout(GPUS["RTX-PRO-4500"], "all-balanced") is None
    assert standard_layout(GPUS["A30"], "all-balanced") == {"1g.6gb": 2, "2g.12gb": 1}


def test_no_layout_is_asked_of_nodes_that_may_have_no_mig() -> None:
    """An update waited ten minutes for a MIG manager that does not run on a V100."""
    gpu = {"models": ["V100-SXM2-32GB", "A100-40GB"], "count": 8}
    env = on("embedded", {"gpu": gpu})
    assert config_name(env.pools[0]) is None
    assert sharing.mig_parted_config_map(env) is not None
    assert gpu_operator.values(env)["migManager"]["config"]["default"] == "all-disabled"


@pytest.mark.parametrize(
    ("gpu", "wrong", "meant"),
    [("A100-PCIE-40GB", "3g.40gb", "3g.20gb"), ("A100-PCIE-40GB", "7g.80gb", "7g.40gb"),
     ("A100-PCIE-40GB", "1g.20gb", "1g.10gb"), ("A100-PCIE-40GB", "all-4g.40gb", "all-4g.20gb"),
     ("A100-SXM4-80GB", "1g.5gb", "1g.10gb"), ("A100-PCIE-40GB", "5g.20gb", None),
     ("A100-PCIE-40GB", "half", None)],
)  # fmt: skip
def test_a_profile_of_another_card_means_the_first_with_as_many_slices(
    gpu: str, wrong: str, meant: str | None
) -> None:
    prefix = "all-" if wrong.startswith("all-") else ""
    known = [f"{prefix}{profile.name}" for profile in GEOMETRIES[gpu].profiles]
    hint = listing_profiles(known, wrong).partition("known: ")[0]
    assert hint == (f"did you mean {meant}? " if meant else "")
