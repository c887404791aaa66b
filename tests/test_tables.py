"""How numbers are printed."""

from __future__ import annotations

from typing import Any

import pytest

from cedana_poc.tables import (
    UNKNOWN,
    count,
    hours,
    known,
    limit,
    percent,
    printed,
    ratio,
    rounded,
    total,
)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (count(0), "0"),
        (count(1234567), "1,234,567"),
        (count(UNKNOWN), "unknown"),
        (hours(0.0), "0.0"),
        (hours(0.01), "< 0.1"),
        (hours(12345.67), "12,345.7"),
        (hours(UNKNOWN), "unknown"),
        (percent(0.2546), "25.5"),
        (percent(0.0001), "< 0.1"),
        (percent(1.0), "100.0"),
        (percent(UNKNOWN), "unknown"),
        (rounded(42_897.86), "42,898"),
        (rounded(9.44), "9.4"),
        (rounded(7), "7"),
        (rounded(UNKNOWN), "unknown"),
        (limit(0.5), "30 min"),
        (limit(8.0), "8 h"),
        (limit(24.0), "1 d"),
        (limit(36.0), "36 h"),
        (limit(168), "7 d"),
        (limit(UNKNOWN), "unknown"),
        (printed("", "hours"), "\N{EN DASH}"),
        (printed(0, "count"), "0"),
        (printed("a|b", "text"), "a|b"),
    ],
)
def test_numbers_are_printed_the_same_everywhere(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_small_amount_is_never_printed_as_nothing() -> None:
    assert "0.0" not in (hours(1e-9), percent(1e-9), rounded(0.003))


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(1, 4, 0.25), (0, 4, 0.0), (1, 0, UNKNOWN), (UNKNOWN, 4, UNKNOWN), (1, UNKNOWN, UNKNOWN)],
)
def test_a_share_of_nothing_or_of_something_unknown_is_unknown(
    part: Any, whole: Any, expected: Any
) -> None:
    assert ratio(part, whole) == expected


def test_one_unknown_makes_a_sum_unknown() -> None:
    assert total([1, 2.5]) == 3.5
    assert total([1, UNKNOWN]) == UNKNOWN
    assert known(0, 1.5)
    assert not known(0, UNKNOWN)
