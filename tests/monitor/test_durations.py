"""Time that passes faster: what of a rule is a duration, and what only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.monitor import durations
from gpuform.monitor.durations import LEAST_RANGE_S, LEAST_S, expression, group, paced, seconds

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate(x[5m])", "rate(x[5s])"),
        ("rate(x[10m:1m])", "rate(x[10s:1s])"),
        ("avg_over_time(x[1h:])", "avg_over_time(x[60s:])"),
        ("x offset 1h", "x offset 60s"),
        ("x offset -1h30m", "x offset -90s"),
        ("x[ 20m ] @ 1609746000", "x[ 20s ] @ 1609746000"),
        # Shorter than the floor: a range keeps a few samples, everything else a second.
        ("rate(x[1m])", "rate(x[5s])"),
        ("x offset 30s", "x offset 1s"),
        ("rate(x[3s])", "rate(x[3s])"),
        ("x offset 90s", "x offset 1500ms"),
        # Not durations.
        ("gpuform:namespace:gpu_hours_used_1h > 5", "gpuform:namespace:gpu_hours_used_1h > 5"),
        ("a:b5m:rate1h[5m]", "a:b5m:rate1h[5s]"),
        ('x{window="5m"} == 300', 'x{window="5m"} == 300'),
        ("x{window='[5m]'}", "x{window='[5m]'}"),
        ("x{a=`[5m] offset 1h`}[5m]", "x{a=`[5m] offset 1h`}[5s]"),
        (r'x{a="\"[5m]"}[5m]', r'x{a="\"[5m]"}[5s]'),
        ("x[5m] # not [5m]\n+ y[5m]", "x[5s] # not [5m]\n+ y[5s]"),
        ("1e3 + 0x1f + 2.5 + .5", "1e3 + 0x1f + 2.5 + .5"),
        ("predict_linear(x[1h], 3600) < 0", "predict_linear(x[60s], 3600) < 0"),
        ("sum by (a5m) (x) / on (m1h) group_left y", "sum by (a5m) (x) / on (m1h) group_left y"),
        ("time() - x > 1800", "time() - x > 1800"),
    ],
)
def test_an_expression_sixty_times_as_fast(text: str, expected: str) -> None:
    assert expression(text, 60) == expected
    assert expression(text, 1) == text


def test_a_group_has_its_durations_divided_and_nothing_else() -> None:
    alert = {
        "alert": "A",
        "expr": "x[10m] > 1",
        "for": "5m",
        "keep_firing_for": "20m",
        "labels": {"window": "5m"},
        "annotations": {"summary": "for 5m"},
    }
    before = {"name": "5m", "interval": "2m", "limit": 5, "query_offset": "1m", "rules": [alert]}
    after = group(before, 60)
    assert after == {
        "name": "5m",
        "interval": "2s",
        "limit": 5,
        "query_offset": "1s",
        "rules": [{**alert, "expr": "x[10s] > 1", "for": "5s", "keep_firing_for": "20s"}],
    }
    assert group(before, 1) == before


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "1.5h", "5x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds(text)


parts = st.lists(
    st.tuples(st.integers(1, 500), st.sampled_from(["ms", "s", "m", "h", "d", "w", "y"])), min_size=1
)
texts = parts.map(lambda found: "".join(f"{count}{unit}" for count, unit in found))


@given(texts, st.floats(1, 3600))
def test_divided_it_is_a_duration_that_is_not_too_short_nor_longer(text: str, pace: float) -> None:
    before, after = seconds(text), seconds(paced(text, pace))
    assert after <= before + 0.001
    assert after >= min(before, LEAST_S) - 0.001
    assert after == pytest.approx(max(before / pace, min(before, LEAST_S)), abs=0.001)


@given(texts, st.floats(1.5, 3600))
def test_in_an_expression_it_is_the_same_wherever_it_stands(text: str, pace: float) -> None:
    span = paced(text, pace, LEAST_RANGE_S)
    assert expression(f'rate(x{{a="{text}"}}[{text}:{text}] offset {text})', pace) == (
        f'rate(x{{a="{text}"}}[{span}:{paced(text, pace)}] offset {paced(text, pace)})'
    )


@given(st.text(alphabet="abx_:[]{}()\"'`#\\ \n15mhs.,=~", max_size=60), st.floats(1.5, 3600))
def test_any_text_is_gone_through_without_a_word_lost(text: str, pace: float) -> None:
    plain = [letter for letter in text if not letter.isalnum() and letter not in "."]
    after = expression(text, pace)
    assert [letter for letter in after if not letter.isalnum() and letter not in "."] == plain


def test_the_floors_are_what_the_docs_say() -> None:
    assert (durations.LEAST_S, durations.LEAST_RANGE_S) == (1.0, 5.0)
