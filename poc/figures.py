"""The figures of the analysis page: an image, a sentence that says the same, the numbers drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cedana_poc.drawing import (
    ACCENT,
    BAND,
    BAR_STEP,
    INK,
    MUTED,
    PAGE,
    QUIET,
    WIDTH,
    bars,
    beside,
    heading,
    label,
    panel,
    scale,
    svg,
)
from cedana_poc.tables import (
    UNKNOWN,
    Column,
    Row,
    Table,
    count,
    known,
    limit,
    percent,
    ratio,
    rounded,
    total,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST_BARS = 12
MOST_CHAINS = 12
MOST_ATTEMPTS = 6

NODE_HOURS = Column("Exposed node-hours (nodes touched)", "hours")
NEEDS_HOURS = "Unknown: needs the columns NNodes and Elapsed."
NONE_ENDED = "No run ended at its time limit."


@dataclass(frozen=True)
class Figure:
    """One figure. Where `image` is empty, `text` says why, or which input would fill it."""

    name: str
    title: str
    text: str
    image: str = ""
    table: Table | None = None


def figures(analysis: dict[str, Any]) -> list[Figure]:
    """The five figures of an analysis document, in the order of the page."""
    drawn = (by_partition, over_limit, by_week, concentration, chains)
    return [figure(analysis) for figure in drawn]


def by_partition(analysis: dict[str, Any]) -> Figure:
    name, title = "partitions", "Exposed hours by partition"
    rows = analysis["breakdowns"]["partition"]
    if rows == UNKNOWN:
        return Figure(name, title, "Unknown: needs the column Partition.")
    rows = _first([row for row in rows if row["wall_ended"]["runs"]])
    if not rows:
        return Figure(name, title, NONE_ENDED)
    hours = [row["wall_ended"]["node_hours"] for row in rows]
    if not known(*hours):
        return Figure(name, title, NEEDS_HOURS)
    most = max(rows, key=lambda row: row["wall_ended"]["node_hours"])
    gpus = [row["wall_ended"]["gpu_hours"] for row in rows]
    measures = "node-hours and GPU-hours" if known(*gpus) and any(gpus) else "node-hours"
    text = (
        f"Bars of exposed {measures}, one partition a line. "
        f"{label(most['value'])} has most: {rounded(most['wall_ended']['node_hours'])} of "
        f"{rounded(total(hours))} exposed node-hours."
    )
    columns = (
        Column("Partition"),
        NODE_HOURS,
        Column("Share of the partition's node-hours (%)", "share"),
        Column("Exposed GPU-hours", "hours"),
    )
    cells = [
        (
            row["value"],
            row["wall_ended"]["node_hours"],
            row["share_of_node_hours"],
            row["wall_ended"]["gpu_hours"],
        )
        for row in rows
    ]
    image = svg(name, title, text, 36 + BAR_STEP * len(rows), partial(_draw_partitions, cells))
    return Figure(name, title, text, image, Table(title, columns, _rows(cells)))


def over_limit(analysis: dict[str, Any]) -> Figure:
    name, title = "limits", "How much of their time limit runs used"
    histogram = analysis["elapsed_over_limit"]
    if histogram == UNKNOWN:
        return Figure(name, title, "Unknown: needs the columns Timelimit and Elapsed.")
    edges, runs, walls = (histogram[key] for key in ("edges", "runs", "wall_ended_runs"))
    text = (
        "Histograms of elapsed time over time limit, one of runs and one of node-hours. "
        f"{count(total(walls))} of {count(total(runs))} runs ended at their limit. The kill "
        f"band, from {100 * histogram['band_from']:g} % of the limit upwards, is shaded."
    )
    columns = (
        Column("Elapsed / limit (%)"),
        Column("Runs", "count"),
        Column("Of these ended at their limit", "count"),
        Column("Node-hours (nodes touched)", "hours"),
    )
    steps = [f"{100 * low:.0f} to {100 * high:.0f}" for low, high in pairwise(edges)]
    if histogram["last_is_open"]:
        steps[-1] = f"{100 * edges[-2]:.0f} and more"
    cells = zip(steps, runs, walls, histogram["node_hours"], strict=True)
    height = 346 if known(*histogram["node_hours"]) else 180
    image = svg(name, title, text, height, partial(_draw_histogram, histogram))
    return Figure(name, title, text, image, Table(title, columns, _rows(cells)))


def by_week(analysis: dict[str, Any]) -> Figure:
    name, title = "weeks", "Exposed node-hours week by week"
    rows = analysis["breakdowns"]["week"]
    if rows == UNKNOWN:
        return Figure(name, title, "Unknown: needs the column End.")
    cells = [
        (row["value"], row["wall_ended"]["node_hours"], row["share_of_node_hours"]) for row in rows
    ]
    if not known(*(exposed for _, exposed, _ in cells)):
        return Figure(name, title, NEEDS_HOURS)
    if not any(exposed for _, exposed, _ in cells):
        return Figure(name, title, NONE_ENDED)
    week, exposed, share = max(cells, key=lambda each: each[1])
    text = (
        f"Each week from {rows[0]['value']} to {rows[-1]['value']}: exposed node-hours as bars, "
        f"their share of the week's node-hours as a line. The week of {week} has most: "
        f"{rounded(exposed)} node-hours, {percent(share)} % of that week's."
    )
    columns = (Column("Week from"), NODE_HOURS, Column("Share of the week's (%)", "share"))
    image = svg(name, title, text, 312, partial(_draw_weeks, cells))
    return Figure(name, title, text, image, Table(title, columns, _rows(cells)))


def concentration(analysis: dict[str, Any]) -> Figure:
    name, title = "users", "How few users the exposed node-hours belong to"
    rows = analysis["concentration"]
    if not analysis["wall_ended"]["runs"]:
        return Figure(name, title, NONE_ENDED)
    if rows == UNKNOWN:
        return Figure(name, title, "Unknown: needs the columns User, NNodes and Elapsed.")
    keys = ("user", "node_hours", "share", "cumulative_share")
    cells = [tuple(row[key] for key in keys) for row in rows[:MOST_BARS]]
    if not known(*(number for row in cells for number in row[1:])):
        return Figure(name, title, NEEDS_HOURS)
    text = (
        f"The first user has {percent(cells[0][2])} % of the exposed node-hours; the first "
        f"{len(cells)} together have {percent(cells[-1][3])} %. Bar: the user's own share. "
        "Circle: together with all users above."
    )
    columns = (
        Column("User"),
        NODE_HOURS,
        Column("Share (%)", "share"),
        Column("Together with all users above (%)", "share"),
    )
    image = svg(name, title, text, 36 + BAR_STEP * len(cells), partial(_draw_users, cells))
    return Figure(name, title, text, image, Table(title, columns, _rows(cells)))


def chains(analysis: dict[str, Any]) -> Figure:
    name, title = "chains", "Work submitted again after its limit"
    repeats = analysis["repeats"]
    found = repeats["chains"][:MOST_CHAINS]
    if not known(repeats["considered"]) and not found:
        needed = "Unknown: needs the columns JobIDRaw, User, JobName, Submit and End."
        return Figure(name, title, needed)
    if not found:
        return Figure(name, title, "No repeat chain was found.")
    escalating = sum(chain["escalating"] for chain in found)
    text = (
        "The chains with most exposed node-hours, one bar an attempt, as long as the attempt "
        "ran. The upright mark is its time limit. Each limit is longer than the one before in "
        f"{escalating} of {len(found)}. The limits of the first: {limits_of(found[0])}."
    )
    height = 72 + sum(_chain_height(chain) for chain in found)
    image = svg(name, title, text, height, partial(_draw_chains, found))
    return Figure(name, title, text, image, _attempts(found))


def limits_of(chain: Mapping[str, Any]) -> str:
    """The chain's time limits, equal ones in a row counted: 8 h → 1 d → 3 d, or twice 2 d."""
    runs: list[tuple[str, int]] = []
    for attempt in chain["attempts"]:
        word = limit(attempt["limit_hours"])
        times = runs.pop()[1] if runs and runs[-1][0] == word else 0
        runs.append((word, times + 1))
    return " → ".join(
        f"{times} \N{MULTIPLICATION SIGN} {word}" if times > 1 else word for word, times in runs
    )


