"""Durations (GEP-2257), quantities (Kubernetes) and percentages."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.policy.units import parse_duration, parse_percent, parse_quantity


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("250ms", 0.25),
        ("30s", 30.0),
        ("5m", 300.0),
        ("24h", 86400.0),
        ("1h30m", 5400.0),
        ("1h2m3s4ms", 3723.004),
        ("99999h", 359996400.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (60, "60s"),
        (-60, "60s"),
        (True, "30s"),
        (1.5, "30s"),
        (None, "30s"),
        (["30s"], "30s"),
        ("", "30s"),
        ("30", "30s"),
        ("-30s", "negative"),
        ("1d", "24h"),
        ("1.5s", "write 1s500ms$"),
        ("1.5d", "write 36h$"),
        (".5h", "write 30m$"),
        ("2w", "write 336h$"),
        ("90000us", "write 90ms$"),
        ("100µs", "no unit below ms, got '100µs'$"),
        ("0.0001s", "no fractions, got '0.0001s'$"),
        ("100000s", "write 27h46m40s$"),
        ("999999999d", "days are not a unit of duration$"),
        ("1h1m1s1ms1ms", "four parts"),
        (" 30s", "30s"),
        ("30s\n", "30s"),
        ("\uff13\uff10s", "30s"),
        ("9" * 100_000 + "d", "30s"),
    ],
)
def test_what_is_no_duration_says_what_would_be(value: object, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        parse_duration(value)
    assert len(str(caught.value)) < 200


def told_instead(check: Callable[[object], float], value: object) -> str | None:
    """What the refusal of `value` says to write; None where it says nothing, or where nothing is refused."""
    try:
        check(value)
    except ValueError as error:
        found = re.search(r"write ([^ ,]+)", str(error))
        return found[1] if found else None
    return None


numbers = st.one_of(
    st.integers(0, 10**7).map(str),
    st.decimals(0, 10**6, places=3).map(str),
    st.from_regex(r"[0-9]{1,3}\.[0-9]{1,9}", fullmatch=True),
)
words = st.sampled_from(["ns", "us", "ms", "s", "sec", "m", "min", "h", "H", "d", "w"]) | st.sampled_from(
    ["k", "K", "Mi", "MiB", "gb", "P", "Pi", "E", "B", "%"]
)


@given(numbers, st.sampled_from(["", " "]), words)
def test_what_is_told_to_write_can_be_written(number: str, blank: str, unit: str) -> None:
    for check in (parse_duration, parse_quantity, parse_percent):
        instead = told_instead(check, number + blank + unit)
        if instead is not None:
            check(instead)
    for value in (float(number), Decimal(number)):
        instead = told_instead(parse_quantity, value)
        assert instead is None or parse_quantity(instead) == value


@given(st.integers(0, 59999), st.sampled_from([("d", 86400), ("w", 604800)]))
def test_days_and_weeks_are_told_in_hours(number: int, unit: tuple[str, int]) -> None:
    instead = told_instead(parse_duration, f"{number}{unit[0]}")
    assert instead is None if number * unit[1] > 99999 * 3600 else parse_duration(instead) == number * unit[1]


@given(st.integers(0, 99999), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int, millis: int) -> None:
    expected = hours * 3600 + minutes * 60 + seconds + millis / 1000
    assert parse_duration(f"{hours}h{minutes}m{seconds}s{millis}ms") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("64Mi", 64 << 20),
        ("1.5Gi", 3 << 29),
        ("200Gi", 200 << 30),
        ("1k", 1000),
        ("2M", 2_000_000),
        ("1T", 10**12),
        ("1.1Ki", 1127),
        ("0.0001k", 1),
        (10**15 - 1, 10**15 - 1),
        ("0", 0),
    ],
)
def test_quantities(value: object, size: int) -> None:
    assert parse_quantity(value) == size


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("64MB", "write 64M"),
        ("64MiB", "write 64Mi"),
        ("100m", "write 100M"),
        ("64mib", "write 64Mi$"),
        ("1Tb", "write 1T$"),
        ("5 Gi", "write 5Gi$"),
        ("1_000", "write 1000$"),
        (1e6, "write 1000000$"),
        ("2Pi", "write 2048Ti$"),
        ("1X", "unknown suffix"),
        ("-1Mi", "negative"),
        (-1, "negative"),
        ("0.3", "whole number"),
        ("999999999Ti", "too much: at most 6 digits before Ti"),
        (10**15, "64Mi"),
        ("25%", "64Mi"),
        ("", "64Mi"),
        (True, "64Mi"),
        (1.0, "64Mi"),
        ("9" * 100_000, "64Mi"),
    ],
)
def test_what_is_no_quantity_says_what_would_be(value: object, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        parse_quantity(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("value", "share"),
    [
        (70, 0.7),
        ("70%", 0.7),
        (0, 0.0),
        (100, 1.0),
        (12.5, 0.125),
        (1.0000001, 0.010000001),
        ("0.5%", 0.005),
        ("1", 0.01),
    ],
)
def test_percentages(value: object, share: float) -> None:
    assert parse_percent(value) == share


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (0.9999999, "write 99.99999, or"),
        (0.7, "write 70, or 0.7%"),
        ("0.10", "write 10, or 0.10%"),
        (0.005, "write 0.5%, or 0.005%"),
    ],
)
def test_a_share_of_one_is_no_percentage(value: object, meant: str) -> None:
    with pytest.raises(ValueError, match=meant):
        parse_percent(value)


@pytest.mark.parametrize(
    "value", [101, -1, "7 0%", 100.00000001, float("inf"), float("nan"), "70 %", "%", "x", True, None, "1e1"]
)
def test_what_is_no_percentage_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="from 0 to 100"):
        parse_percent(value)


@pytest.mark.parametrize("value", ["101 %", "999 ", "0.5 ", "0 .25"])
def test_a_percentage_without_its_blanks_is_told_only_where_it_is_one(value: str) -> None:
    with pytest.raises(ValueError, match=r"from 0 to 100, such as 70 or 70%, got [^:]*$"):
        parse_percent(value)
