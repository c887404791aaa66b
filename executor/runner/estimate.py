"""When to checkpoint: pure functions of what earlier checkpoints of the step took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MARGIN = 60.0  # seconds between the end of the final checkpoint and the end of the allocation
JITTER = 0.1
_LEAST_INTERVAL = 1.0
_BYTES_A_SECOND = 100e6  # of a first checkpoint, taken low: nothing has been measured yet
_FIRST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that one checkpoint took: the step stood still, and all of it until sealed."""

    frozen: float
    total: float


def first_cost(bytes_: int) -> Cost:
    """A guess for a step that has never been dumped."""
    seconds = _FIRST_SECONDS + bytes_ / _BYTES_A_SECOND
    return Cost(seconds, seconds)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: of fewer than 100 values the 99th is the largest."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def interval(setting: float | str, mtbf: float, costs: Sequence[Cost]) -> float:
    """Seconds between two heartbeats; 0 = none.

    `auto` is Daly's optimum for the time that a dump stops the step, from the mean of the latest
    ones, when a failure is expected every `mtbf` seconds. It is never below twice that time.
    """
    if not isinstance(setting, str):
        return max(0.0, setting)
    recent = [cost.frozen for cost in costs[-8:]]
    frozen = sum(recent) / len(recent)
    return max(_LEAST_INTERVAL, 2 * frozen, math.sqrt(2 * frozen * mtbf))


def jittered(seconds: float, chance: float) -> float:
    """The same up to a tenth more or less; chance lies in [0, 1)."""
    return seconds * (1 + JITTER * (2 * chance - 1))


def lead(setting: float | str, costs: Sequence[Cost], seconds: float) -> float:
    """How long before the end of an allocation of `seconds` the final checkpoint begins.

    `auto` is the 99th percentile of whole checkpoints and a margin, at most half the allocation.
    A number is used as it is, unless the allocation is not longer.
    """
    half = seconds / 2
    if isinstance(setting, str):
        return min(half, percentile([cost.total for cost in costs], 0.99) + MARGIN)
    return setting if setting < seconds else half


def restore_deadline(dump_seconds: float) -> float:
    """Seconds after which a restore counts as hanging."""
    return max(60.0, 10 * dump_seconds)


def dump_deadline(costs: Sequence[Cost]) -> float:
    """Seconds after which a dump counts as hanging."""
    return max(300.0, 20 * max(cost.total for cost in costs))
