"""Tables as data, and how their numbers are printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

UNKNOWN = "unknown"

Kind = Literal["text", "count", "hours", "share"]
Level = Literal["row", "sum", "part"]


@dataclass(frozen=True)
class Column:
    """A heading, with the unit in it, and how the cells below are printed."""

    title: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Row:
    """Cells as they are in the analysis; a `part` row belongs to the `sum` row above it."""

    cells: tuple[Any, ...]
    level: Level = "row"


@dataclass(frozen=True)
class Table:
    """What one table shows. Without rows, `missing` says why."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    missing: str = ""


def known(*values: Any) -> bool:
    """Whether every value is a number, that is, none is "unknown"."""
    return all(isinstance(value, (int, float)) for value in values)


def ratio(part: Any, whole: Any) -> float | str:
    """Part of whole as a fraction, unknown where either is or where there is no whole."""
    return part / whole if known(part, whole) and whole else UNKNOWN


def total(values: Sequence[Any]) -> Any:
    """The sum, unknown where one of the values is."""
    return sum(values) if known(*values) else UNKNOWN


def count(value: Any) -> str:
    return f"{value:,.0f}" if known(value) else UNKNOWN


def hours(value: Any) -> str:
    return _one_decimal(value) if known(value) else UNKNOWN


def percent(share: Any) -> str:
    """A fraction as a percentage without its sign."""
    return _one_decimal(100 * share) if known(share) else UNKNOWN


def rounded(value: Any) -> str:
    """A number for running text: no decimals where they say nothing."""
    whole = isinstance(value, int) or (known(value) and value >= 10)
    return count(value) if whole else hours(value)


def limit(value: Any) -> str:
    """A time limit given in hours as an operator writes it: 30 min, 8 h, 1 d."""
    if not known(value):
        return UNKNOWN
    if value < 1:
        return f"{value * 60:.3g} min"
    number, unit = (value / 24, "d") if value % 24 == 0 and value else (value, "h")
    return f"{number:.4g} {unit}"


def _one_decimal(value: float) -> str:
    return "< 0.1" if 0 < value < 0.05 else f"{value:,.1f}"


def printed(cell: Any, kind: Kind) -> str:
    """A cell as its column prints it; an empty one is a dash, for a figure that makes no sense."""
    return _FORMATS[kind](cell) if cell != "" else "\N{EN DASH}"


_FORMATS: dict[Kind, Callable[[Any], str]] = {
    "text": str,
    "count": count,
    "hours": hours,
    "share": percent,
}
