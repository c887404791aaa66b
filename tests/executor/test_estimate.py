"""When checkpoints are made."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snakemake_executor_plugin_cedana.runner.estimate import (
    MARGIN,
    Cost,
    dump_deadline,
    first_cost,
    interval,
    jittered,
    lead,
    percentile,
    restore_deadline,
)

SECONDS = st.floats(0.001, 1e5)
COSTS = st.lists(st.builds(Cost, SECONDS, SECONDS), min_size=1, max_size=50)


def test_the_99th_percentile_of_few_values_is_the_largest() -> None:
    assert 3.0 == percentile([1.0, 3.0, 2.0], 0.99)


def test_the_99th_percentile_of_many_values_leaves_the_largest_hundredth_out() -> None:
    assert 198 == percentile(list(range(1, 201)), 0.99)


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.99)


def test_an_interval_in_seconds_is_used_as_it_is() -> None:
    assert 30.0 == interval(30.0, 86400, [Cost(100, 100)])


def test_interval_zero_means_no_heartbeat() -> None:
    assert 0 == interval(0, 86400, [Cost(1, 1)])


def test_the_automatic_interval_is_dalys_optimum() -> None:
    assert math.sqrt(2 * 4 * 86400) == interval("auto", 86400, [Cost(4, 9)])


def test_the_automatic_interval_follows_the_latest_dumps() -> None:
    old, new = [Cost(100, 100)] * 20, [Cost(1, 1)] * 8

    assert interval("auto", 86400, new) == interval("auto", 86400, old + new)


@given(COSTS, st.floats(1, 1e8))
def test_a_step_never_stands_still_more_than_half_of_the_time(
    costs: list[Cost], mtbf: float
) -> None:
    mean = sum(cost.frozen for cost in costs[-8:]) / len(costs[-8:])

    assert interval("auto", mtbf, costs) >= 2 * mean * 0.999


@given(st.floats(0, 0.999999), SECONDS)
def test_jitter_stays_within_a_tenth(chance: float, seconds: float) -> None:
    assert 0.9 * seconds <= jittered(seconds, chance) <= 1.1 * seconds


def test_the_final_checkpoint_leaves_time_for_the_slowest_one_and_a_margin() -> None:
    assert 20 + MARGIN == lead("auto", [Cost(1, 5), Cost(2, 20)], 86400)


def test_a_short_allocation_works_for_half_of_its_time() -> None:
    assert 45 == lead("auto", [Cost(1, 5)], 90)


def test_a_lead_time_in_seconds_is_used_as_it_is() -> None:
    assert 80 == lead(80, [Cost(1, 5)], 90)


def test_a_lead_time_that_leaves_no_time_is_half_of_it() -> None:
    assert 30 == lead(60, [Cost(1, 5)], 60)


@given(COSTS, SECONDS, st.one_of(st.just("auto"), st.floats(0, 1e6)))
def test_the_step_always_gets_some_of_its_allocation(
    costs: list[Cost], seconds: float, setting: float | str
) -> None:
    assert 0 <= lead(setting, costs, seconds) < seconds


def test_a_restore_may_take_a_minute_and_ten_times_the_dump() -> None:
    assert (60, 1000) == (restore_deadline(0.1), restore_deadline(100))


def test_a_dump_has_more_time_than_any_before_it() -> None:
    assert 2000 == dump_deadline([Cost(1, 100), Cost(1, 10)])


def test_a_first_checkpoint_is_expected_to_be_slow() -> None:
    assert 11 == first_cost(10**9).total
