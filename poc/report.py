"""An analysis document as one HTML page: no network, no script, the same bytes every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cedana_poc.errors import visible
from cedana_poc.figures import figures
from cedana_poc.report_tables import report_tables
from cedana_poc.tables import UNKNOWN, count, percent, printed, ratio, rounded

DOUBTS = {
    "warning": ("1 warning", "{} warnings"),
    "unknown": ("1 check was not possible", "{} checks were not possible"),
}


def render(analysis: dict[str, Any]) -> str:
    """The page of one analysis document, complete in itself."""
    wall = analysis["wall_ended"]
    page: str = (
        _environment()
        .get_template("analysis.html.j2")
        .render(
            analysis=analysis,
            figures=figures(analysis) if analysis["rows"]["runs"] else [],
            tables=report_tables(analysis),
            addressable_share=ratio(wall["addressable"]["node_hours"], wall["node_hours"]),
            doubts=_doubts(analysis["quality"]),
        )
    )
    return page


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cedana_poc.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "count": count,
        "rounded": rounded,
        "percent": percent,
        "printed": printed,
        "moment": _moment,
    }
    return environment


def _shown(value: Any) -> Any:
    """Text from outside without what would not print; markup of the templates as it is."""
    return visible(value) if type(value) is str else value


def _moment(stamp: str) -> str:
    """An ISO time stamp to the minute, with its offset where it has one."""
    if stamp == UNKNOWN:
        return stamp
    return f"{datetime.fromisoformat(stamp):%Y-%m-%d %H:%M %z}".strip()


def _doubts(quality: Sequence[Mapping[str, str]]) -> str:
    seen = Counter(entry["state"] for entry in quality)
    said = [
        one if seen[state] == 1 else many.format(seen[state])
        for state, (one, many) in DOUBTS.items()
        if seen[state]
    ]
    return ", ".join(said)