def _rows(cells: Any) -> tuple[Row, ...]:
    return tuple(Row(tuple(row)) for row in cells)


def _first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that fit a figure, the others added up in a last one."""
    if len(rows) <= MOST_BARS:
        return list(rows)
    rest = rows[MOST_BARS - 1 :]
    walls = {
        key: total([row["wall_ended"][key] for row in rest]) for key in ("node_hours", "gpu_hours")
    }
    share = ratio(walls["node_hours"], total([row["node_hours"] for row in rest]))
    others = {"value": f"others ({len(rest)})", "wall_ended": walls, "share_of_node_hours": share}
    return [*rows[: MOST_BARS - 1], others]


def _attempts(found: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column("Chain"),
        Column("Job"),
        Column("State"),
        Column("Time limit"),
        Column("Elapsed (h)", "hours"),
        Column("Node-hours (nodes touched)", "hours"),
    )
    cells = [
        (
            f"{number}: {chain['user']}",
            attempt["job"],
            attempt["state"],
            limit(attempt["limit_hours"]),
            attempt["elapsed_hours"],
            attempt["node_hours"],
        )
        for number, chain in enumerate(found, start=1)
        for attempt in chain["attempts"]
    ]
    return Table("Attempts of the chains drawn", columns, _rows(cells))


# -- drawing ----------------------------------------------------------------------------------


def _draw_partitions(cells: Sequence[tuple[Any, ...]], drawing: Drawing) -> None:
    names, nodes, shares, gpus = zip(*cells, strict=True)
    bottom = 34 + BAR_STEP * len(cells)
    notes = [
        f"{rounded(hours)} · {percent(share)} %" if known(share) else rounded(hours)
        for hours, share in zip(nodes, shares, strict=True)
    ]
    panels = [(178, 300, nodes, notes, "node-hours · share of the partition's own", 1.6)]
    if known(*gpus) and any(gpus):
        panels.append((520, 200, gpus, [rounded(value) for value in gpus], "GPU-hours", 1.4))
    for left, width, values, texts, above, room in panels:
        axes = panel(drawing, 30, bottom, left, width)
        bars(axes, values, max(values) * room, names if values is nodes else ())
        for place, (value, note) in enumerate(zip(values, texts, strict=True)):
            axes.text(value + max(values) * 0.02, place, note, va="center")
        heading(axes, above)


def _draw_histogram(histogram: dict[str, Any], drawing: Drawing) -> None:
    edges, band = histogram["edges"], histogram["band_from"]
    panels = [("runs", "runs · coloured: ended at their limit")]
    if known(*histogram["node_hours"]):
        panels.append(("node_hours", "node-hours (nodes touched)"))
    for place, (key, above) in enumerate(panels):
        axes = panel(drawing, 30 + 166 * place, 156 + 166 * place, 70, WIDTH - 80)
        axes.axvspan(band, edges[-1], color=BAND, linewidth=0)
        axes.stairs(histogram[key], edges, fill=True, color=QUIET)
        if key == "runs":
            axes.stairs(histogram["wall_ended_runs"], edges, fill=True, color=ACCENT)
        scale(axes, histogram[key])
        axes.set_xlim(0, edges[-1])
        last = place == len(panels) - 1
        words = ["0 %", "25 %", "50 %", "75 %", "limit"] if last else []
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1] if last else [], words)
        heading(axes, above)
    ended = f"kill band · {count(total(histogram['wall_ended_runs']))} ended at their limit"
    heading(drawing.axes[0], ended, 1, "right")


def _draw_weeks(cells: Sequence[tuple[str, Any, Any]], drawing: Drawing) -> None:
    weeks = [date.fromisoformat(week) for week, _, _ in cells]
    places = [week.toordinal() for week in weeks]
    exposed = [hours for _, hours, _ in cells]
    shares = [100 * share if known(share) else float("nan") for _, _, share in cells]
    upper = panel(drawing, 30, 170, 70, WIDTH - 80)
    upper.bar(places, exposed, 5.4, color=ACCENT, linewidth=0, clip_on=False)
    scale(upper, exposed)
    heading(upper, "exposed node-hours (nodes touched)")
    lower = panel(drawing, 206, 286, 70, WIDTH - 80)
    lower.plot(places, shares, color=INK, linewidth=1.6, marker="o", markersize=4)
    scale(lower, [share for share in shares if share == share])
    heading(lower, "share of the week's node-hours (%)")
    shown = weeks[:: -(-len(weeks) // 8)]
    words = [f"{week.day} {week:%b}" for week in shown]
    words[0] += f" {shown[0].year}"
    for axes in (upper, lower):
        axes.set_xlim(places[0] - 4, max(places[-1], places[0] + 56) + 4)
        axes.set_xticks([])
    lower.set_xticks([week.toordinal() for week in shown], words)


def _draw_users(cells: Sequence[tuple[Any, ...]], drawing: Drawing) -> None:
    names, _, own, together = zip(*cells, strict=True)
    axes = panel(drawing, 30, 34 + BAR_STEP * len(cells), 178, WIDTH - 328)
    bars(axes, own, 1, names)
    axes.plot(together, range(len(cells)), color=MUTED, linewidth=1)
    ring: dict[str, Any] = {
        "color": PAGE,
        "markeredgecolor": INK,
        "markersize": 7,
        "clip_on": False,
    }
    axes.plot(together, range(len(cells)), "o", **ring)
    for place, (share, sum_so_far) in enumerate(zip(own, together, strict=True)):
        beside(axes, 1.16, place, f"{percent(share)} %", ha="right")
        beside(axes, 1.37, place, f"{percent(sum_so_far)} %", ha="right", color=MUTED)
    heading(axes, "share of the exposed node-hours")
    heading(axes, "own (bar)", 1.16, "right")
    heading(axes, "together (○)", 1.37, "right")


def _chain_height(chain: dict[str, Any]) -> int:
    return 16 + 9 * min(max(len(chain["attempts"]), 2), MOST_ATTEMPTS)


def _draw_chains(found: Sequence[dict[str, Any]], drawing: Drawing) -> None:
    height = sum(_chain_height(chain) for chain in found)
    axes = panel(drawing, 44, 44 + height, 178, WIDTH - 340)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    placed = []
    top = 0
    for chain in found:
        middle = top + _chain_height(chain) / 2
        top += _chain_height(chain)
        shown = chain["attempts"][:MOST_ATTEMPTS]
        first = middle - 9 * (len(shown) - 1) / 2
        placed += [(first + 9 * place, attempt) for place, attempt in enumerate(shown)]
        _name_chain(axes, chain, middle)
    for look in _LOOKS:
        _bars_of(axes, look, [pair for pair in placed if _look(pair[1]) == look])
    _limit_marks(axes, placed)
    _hour_ticks(axes)
    _legend(drawing)


def _name_chain(axes: Axes, chain: dict[str, Any], middle: float) -> None:
    beside(axes, -0.025, middle - 7, label(chain["user"]), ha="right")
    small = {"ha": "right", "color": MUTED, "fontsize": 10.5}
    beside(axes, -0.025, middle + 7, label(chain["application"], 28), **small)
    more = len(chain["attempts"]) - MOST_ATTEMPTS
    note = limits_of(chain) + (f" ({more} not drawn)" if more > 0 else "")
    beside(axes, 1.03, middle, label(note, 26))


_LOOKS: dict[str, dict[str, Any]] = {
    "TIMEOUT": {"facecolor": ACCENT, "edgecolor": ACCENT},
    "COMPLETED": {"facecolor": PAGE, "edgecolor": INK},
    "other state": {"facecolor": PAGE, "edgecolor": MUTED, "hatch": "//////"},
}


def _look(attempt: dict[str, Any]) -> str:
    return attempt["state"] if attempt["state"] in _LOOKS else "other state"


def _bars_of(axes: Axes, look: str, placed: Sequence[tuple[float, dict[str, Any]]]) -> None:
    lengths = [attempt["elapsed_hours"] for _, attempt in placed]
    lengths = [length if known(length) else 0 for length in lengths]
    axes.barh([at for at, _ in placed], lengths, 6, clip_on=False, **_LOOKS[look])


def _limit_marks(axes: Axes, placed: Sequence[tuple[float, dict[str, Any]]]) -> None:
    """An upright mark at each limit, and dots up to it where the attempt ended before."""
    bound = [(at, each) for at, each in placed if known(each["limit_hours"])]
    heights = [at for at, _ in bound]
    marks = [each["limit_hours"] for _, each in bound]
    ends = [each["elapsed_hours"] if known(each["elapsed_hours"]) else 0 for _, each in bound]
    axes.hlines(heights, ends, marks, color=MUTED, linestyle=":", linewidth=1)
    axes.vlines(marks, [at - 4.5 for at in heights], [at + 4.5 for at in heights], color=INK)


def _hour_ticks(axes: Axes) -> None:
    """Whole days once the axis is longer than two, else hours."""
    longest = axes.dataLim.x1 * 1.02 or 1
    unit, word = (24, "d") if longest > 48 else (1, "h")
    step = unit * max(1, round(longest / unit / 6))
    ticks = [step * place for place in range(int(longest // step) + 1)]
    axes.set_xlim(0, longest)
    axes.set_xticks(ticks, [f"{tick // unit} {word}" if tick else "0" for tick in ticks])
    axes.grid(axis="x")


def _legend(drawing: Drawing) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    patches = [Patch(label=name, **look) for name, look in _LOOKS.items()]
    mark = Line2D([], [], color=INK, marker="|", linestyle="", markersize=11, label="time limit")
    drawing.legend(
        handles=[*patches, mark],
        loc="upper left",
        bbox_to_anchor=(178 / WIDTH - 0.012, 1),
        ncols=4,
        handlelength=1.4,
        columnspacing=1.6,
    )
