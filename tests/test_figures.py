"""The figures: what is drawn, what is said, and what the page needs of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import sample_analysis

from cedana_poc import figures
from cedana_poc.drawing import WIDTH
from cedana_poc.figures import Figure
from cedana_poc.tables import limit

Document = dict[str, Any]


@pytest.fixture(scope="module")
def drawn() -> list[Figure]:
    return figures.figures(sample_analysis.sample())


@pytest.fixture(scope="module")
def hostile() -> list[Figure]:
    return figures.figures(sample_analysis.hostile())


def image(figure: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(figure.image)  # noqa: S314 - the test has just had it drawn


def span(path: ElementTree.Element) -> tuple[float, float]:
    """The horizontal extent of a path."""
    across = [float(x) for x in re.findall(r"[ML] (\S+) \S+", path.attrib["d"])]
    return min(across), max(across)


def bars(figure: Figure, style: str) -> list[float]:
    """Lengths of the bars of a look, in the order drawn."""
    found = [span(path) for path in image(figure).iter("path") if style in path.get("style", "")]
    return [right - left for left, right in found]


def words(figure: Figure) -> list[str]:
    return [text.text or "" for text in image(figure).iter("text")]


def run(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", code]
    tests = str(Path(__file__).parent)
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    surroundings = os.environ | {"PYTHONPATH": path} | environment
    return subprocess.run(
        command, env=surroundings, capture_output=True, text=True, check=True
    ).stdout


# -- what the page needs ----------------------------------------------------------------------


def test_every_figure_has_a_role_and_a_name_made_of_title_and_description(
    drawn: list[Figure],
) -> None:
    assert [figure.name for figure in drawn] == ["partitions", "limits", "weeks", "users", "chains"]
    for figure in drawn:
        root = image(figure)
        named = root.attrib["aria-labelledby"].split()
        by_id = {element.get("id"): element for element in root}
        assert root.attrib["role"] == "img"
        assert [by_id[name].tag for name in named] == ["title", "desc"]
        assert [by_id[name].text for name in named] == [figure.title, figure.text]


def test_several_figures_fit_on_one_page_because_no_id_occurs_twice(drawn: list[Figure]) -> None:
    ids = [found for figure in drawn for found in re.findall(r'\bid="([^"]+)"', figure.image)]
    assert len(ids) == len(set(ids))
    for figure in drawn:
        own = set(re.findall(r'\bid="([^"]+)"', figure.image))
        assert all(name.startswith(f"{figure.name}-") for name in own)
        assert set(re.findall(r"url\(#([^)]+)\)", figure.image)) <= own
        assert set(re.findall(r'href="#([^"]+)"', figure.image)) <= own


def test_colours_are_those_of_the_page_and_fonts_are_inherited(drawn: list[Figure]) -> None:
    for figure in drawn:
        painted = re.findall(r"(?:fill|stroke): ([^;\"]+)", figure.image)
        plain = {colour for colour in painted if not colour.startswith(("var(--", "url(#"))}
        assert plain <= {"currentColor", "none"}
        assert "#0a0b" not in figure.image
        assert "font-family" not in figure.image
        assert "<style" not in figure.image


def test_nothing_outside_is_named_and_nothing_runs(hostile: list[Figure]) -> None:
    for figure in hostile:
        assert "://" not in figure.image
        assert "<script" not in figure.image
        assert not re.search(r"<[^>]*\son\w+=", figure.image)


def test_names_are_drawn_as_text_and_never_taken_for_markup_or_formulas() -> None:
    document = sample_analysis.sample()
    document["concentration"][0]["user"] = "<b>$x_1$</b>"
    document["concentration"][1]["user"] = "a\nb\x1b[1m\udc80"
    document["concentration"][2]["user"] = "n" * 300
    shown = words(figures.concentration(document))
    assert "<b>$x_1$</b>" in shown
    assert "a\\nb\\x1b[1m\\udc80" in shown
    assert "n" * 23 + "…" in shown


def test_each_image_is_small(drawn: list[Figure]) -> None:
    assert max(len(figure.image) for figure in drawn) < 40_000


def test_the_same_document_gives_the_same_bytes_whatever_the_surroundings(
    drawn: list[Figure], tmp_path: Path
) -> None:
    settings = tmp_path / "matplotlibrc"
    settings.write_text("xtick.direction: in\nlegend.fontsize: 30\npatch.antialiased: False\n")
    code = (
        "import sys; sys.stdout.reconfigure(encoding='utf-8')\n"
        "import sample_analysis; from cedana_poc.figures import figures\n"
        "print(*(f.image for f in figures(sample_analysis.sample())), sep='\\n', end='')"
    )
    once = run(code, PYTHONHASHSEED="1", TZ="UTC")
    again = run(code, PYTHONHASHSEED="2", TZ="Asia/Tokyo", MATPLOTLIBRC=str(settings))
    assert once == again == "\n".join(figure.image for figure in drawn)


def test_no_state_of_pyplot_is_touched_and_nothing_is_imported_before_a_figure_is_drawn() -> None:
    code = (
        "import sys, sample_analysis; from cedana_poc.figures import figures\n"
        "figures(sample_analysis.unknown()); print('matplotlib' in sys.modules)\n"
        "figures(sample_analysis.sample()); print('matplotlib' in sys.modules)\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    assert run(code).split() == ["False", "True", "False"]


# -- what is drawn ----------------------------------------------------------------------------


def test_partition_bars_are_as_long_as_their_hours() -> None:
    document = sample_analysis.sample()
    figure = figures.by_partition(document)
    walls = [row["wall_ended"] for row in document["breakdowns"]["partition"]]
    lengths = bars(figure, "fill: var(--accent)")
    for measure, drawn in (("node_hours", lengths[:5]), ("gpu_hours", lengths[5:])):
        expected = [wall[measure] / walls[0][measure] * drawn[0] for wall in walls]
        assert drawn == pytest.approx(expected, abs=0.01)


def test_a_cluster_without_gpus_has_no_gpu_panel() -> None:
    document = sample_analysis.sample()
    for row in document["breakdowns"]["partition"]:
        row["wall_ended"]["gpu_hours"] = 0.0
    figure = figures.by_partition(document)
    assert len(bars(figure, "fill: var(--accent)")) == 5
    assert "GPU-hours" not in words(figure)
    assert "GPU-hours" not in figure.text


def test_partitions_beyond_the_twelfth_are_added_up_and_none_is_dropped() -> None:
    document = sample_analysis.sample()
    weights = {f"part{number}": 1 / 30 for number in range(30)}
    document["breakdowns"]["partition"] = sample_analysis.rows_of(weights)
    table = figures.by_partition(document).table
    assert table is not None
    assert [row.cells[0] for row in table.rows[-2:]] == ["part10", "others (19)"]
    hours = sum(row.cells[1] for row in table.rows)
    assert hours == pytest.approx(sample_analysis.WALL["node_hours"])


def test_the_kill_band_begins_where_the_analysis_says() -> None:
    figure = figures.over_limit(sample_analysis.sample())
    band = [
        span(path) for path in image(figure).iter("path") if "var(--band)" in path.get("style", "")
    ]
    left, width = 70, WIDTH - 80
    assert band == [pytest.approx((left + width * 0.98 / 1.05, left + width))] * 2
    assert "kill band · 4,720 ended at their limit" in words(figure)


def test_weeks_without_a_run_leave_a_gap() -> None:
    document = sample_analysis.sample()
    del document["breakdowns"]["week"][3:6]
    figure = figures.by_week(document)
    found = [
        span(path)[0]
        for path in image(figure).iter("path")
        if path.get("style", "").startswith("fill: var(--accent)")
    ]
    steps = [after - before for before, after in pairwise(found)]
    assert steps[2] == pytest.approx(4 * steps[0], rel=0.01)


def test_an_escalation_is_drawn_with_each_limit_where_it_lies() -> None:
    document = sample_analysis.sample()
    escalation = document["repeats"]["chains"][2]
    document["repeats"]["chains"] = [escalation]
    figure = figures.chains(document)
    marks = sorted(
        span(path)[0] - 178
        for path in image(figure).iter("path")
        if len(set(span(path))) == 1 and "stroke: currentColor" in path.get("style", "")
    )
    assert len(marks) >= 3
    assert [mark / marks[-1] for mark in marks[-3:]] == pytest.approx([8 / 72, 24 / 72, 1])
    assert "8 h → 1 d → 3 d" in words(figure)
    assert "longer than the one before in 1 of 1." in figure.text


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([8.0, 24.0, 72.0], "8 h → 1 d → 3 d"),
        ([48.0] * 5, "5 \N{MULTIPLICATION SIGN} 2 d"),
        ([4.0, 4.0, 12.0], "2 \N{MULTIPLICATION SIGN} 4 h → 12 h"),
        (["unknown", 1.0], "unknown → 1 h"),
    ],
)
def test_limits_of_a_chain_are_said_in_the_words_of_operators(
    limits: list[Any], expected: str
) -> None:
    chain = {"attempts": [{"limit_hours": limit} for limit in limits]}
    assert figures.limits_of(chain) == expected


def test_a_long_chain_says_how_many_attempts_are_not_drawn() -> None:
    document = sample_analysis.sample()
    chain = document["repeats"]["chains"][0]
    chain["attempts"] *= 4
    figure = figures.chains(document)
    assert any("(14 not drawn)" in word for word in words(figure))
    assert figure.table is not None
    assert sum(row.cells[0].startswith("1: ") for row in figure.table.rows) == 20


def test_the_table_of_each_figure_holds_the_numbers_of_the_analysis(drawn: list[Figure]) -> None:
    document = sample_analysis.sample()
    rows = {figure.name: figure.table.rows for figure in drawn if figure.table}
    histogram = document["elapsed_over_limit"]
    assert [row.cells[1] for row in rows["limits"]] == histogram["runs"]
    assert [row.cells[2] for row in rows["limits"]] == histogram["wall_ended_runs"]
    assert [row.cells[3] for row in rows["limits"]] == histogram["node_hours"]
    assert rows["limits"][-1].cells[0] == "100 and more"
    for name, key in (("partitions", "partition"), ("weeks", "week")):
        expected = [row["wall_ended"]["node_hours"] for row in document["breakdowns"][key]]
        assert [row.cells[1] for row in rows[name]] == expected
    shares = [each["cumulative_share"] for each in document["concentration"]]
    assert [row.cells[3] for row in rows["users"]] == shares
    attempts = [each for found in document["repeats"]["chains"] for each in found["attempts"]]
    assert [row.cells[1:] for row in rows["chains"]] == [
        (each["job"], each["state"], limit(each["limit_hours"]), each["elapsed_hours"], hours)
        for each in attempts[: len(rows["chains"])]
        for hours in (each["node_hours"],)
    ]


# -- what is not known ------------------------------------------------------------------------


def test_a_figure_without_data_is_one_line_that_says_what_is_needed() -> None:
    for figure in figures.figures(sample_analysis.unknown()):
        assert not figure.image
        assert figure.table is None
        assert figure.text.startswith("Unknown: needs the column")


def test_a_figure_with_nothing_to_show_says_so() -> None:
    for figure in figures.figures(sample_analysis.no_runs()):
        assert not figure.image
        assert figure.text.startswith(("No ", "Unknown: "))


@pytest.mark.parametrize("measure", ["node_hours", "gpu_hours"])
def test_an_unknown_measure_takes_away_its_own_figures_only(measure: str) -> None:
    document = sample_analysis.sample()
    for rows in document["breakdowns"].values():
        for row in rows:
            row[measure] = row["wall_ended"][measure] = "unknown"
    found = {figure.name: bool(figure.image) for figure in figures.figures(document)}
    assert found["partitions"] is (measure == "gpu_hours")
    assert found["weeks"] is (measure == "gpu_hours")
    assert found["limits"]


def test_unknown_limits_and_hours_of_attempts_are_left_out_of_the_drawing() -> None:
    document = sample_analysis.sample()
    for chain in document["repeats"]["chains"]:
        for attempt in chain["attempts"]:
            attempt.update(limit_hours="unknown", elapsed_hours="unknown")
    assert figures.chains(document).image
